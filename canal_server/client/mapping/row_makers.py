"""What makes an instance of a class out of a row: a function for each kind of class.

For a dataclass or TypedDict, a plan is made for each set of columns that rows have: one
set, unless the table is altered, or binlog_row_image leaves columns out. pydantic and
msgspec plan themselves. They are not imported here: a class of theirs has done that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import sys
import typing
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from canal_server.client.mapping.field_rules import FieldRule, rule_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Row: TypeAlias = dict[str, Any]
    Make: TypeAlias = Callable[[Row], Any]

_PLANS_MAX: Final = 256  # sets of columns that are remembered for one class
_SHOWN_MAX: Final = 80  # characters of a value in an error
_PROBLEMS_SHOWN: Final = 3


class MisfitError(Exception):
    """Why a row does not fit a class."""


def maker_of(into: type, renames: Mapping[str, str]) -> Make:
    """Return what makes an instance of a row, by column name; it raises MisfitError.

    Raises TypeError for a class of another kind or with annotations that cannot be
    used, and ValueError for `renames` that do not suit it.
    """
    pydantic, msgspec = sys.modules.get("pydantic"), sys.modules.get("msgspec")
    if isinstance(into, type):
        if pydantic is not None and hasattr(into, "__pydantic_validator__"):
            _refuse_renames(into, renames, "pydantic.Field(alias=…)")
            return _pydantic_maker(into, pydantic)
        if msgspec is not None and issubclass(into, msgspec.Struct):
            _refuse_renames(into, renames, "msgspec.field(name=…)")
            return _msgspec_maker(into, msgspec)
        if dataclasses.is_dataclass(into) or typing.is_typeddict(into):
            return _RowPlans(into, renames).make
    raise TypeError(
        f"into = {into!r}: expected a dataclass, a TypedDict, a pydantic model or a"
        " msgspec Struct"
    )


def shown(value: object) -> str:
    """Return a value for an error, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


# ------------------------------------------------------------------------------
# Dataclasses and TypedDicts
# ------------------------------------------------------------------------------


class _Field(NamedTuple):
    name: str
    column: str
    rule: FieldRule
    required: bool
    by_name: bool  # its argument cannot be given by position


class _Plan(NamedTuple):
    """How to make an instance of rows with one set of columns."""

    fields: tuple[_Field, ...]  # those that have columns
    values_of: Callable[[Row], tuple[Any, ...]]
    rules: tuple[tuple[frozenset[type], Callable[[Any], Any]], ...]
    build: Callable[..., Any]  # of one argument for each field


class _RowPlans:
    """Makes instances of a dataclass or TypedDict."""

    def __init__(self, into: type, renames: Mapping[str, str]) -> None:
        self._into = into
        is_dict = typing.is_typeddict(into)
        self._fields = tuple(
            (_keys_of if is_dict else _parameters_of)(into, _hints_of(into), renames)
        )
        self._plans: dict[tuple[str, ...], _Plan] = {}
        unknown = set(renames) - {each.name for each in self._fields}
        if unknown:
            raise ValueError(
                f"renames: {into.__qualname__} has no field {min(unknown)!r}; give"
                " the names of columns by the names of fields"
            )

    def make(self, row: Row) -> Any:
        """Return an instance. Raises MisfitError."""
        columns = tuple(row)
        fields, values_of, rules, build = self._plans.get(columns) or self._plan(
            columns
        )
        found = values_of(row)
        try:
            values = [
                value if type(value) in accepts else convert(value)
                for value, (accepts, convert) in zip(found, rules, strict=True)
            ]
        except (TypeError, ValueError) as error:
            raise _first_misfit(fields, found, error) from error
        try:
            return build(*values)
        except (TypeError, ValueError) as error:  # of the class, as in __post_init__
            raise MisfitError(str(error)) from error

    def _plan(self, columns: tuple[str, ...]) -> _Plan:
        missing = [each for each in self._fields if each.column not in columns]
        for each in missing:
            if each.required:
                raise MisfitError(
                    f"it has no column {each.column}, and the field has no default;"
                    " rows lack columns with binlog_row_image = MINIMAL or NOBLOB"
                )
        fields = tuple(each for each in self._fields if each.column in columns)
        plan = _Plan(
            fields,
            _values_getter([each.column for each in fields]),
            tuple((each.rule.accepts, each.rule.convert) for each in fields),
            self._builder(fields),
        )
        if len(self._plans) >= _PLANS_MAX:
            self._plans.clear()
        self._plans[columns] = plan
        return plan

    def _builder(self, fields: tuple[_Field, ...]) -> Callable[..., Any]:
        into, names = self._into, [each.name for each in fields]
        if typing.is_typeddict(into):
            return lambda *values: dict(zip(names, values, strict=True))
        # By position is faster.
        if fields == self._fields[: len(fields)] and not any(
            each.by_name for each in fields
        ):
            return into
        return lambda *values: into(**dict(zip(names, values, strict=True)))


def _hints_of(into: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(into, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"into = {into!r}: its annotations cannot be resolved: {error}; define and"
            " import what they name at the level of the module"
        ) from error


def _parameters_of(
    into: type, hints: dict[str, Any], renames: Mapping[str, str]
) -> Iterable[_Field]:
    """Yield the parameters of a dataclass, which are its fields and InitVars."""
    for name, each in inspect.signature(into).parameters.items():
        if each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}:
            yield _Field(
                name,
                renames.get(name, name),
                rule_of(hints.get(name, Any)),
                required=each.default is each.empty,
                by_name=each.kind is each.KEYWORD_ONLY,
            )


def _keys_of(
    into: Any, hints: dict[str, Any], renames: Mapping[str, str]
) -> Iterable[_Field]:
    for name, hint in hints.items():
        # Python 3.11 does not see these where annotations are texts.
        origin = typing.get_origin(hint)
        required = origin is typing.Required or (
            origin is not typing.NotRequired and name in into.__required_keys__
        )
        column = renames.get(name, name)
        yield _Field(name, column, rule_of(hint), required, by_name=True)


def _values_getter(columns: list[str]) -> Callable[[Row], tuple[Any, ...]]:
    if len(columns) > 1:
        return itemgetter(*columns)
    return lambda row: tuple([row[each] for each in columns])


def _first_misfit(
    fields: tuple[_Field, ...], found: tuple[Any, ...], error: Exception
) -> MisfitError:
    """Return the reason with the first column that has one."""
    for each, value in zip(fields, found, strict=True):
        if type(value) not in each.rule.accepts:
            try:
                each.rule.convert(value)
            except (TypeError, ValueError) as its:
                return MisfitError(f"column {each.column} = {shown(value)}: {its}")
    return MisfitError(str(error))


# ------------------------------------------------------------------------------
# pydantic and msgspec
# ------------------------------------------------------------------------------


def _refuse_renames(into: type, renames: Mapping[str, str], instead: str) -> None:
    if renames:
        raise ValueError(
            f"renames: {into.__qualname__} names its columns itself; use {instead}"
        )


def _pydantic_maker(into: Any, pydantic: Any) -> Make:
    validate = into.__pydantic_validator__.validate_python  # which completes the class
    rules = []
    for name, each in into.__pydantic_fields__.items():
        if any(mark is pydantic.Json or isinstance(mark, pydantic.Json)
               for mark in each.metadata):  # fmt: skip
            continue  # it parses the text itself
        rule = rule_of(each.annotation)
        keys = {name, each.alias, each.validation_alias}
        rules += [(key, rule) for key in keys if isinstance(key, str) and rule.remakes]

    def make(row: Row) -> Any:
        try:
            return validate(_remade(row, rules))
        except pydantic.ValidationError as error:
            raise MisfitError(_pydantic_reasons(error)) from error

    return make


def _pydantic_reasons(error: Any) -> str:
    listed = error.errors(include_url=False, include_context=False)
    reasons = []
    for each in listed[:_PROBLEMS_SHOWN]:
        column = ".".join(map(str, each["loc"]))
        if not column:
            reasons.append(each["msg"])
        elif each["type"] == "missing":
            reasons.append(f"it has no column {column}, and the field has no default")
        else:
            reasons.append(f"column {column} = {shown(each['input'])}: {each['msg']}")
    if len(listed) > len(reasons):
        reasons.append(f"and {len(listed) - len(reasons)} more")
    return "; ".join(reasons)


def _msgspec_maker(into: Any, msgspec: Any) -> Make:
    rules = [
        (each.encode_name, rule)
        for each in msgspec.structs.fields(into)
        if (rule := rule_of(each.type)).remakes
    ]
    convert = msgspec.convert
    with contextlib.suppress(msgspec.ValidationError):
        convert({}, into)  # TypeError if msgspec does not support its types

    def make(row: Row) -> Any:
        try:
            return convert(_remade(row, rules), into)
        except msgspec.ValidationError as error:
            raise MisfitError(_msgspec_reason(str(error), row)) from error

    return make


def _msgspec_reason(text: str, row: Row) -> str:
    """Return "Expected `int`, got `str` - at `$.id`" with the column and its value."""
    reason, _, path = text.partition(" - at `$.")
    columns = [each for each in row if path.startswith(each)]
    if not columns:
        return text
    column = max(columns, key=len)
    return f"column {column} = {shown(row[column])}: {reason}"


def _remade(row: Row, rules: list[tuple[str, FieldRule]]) -> Row:
    """Return a row with the values of SET, TIME, JSON and flags as annotated."""
    remade: Row = {}
    for column, rule in rules:
        value = row.get(column)
        if value is not None and type(value) not in rule.accepts:
            try:
                remade[column] = rule.convert(value)
            except (TypeError, ValueError):
                continue  # the class says what is wrong
    return row | remade if remade else row
