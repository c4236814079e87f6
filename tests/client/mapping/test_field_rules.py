"""What each annotation accepts, makes of a value, and refuses with which words."""

from __future__ import annotations

import datetime as dt
import enum
import typing
from collections import abc
from dataclasses import InitVar
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict, TypeVar

import pytest

from canal_server.client.mapping.field_rules import rule_of

DAY = dt.date(2026, 1, 2)
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001  # as a DATETIME
HOURS = dt.timedelta(hours=10, microseconds=1)
Number = NewType("Number", int)


class State(enum.StrEnum):
    """The labels of a column."""

    NEW = "new"
    PAID = "paid"


class Level(enum.IntEnum):
    """Numbers of a column; any other is LOW."""

    LOW = 1
    HIGH = 2

    @classmethod
    def _missing_(cls, value: object) -> Level | None:
        return cls.LOW if isinstance(value, int) else None


class Document(TypedDict):
    """An object in JSON."""

    a: int


def value_of(hint: Any, value: Any) -> Any:
    """Return what a field with an annotation gets for a value."""
    rule = rule_of(hint)
    return value if type(value) in rule.accepts else rule.convert(value)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 7),
        (float, 1.5),
        (Decimal, Decimal("1.50")),
        (str, "x"),
        (bytes, b"x"),
        (dt.date, DAY),
        (dt.datetime, MOMENT),
        (dt.timedelta, HOURS),
        (int | None, None),
        (Optional[int], 7),  # noqa: UP045  # the older form
        (int | str, "x"),
        (bool | int, 1),  # named types first
        (float | int, 1),
        (State | str, "paid"),
        (dict, {"a": 1}),
        (list[int], [1]),
        (Literal["a", 3], 3),
        (Any, None),
        (object, b""),
        (TypeVar("T"), "x"),
        (None, None),
        (Annotated[int, "positive"], 7),
        (typing.Required[int], 7),
        (typing.NotRequired[int | None], None),
        (InitVar[int], 7),
        (Number, 7),
        (Number | None, None),
    ],
)
def test_as_it_is(hint, value):
    """A value of an annotated type stays the very object that it is."""
    assert value_of(hint, value) is value


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (bool, 1, True),
        (bool, 0, False),
        (bool | None, 1, True),
        (float, 7, 7.0),
        (float | None, 7, 7.0),
        (State, "paid", State.PAID),
        (State | None, "new", State.NEW),
        (Level, 2, Level.HIGH),
        (Level, 9, Level.LOW),
        (dt.time, HOURS, dt.time(10, 0, 0, 1)),
        (dt.time, dt.timedelta(), dt.time()),
        (set[str], "a,b", {"a", "b"}),
        (set, "", set()),
        (frozenset[str], "a", frozenset({"a"})),
        (abc.Set[str], "a", frozenset({"a"})),
        (set[State], "new,paid", {State.NEW, State.PAID}),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Document, '{"a": 1}', {"a": 1}),
        (abc.Mapping[str, int], '{"a": 1}', {"a": 1}),
        (list, "[1, null]", [1, None]),
        (abc.Sequence[int], "[1]", [1]),
        (dict | list, "[1]", [1]),
        (dict | None, "null", None),
        (dict | dt.date, '{"a": 1}', {"a": 1}),
    ],
)
def test_made_of_another(hint, value, expected):
    """Annotations ask for more than the types that changes have."""
    found = value_of(hint, value)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("hint", "value", "words"),
    [
        (int, "7", "expected int, not str"),
        (int, Decimal(7), "expected int, not Decimal"),
        (Number, "7", "expected int, not str"),
        (str, 7, "expected str, not int"),
        (str, None, "expected str, not NULL; annotate it as optional, … | None"),
        (State, None, "not NULL; annotate it as optional"),
        (bool, None, "not NULL; annotate it as optional"),
        (dict, None, "not NULL; annotate it as optional"),
        (float, "1.5", "expected float, not str"),
        (bool, 2, "expected bool (0 or 1), not int"),
        (bool, "1", "expected bool (0 or 1), not str"),
        (dt.date, MOMENT, "expected date, not datetime"),
        (dt.date, "0000-00-00", "such as a zero date, is a str: annotate it as date |"),
        (dt.datetime, DAY, "expected datetime, not date"),
        (dt.time, dt.timedelta(hours=24), "annotate it as timedelta"),
        (dt.time, dt.timedelta(hours=-1), "annotate it as timedelta"),
        (dt.time, 5, "expected time, not int"),
        (State, "gone", "expected State, which has 'new', 'paid'"),
        (set[State], "new,gone", "expected State, which has 'new', 'paid'"),
        (Literal["a", 3], "b", "expected one of 'a', 3"),
        (set[str], 7, "expected set of labels, not int"),
        (dict, 7, "expected dict in JSON, not int"),
        (dict, "{", "expected dict in JSON: Expecting property name"),
        (dict, "[]", "expected dict in JSON, not list"),
        (dict, "null", "expected dict in JSON, not null; annotate it as optional"),
        (int | str, b"", "expected int or str, not bytes"),
        (int | None, "7", "expected int, not str"),
        (None, 7, "expected NULL, not int"),
    ],
)
def test_refused(hint, value, words):
    """Other values are refused with what was expected, and with what helps."""
    with pytest.raises((TypeError, ValueError)) as caught:
        value_of(hint, value)
    assert words in str(caught.value)


def test_what_classes_with_rules_of_their_own_need():
    """Only what pydantic and msgspec refuse is made for them."""
    made = (bool, set[str], dt.time | None, dict, list[int])
    assert all(rule_of(each).remakes for each in made)
    others = (int, State, Literal["a"], Decimal, float, Any)
    assert not any(rule_of(each).remakes for each in others)
