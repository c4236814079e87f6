"""What an annotation says about the value of a column: rules for single values.

A value whose exact type is annotated stays as it is. Some annotations make another
value of it: bool of 0 and 1, time of timedelta, a set of labels joined by commas, dict
and list of JSON, an Enum of a label or number, float of int. Nothing else fits.
"""

from __future__ import annotations

import json
import types
import typing
from collections import abc
from dataclasses import InitVar
from datetime import date, datetime, time, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert: TypeAlias = Callable[[Any], Any]

_DAY: Final = timedelta(days=1)
_MIDNIGHT: Final = datetime(2000, 1, 1)  # noqa: DTZ001  # of any day, in no zone


class FieldRule(NamedTuple):
    """Which values a field accepts."""

    expected: str  # for errors
    accepts: frozenset[type]  # values of exactly these types stay as they are
    convert: Convert  # for all others; raises TypeError, ValueError
    remakes: bool = False  # accepts what the class itself, unaware of columns, refuses


class _JsonNullError(TypeError):
    """The document is `null`."""


def rule_of(hint: Any) -> FieldRule:
    """Return the rule of an annotation that is resolved, not a text."""
    hint = _bare(hint)
    origin = typing.get_origin(hint)
    if origin in {typing.Union, types.UnionType}:
        return _union(typing.get_args(hint))
    if origin is typing.Literal:
        return _literal(typing.get_args(hint))
    kind = dict if typing.is_typeddict(hint) else origin or hint
    kind = _CONCRETE.get(kind, kind)
    if isinstance(kind, type) and kind not in _RULES:
        return _rule_of_class(kind, typing.get_args(hint))
    return _RULES.get(kind, _ANYTHING)  # anything for type variables


def _rule_of_class(kind: type, hints: tuple[Any, ...]) -> FieldRule:
    if issubclass(kind, (set, frozenset)):
        return _labels(kind, hints)
    if issubclass(kind, (dict, list)):
        return _document(kind)
    return _enum_rule(kind) if issubclass(kind, Enum) else _instance(kind)


def _bare(hint: Any) -> Any:
    """Return the type within Annotated, NotRequired, InitVar, NewType and others."""
    while True:
        if typing.get_origin(hint) in _WRAPPERS:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, InitVar):
            hint = hint.type
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif hasattr(hint, "__value__"):  # a `type` statement of Python 3.12
            hint = hint.__value__
        else:
            return hint


# ------------------------------------------------------------------------------
# Rules of several types
# ------------------------------------------------------------------------------


def _union(hints: tuple[Any, ...]) -> FieldRule:
    rules = [rule_of(each) for each in hints]
    expected = " or ".join(each.expected for each in rules)
    accepts = frozenset().union(*(each.accepts for each in rules))
    others = [each for each in rules if each is not _NULL]

    def convert(value: Any) -> Any:
        problem: Exception = _refusal(expected, value)
        for each in others:
            try:
                return each.convert(value)
            except _JsonNullError:
                if len(others) < len(rules):
                    return None
            except (TypeError, ValueError) as error:
                if len(others) == 1:  # its own words say more
                    problem = error
        raise problem

    return FieldRule(expected, accepts, convert, any(each.remakes for each in rules))


def _literal(allowed: tuple[Any, ...]) -> FieldRule:
    expected = f"one of {', '.join(map(repr, allowed))}"

    def convert(value: Any) -> Any:
        if value in allowed:
            return value
        raise _refusal(expected, value, "")

    return FieldRule(expected, frozenset(), convert)


def _enum_rule(kind: type[Enum]) -> FieldRule:
    members = {each.value: each for each in kind}
    expected = f"{kind.__name__}, which has {', '.join(map(repr, members))}"

    def convert(value: Any) -> Any:
        found = members.get(value)
        if found is not None:
            return found
        try:
            return kind(value)  # `_missing_` of the class may know it
        except ValueError:
            raise _refusal(expected, value, "") from None

    return FieldRule(kind.__name__, frozenset({kind}), convert)


def _labels(kind: type[set[Any] | frozenset[Any]], hints: tuple[Any, ...]) -> FieldRule:
    label = rule_of(hints[0]) if hints else _ANYTHING

    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            raise _refusal(f"{kind.__name__} of labels", value)
        return kind(map(label.convert, value.split(",") if value else ()))

    return FieldRule(kind.__name__, frozenset({kind}), convert, remakes=True)


def _document(kind: type[dict[Any, Any] | list[Any]]) -> FieldRule:
    expected = f"{kind.__name__} in JSON"

    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            raise _refusal(expected, value)
        try:
            found = json.loads(value)
        except ValueError as error:
            raise ValueError(f"expected {expected}: {error}") from None
        if found is None:
            raise _JsonNullError(f"expected {expected}, not null; {_OPTIONAL}")
        if not isinstance(found, kind):
            raise _refusal(expected, found)
        return found

    return FieldRule(kind.__name__, frozenset({kind}), convert, remakes=True)


def _instance(kind: type) -> FieldRule:
    def convert(value: Any) -> Any:
        if isinstance(value, kind) and type(value) is not datetime:
            return value  # of a subclass; a datetime is no date here
        raise _refusal(kind.__name__, value)

    return FieldRule(kind.__name__, frozenset({kind}), convert)


# ------------------------------------------------------------------------------
# Rules of one type
# ------------------------------------------------------------------------------


def _same(value: Any) -> Any:
    return value


def _flag(value: Any) -> bool:
    if type(value) is int and value in {0, 1}:
        return value == 1
    raise _refusal("bool (0 or 1)", value)


def _number(value: Any) -> float:
    if type(value) is int:
        return float(value)
    raise _refusal("float", value)


def _time_of_day(value: Any) -> time:
    if not isinstance(value, timedelta):
        raise _refusal("time", value)
    if timedelta() <= value < _DAY:
        return (_MIDNIGHT + value).time()
    raise ValueError("expected time, 0 to 24 hours; annotate it as timedelta")


def _nothing(value: Any) -> None:
    raise _refusal("NULL", value)


def _refusal(expected: str, value: Any, found: str | None = None) -> TypeError:
    """Return what is wrong with a value, and what may help."""
    if value is None:
        return TypeError(f"expected {expected}, not NULL; {_OPTIONAL}")
    if isinstance(value, str) and expected in _MOMENTS:
        return TypeError(
            f"expected {expected}, not str; what Python cannot hold, such as a zero"
            f" date, is a str: annotate it as {expected} | str"
        )
    if found is None:
        found = f", not {type(value).__name__}"
    return TypeError(f"expected {expected}{found}")


_OPTIONAL: Final = "annotate it as optional, … | None"
_MOMENTS: Final = {each.__name__ for each in (date, datetime, time, timedelta)}
_ANYTHING: Final = FieldRule("any value", frozenset(), _same)
_NULL: Final = FieldRule("None", frozenset({type(None)}), _nothing)
_RULES: Final[dict[Any, FieldRule]] = {
    None: _NULL,
    type(None): _NULL,
    Any: _ANYTHING,  # a class since Python 3.11
    object: _ANYTHING,
    bool: FieldRule("bool", frozenset({bool}), _flag, remakes=True),
    float: FieldRule("float", frozenset({float}), _number),
    time: FieldRule("time", frozenset({time}), _time_of_day, remakes=True),
}
_CONCRETE: Final[dict[Any, type]] = {
    abc.Set: frozenset,
    abc.MutableSet: set,
    abc.Mapping: dict,
    abc.MutableMapping: dict,
    abc.Sequence: list,
    abc.MutableSequence: list,
}
_WRAPPERS: Final = {
    typing.Annotated,
    typing.Final,
    typing.Required,
    typing.NotRequired,
    getattr(typing, "ReadOnly", typing.Annotated),  # of Python 3.13
}
