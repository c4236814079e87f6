"""Instances of every kind of class, of rows with all or some of their columns."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import InitVar, dataclass, field, make_dataclass
from decimal import Decimal  # noqa: TC003  # classes are read when they run
from typing import Annotated, Any, Generic, NotRequired, Required, TypedDict, TypeVar

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from canal_server.client.mapping import row_makers
from canal_server.client.mapping.row_makers import MisfitError, maker_of

T = TypeVar("T")
HOUR = dt.timedelta(hours=1)
ROW = {"id": 7, "tags": "a,b", "paid": 1, "at": HOUR, "doc": "[1]"}


class Tag(enum.StrEnum):
    """Labels of a SET."""

    A = "a"
    B = "b"


@dataclass
class Order:
    """With parameters of every kind."""

    id: int
    at: dt.timedelta
    raw: InitVar[str]
    note: str = "none"
    tags: set[str] = field(default_factory=set)
    seen: int = field(default=0, init=False)
    paid: bool = field(default=False, kw_only=True)

    def __post_init__(self, raw: str) -> None:
        """Use what is no field."""
        if raw == "bad":
            raise ValueError("raw is bad")
        self.seen = len(raw)


def made(into: type, row: dict[str, Any], **renames: str) -> Any:
    """Return an instance of a row."""
    return maker_of(into, renames)(row)


def test_parameters_of_a_dataclass():
    """InitVars, parameters by keyword only and fields without one are heeded."""
    found = made(Order, ROW | {"raw": "xyz"})
    assert found == Order(7, HOUR, "xyz", tags={"a", "b"}, paid=True)
    assert (found.seen, found.note) == (3, "none")


def test_columns_that_some_rows_lack():
    """One maker serves rows with different columns, each with its own plan."""
    make = maker_of(Order, {})
    row = {"raw": "", "at": dt.timedelta(), "id": 1}
    assert make(row) == Order(1, dt.timedelta(), "")
    assert make(row | {"paid": 1}) == Order(1, dt.timedelta(), "", paid=True)
    assert make(row | {"tags": "a"}).tags == {"a"}
    assert make(row) == Order(1, dt.timedelta(), "")
    del row["at"]
    for _ in range(2):
        with pytest.raises(MisfitError, match="it has no column at, and the field has"):
            make(row)


def test_many_sets_of_columns(monkeypatch):
    """However many there are, the memory for plans is bounded."""
    monkeypatch.setattr(row_makers, "_PLANS_MAX", 3)
    names = [f"c{i}" for i in range(10)]
    into = make_dataclass("Row", [(name, int, 0) for name in names])
    plans = row_makers._RowPlans(into, {})
    for i in range(10):
        assert plans.make({names[i]: i}) == into(**{names[i]: i})
        assert len(plans._plans) <= 3


def test_one_column_and_none():
    """Rows of one column, and classes of none, are no exceptions."""
    assert made(make_dataclass("One", [("id", int)]), ROW).id == 7
    empty = make_dataclass("Empty", [])
    assert made(empty, ROW) == empty()


def test_generic_dataclass():
    """A type variable accepts everything."""

    @dataclass
    class Box(Generic[T]):
        id: T

    assert made(Box, {"id": "x"}) == Box("x")


def test_errors_of_the_class():
    """What `__post_init__` raises is a reason like others; its bugs are not."""
    with pytest.raises(MisfitError, match="raw is bad") as caught:
        made(Order, ROW | {"raw": "bad"})
    assert isinstance(caught.value.__cause__, ValueError)

    @dataclass
    class Bug:
        id: int

        def __post_init__(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        made(Bug, ROW)


class Numbered(TypedDict):
    """A key with another name than its column."""

    number: int


def test_renames():
    """A field may have another name than its column, in both kinds of classes."""
    into = make_dataclass("Row", [("number", int), ("labels", set[str])])
    renames = {"number": "id", "labels": "tags"}
    assert made(into, ROW, **renames) == into(7, {"a", "b"})
    assert made(Numbered, ROW, number="id") == {"number": 7}
    with pytest.raises(MisfitError, match="column id = 'x': expected int"):
        made(into, ROW | {"id": "x"}, **renames)
    with pytest.raises(ValueError, match="has no field 'nmber'"):
        made(into, ROW, nmber="id")
    for other, words in (
        (pydantic.create_model("Row", id=int), r"use pydantic\.Field\(alias=…\)"),
        (msgspec.defstruct("Row", [("id", int)]), r"use msgspec\.field\(name=…\)"),
    ):
        with pytest.raises(ValueError, match=words):
            made(other, ROW, number="id")


class Partial(TypedDict, total=False):
    """Keys of all three kinds."""

    id: Required[int]
    note: str
    tags: NotRequired[set[Tag]]


class Whole(Partial):
    """Inherits them."""

    paid: bool


def test_keys_of_a_typed_dict():
    """Keys that are not required may have no column, also in annotations as texts."""
    assert made(Partial, {"id": 7}) == {"id": 7}
    assert made(Whole, ROW) == {"id": 7, "tags": {Tag.A, Tag.B}, "paid": True}
    for row, column in (({"note": "x"}, "id"), ({"id": 1}, "paid")):
        with pytest.raises(MisfitError, match=f"it has no column {column}"):
            made(Whole, row)
    odd_names = TypedDict("odd_names", {"a b": int})
    assert made(odd_names, {"a b": 1}) == {"a b": 1}


def test_annotations_that_cannot_be_resolved():
    """The reason is given when the maker is made, not with the first row."""
    into = make_dataclass("Row", [("id", "Missing")])
    with pytest.raises(TypeError, match="resolved: name 'Missing' is not defined"):
        maker_of(into, {})


@pytest.mark.parametrize("into", [int, dict, str, list[int], Order(1, HOUR, ""), 5])
def test_other_classes(into):
    """Other classes, and what is no class, are refused with those that can be used."""
    with pytest.raises(
        TypeError, match="expected a dataclass, a TypedDict, a pydantic"
    ):
        maker_of(into, {})


class Model(pydantic.BaseModel):
    """Values of SET, TIME and JSON are made for it, before its own rules."""

    id: Annotated[int, pydantic.Field(gt=0)]
    labels: Annotated[set[Tag] | None, pydantic.Field(alias="tags")]
    paid: Annotated[bool, pydantic.Field(strict=True)]
    at: dt.time
    doc: list[int]


def test_pydantic():
    """Aliases, constraints and strict fields work as the model says."""
    found = made(Model, ROW)
    assert (found.id, found.labels, found.paid) == (7, {Tag.A, Tag.B}, True)
    assert (found.at, found.doc) == (dt.time(1), [1])


def test_pydantic_json():
    """A field that parses JSON itself gets the text."""
    model = pydantic.create_model("Row", doc=pydantic.Json[list[int]])
    assert made(model, ROW).doc == [1]


def test_pydantic_dataclass():
    """A dataclass of pydantic is one of its models, not a plain dataclass."""

    @pydantic.dataclasses.dataclass
    class Row:
        id: str = pydantic.Field(coerce_numbers_to_str=True)
        tags: set[str] = pydantic.Field(default_factory=set)

    assert made(Row, ROW) == Row("7", {"a", "b"})
    with pytest.raises(MisfitError, match=r"column id = b'\\xff': .*string"):
        made(Row, {"id": b"\xff"})


def test_pydantic_reasons():
    """Columns and values are named, a few at most; those that lack, too."""

    class Row(pydantic.BaseModel, extra="forbid"):
        id: bytes
        lack: int
        at: dt.time

    reasons = "column id = 7: Input should be a valid bytes; it has no column lack, and"
    with pytest.raises(MisfitError) as caught:
        made(Row, ROW | {"at": dt.timedelta(hours=25)})
    text = str(caught.value)
    assert text.startswith(reasons)
    assert "column at = datetime.timedelta(days=1, seconds=3600): " in text
    assert text.endswith("; and 3 more")

    class Checked(pydantic.BaseModel):
        id: int

        @pydantic.model_validator(mode="after")
        def _check(self) -> Checked:
            raise ValueError("never right")

    with pytest.raises(MisfitError, match=r"^Value error, never right$"):
        made(Checked, ROW)


def test_pydantic_model_that_is_completed_later():
    """A model may be defined before what it names."""

    class Later(pydantic.BaseModel):
        id: Soon  # type: ignore[name-defined]  # noqa: F821

    Later.model_rebuild(_types_namespace={"Soon": int})
    assert made(Later, ROW).id == 7


class Struct(msgspec.Struct, rename={"labels": "tags"}):
    """Values of SET, TIME, JSON and flags are made for it."""

    id: int
    labels: set[Tag]
    paid: bool
    at: dt.time | None
    doc: list[int]
    total: Decimal | None = None


def test_msgspec():
    """A Struct's names and types are heeded, by the strict rules of msgspec."""
    assert made(Struct, ROW) == Struct(7, {Tag.A, Tag.B}, True, dt.time(1), [1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": "7"}, "column id = '7': Expected `int`, got `str`"),
        ({"tags": "a,c"}, "column tags = 'a,c': Expected `array"),
        ({"doc": '["x"]'}, "column doc = '[\"x\"]': Expected `int`, got `str`"),
        ({"paid": 2}, "column paid = 2: Expected `bool`, got `int`"),
    ],
)
def test_msgspec_reasons(change, words):
    """The column and its value are named."""
    with pytest.raises(MisfitError) as caught:
        made(Struct, ROW | change)
    assert str(caught.value).startswith(words)


def test_msgspec_columns_that_lack():
    """What has no value is named."""
    with pytest.raises(MisfitError, match="missing required field `id`"):
        made(Struct, {})
    strict = msgspec.defstruct("Row", [("id", int)], forbid_unknown_fields=True)
    with pytest.raises(MisfitError, match="unknown field `tags`"):
        made(strict, ROW)


def test_msgspec_types_that_it_does_not_support():
    """They are refused when the maker is made, not with the first row."""
    with pytest.raises(TypeError, match="not supported"):
        maker_of(msgspec.defstruct("Row", [("id", str | bytes)]), {})
