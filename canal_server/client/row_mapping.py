"""Rows as instances of a program's own class for a table.

The class is a dataclass, a TypedDict, a pydantic model or a msgspec Struct. Its fields
are columns by name; other columns are ignored, unless the class forbids them. Values
have the types that changes have, and a field's annotation may ask for more:

    bool                 0 and 1
    an Enum              the member with the label or number as its value
    set[str], frozenset  the labels of a SET
    time                 a TIME within a day
    dict, list           JSON, with `load_json`

pydantic and msgspec convert by their own rules. For a dataclass or TypedDict the plain
types are checked here, so that a wrong annotation is found at the first row.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from canal_server.errors import RowMappingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from canal_server.client.change_reader import Change, Kind

T = TypeVar("T")
Convert: typing.TypeAlias = "Callable[[Any], Any]"

_SHOWN_MAX: Final = 80  # characters of a value in an error
_DAY: Final = timedelta(days=1)
_MIDNIGHT: Final = datetime(2000, 1, 1)  # noqa: DTZ001  # of any day, in no zone
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class MappedChange(Generic[T]):
    """A change of a table whose rows are instances of a class.

    A statement on the table, such as TRUNCATE, has neither `before` nor `after`.
    """

    kind: Kind
    before: T | None
    after: T | None
    change: Change


class RowMapper(Generic[T]):
    """Makes instances of a class out of rows. Raises TypeError for another class."""

    def __init__(self, into: type[T]) -> None:
        self._into = into
        self._make = _maker_of(into)

    def mapped(self, change: Change) -> MappedChange[T]:
        """Return a change with its rows. Raises RowMappingError."""
        return MappedChange(
            change.kind,
            self._row(change, change.before),
            self._row(change, change.after),
            change,
        )

    def _row(self, change: Change, values: dict[str, Any] | None) -> T | None:
        if values is None:
            return None
        try:
            return self._make(values)  # type: ignore[no-any-return]
        except _ColumnProblem as problem:
            raise self._error(change, str(problem)) from problem.__cause__
        except (TypeError, ValueError) as error:  # of pydantic, msgspec and the class
            raise self._error(change, " ".join(str(error).split())) from error

    def _error(self, change: Change, problem: str) -> RowMappingError:
        return RowMappingError(
            f"table {change.schema}.{change.table}: a row does not fit"
            f" {self._into.__qualname__}: {problem} (at {change.file}:"
            f"{change.position[1]}); correct the class, or iterate without `into`"
        )


class _ColumnProblem(Exception):  # noqa: N818  # becomes a RowMappingError
    """A value that a field does not accept."""


def _maker_of(into: type) -> Callable[[dict[str, Any]], Any]:
    pydantic, msgspec = sys.modules.get("pydantic"), sys.modules.get("msgspec")
    if pydantic is not None and issubclass(into, pydantic.BaseModel):
        return into.model_validate  # type: ignore[attr-defined,no-any-return]
    if msgspec is not None and issubclass(into, msgspec.Struct):
        return lambda values: msgspec.convert(values, into, strict=False)
    if dataclasses.is_dataclass(into):
        return _dataclass_maker(into)
    if typing.is_typeddict(into):
        return _typed_dict_maker(into)
    raise TypeError(
        f"into = {into!r}: expected a dataclass, a TypedDict, a pydantic model or a"
        " msgspec Struct"
    )


def _dataclass_maker(into: Any) -> Callable[[dict[str, Any]], Any]:
    hints = typing.get_type_hints(into)
    fields = [each for each in dataclasses.fields(into) if each.init]
    converts = [(each.name, _convert_of(hints[each.name])) for each in fields]
    optional = {
        each.name
        for each in fields
        if each.default is not dataclasses.MISSING
        or each.default_factory is not dataclasses.MISSING
    }

    def make(values: Mapping[str, Any]) -> Any:
        return into(**dict(_filled(values, converts, optional)))

    return make


def _typed_dict_maker(into: Any) -> Callable[[dict[str, Any]], Any]:
    # Python 3.11 does not see NotRequired where annotations are texts.
    hints = typing.get_type_hints(into, include_extras=True)
    converts = [(name, _convert_of(hint)) for name, hint in hints.items()]
    optional = into.__optional_keys__ | {
        name
        for name, hint in hints.items()
        if typing.get_origin(hint) is typing.NotRequired
    }

    def make(values: Mapping[str, Any]) -> Any:
        return dict(_filled(values, converts, optional))

    return make


def _filled(
    values: Mapping[str, Any],
    converts: list[tuple[str, Convert]],
    optional: set[str] | frozenset[str],
) -> Iterator[tuple[str, Any]]:
    """Yield the value of each field, converted."""
    for name, convert in converts:
        value = values.get(name, _MISSING)
        if value is _MISSING:
            if name in optional:
                continue
            raise _ColumnProblem(
                f"it has no column {name}, and the field has no default"
            )
        try:
            yield name, convert(value)
        except (TypeError, ValueError) as error:
            shown = repr(value)
            if len(shown) > _SHOWN_MAX:
                shown = f"{shown[:_SHOWN_MAX]}…"
            raise _ColumnProblem(f"column {name} = {shown}: {error}") from error


# ------------------------------------------------------------------------------
# Annotations
# ------------------------------------------------------------------------------


def _convert_of(hint: Any) -> Convert:
    """Return what makes a value of an annotation; it raises TypeError, ValueError."""
    origin = typing.get_origin(hint)
    generic = _GENERIC.get(origin)
    if generic is not None:
        return generic(typing.get_args(hint))
    kind = origin or hint
    if kind is Any or not isinstance(kind, type):
        return _null if kind is None else _same
    return _SPECIAL.get(kind) or _convert_of_class(kind)


def _convert_of_class(kind: type) -> Convert:
    if issubclass(kind, (set, frozenset)):
        return lambda value: kind(_labels(value))
    return _member_of(kind) if issubclass(kind, Enum) else _instance_of(kind)


def _same(value: Any) -> Any:
    return value


def _null(value: Any) -> None:
    if value is not None:
        raise TypeError("expected NULL")


def _union_of(hints: tuple[Any, ...]) -> Convert:
    converts = [_convert_of(each) for each in hints if each is not type(None)]
    has_null = len(converts) < len(hints)

    def convert(value: Any) -> Any:
        if value is None and has_null:
            return None
        problem: Exception | None = None
        for each in converts:
            try:
                return each(value)
            except (TypeError, ValueError) as error:
                problem = problem or error
        assert problem is not None, "a union has members"
        raise problem

    return convert


def _literal_of(allowed: tuple[Any, ...]) -> Convert:
    def convert(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"expected one of {', '.join(map(repr, allowed))}")
        return value

    return convert


def _member_of(kind: type[Enum]) -> Convert:
    def convert(value: Any) -> Any:
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(repr(each.value) for each in kind)
            raise ValueError(f"{kind.__name__} has {known}") from None

    return convert


def _instance_of(kind: type) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, kind) and not (
            # A datetime is a date, too.
            kind is not datetime and type(value) is datetime and kind is not object
        ):
            return value
        raise TypeError(_expected(kind, value))

    return convert


def _expected(kind: type, value: Any) -> str:
    found = "NULL" if value is None else type(value).__name__
    advice = "; annotate it as optional" if value is None else ""
    return f"expected {kind.__name__}, not {found}{advice}"


def _flag(value: Any) -> bool:
    if type(value) is int and value in (0, 1):
        return bool(value)
    raise TypeError(f"{_expected(bool, value)}; a bool is 0 or 1")


def _number(value: Any) -> float:
    if isinstance(value, float) or type(value) is int:
        return float(value)
    raise TypeError(_expected(float, value))


def _labels(value: Any) -> list[str]:
    if not isinstance(value, str):
        raise TypeError(_expected(set, value))
    return value.split(",") if value else []


def _time_of_day(value: Any) -> time:
    if isinstance(value, timedelta) and timedelta() <= value < _DAY:
        return (_MIDNIGHT + value).time()
    raise TypeError(f"{_expected(time, value)}; a time of day is less than 24 hours")


_SPECIAL: Final[dict[type, Convert]] = {
    bool: _flag,
    float: _number,
    time: _time_of_day,
    object: _same,
    type(None): _null,
}
_GENERIC: Final[dict[Any, Callable[[tuple[Any, ...]], Convert]]] = {
    typing.Union: _union_of,
    types.UnionType: _union_of,
    typing.Literal: _literal_of,
    typing.Annotated: lambda hints: _convert_of(hints[0]),
    typing.Required: lambda hints: _convert_of(hints[0]),
    typing.NotRequired: lambda hints: _convert_of(hints[0]),
}
