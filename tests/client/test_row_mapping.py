"""Rows as instances of a program's own classes, and errors that say what is wrong."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from client_entries import row, statement
from fix_server import DESTINATION

from canal_server.client import CanalClient, RowMappingError
from canal_server.client.received_message import Message
from canal_server.client.row_mapping import RowMapper
from canal_server.protocol.entry_messages import (
    Column,
    Entry,
    EntryType,
    EventType,
    Header,
    RowChange,
    RowData,
)
from canal_server.protocol.protobuf import encode

COLUMNS = {
    "id": ("int", "7"),
    "state": ("enum('new','paid')", "2"),
    "tags": ("set('a','b','c')", "5"),
    "total": ("decimal(10,2)", "12.5"),
    "ratio": ("double", "1"),
    "paid": ("tinyint(1)", "1"),
    "made": ("datetime(6)", "2026-01-02 03:04:05.000006"),
    "day": ("date", "2026-01-02"),
    "at": ("time", "10:11:12"),
    "note": ("varchar(9)", None),
}


class State(enum.StrEnum):
    """The labels of a column."""

    NEW = "new"
    PAID = "paid"


def message_of(columns: dict[str, tuple[str, str | None]] = COLUMNS) -> Message:
    """Return a message with an insert of these columns, by name: type and text."""
    listed = tuple(
        Column(
            name=name,
            is_key=name == "id",
            is_null=text is None,
            value=text or "",
            mysql_type=mysql_type,
        )
        for name, (mysql_type, text) in columns.items()
    )
    change = RowChange(
        event_type=EventType.INSERT, row_datas=(RowData(after_columns=listed),)
    )
    header = Header(
        logfile_name="binlog.000001",
        logfile_offset=99,
        schema_name="shop",
        table_name="orders",
        event_type=EventType.INSERT,
    )
    entry = Entry(
        header=header, entry_type=EntryType.ROWDATA, store_value=encode(change)
    )
    return Message.of_entries(1, (entry,))


def mapped(into: type, message: Message | None = None) -> Any:
    """Return the row of a message as an instance of a class."""
    (change,) = (message or message_of()).changes()
    found = RowMapper(into).mapped(change)
    assert (found.kind, found.before, found.change) == ("insert", None, change)
    return found.after


@dataclass
class Order:
    """Every kind of annotation."""

    id: int
    state: State
    tags: set[str]
    total: Decimal
    ratio: float
    paid: bool
    made: dt.datetime
    day: dt.date
    at: dt.time
    note: str | None
    extra: int = 5
    kind: Literal["x"] = field(default="x")


def test_dataclass():
    """A dataclass gets its fields by name, converted by their annotations."""
    assert mapped(Order) == Order(
        id=7,
        state=State.PAID,
        tags={"a", "c"},
        total=Decimal("12.50"),
        ratio=1.0,
        paid=True,
        made=dt.datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001  # as the column
        day=dt.date(2026, 1, 2),
        at=dt.time(10, 11, 12),
        note=None,
    )


def test_typed_dict():
    """A TypedDict is a dict of its keys alone."""

    class Row(TypedDict):
        id: int
        state: Literal["new", "paid"]
        gone: NotRequired[str]

    assert mapped(Row) == {"id": 7, "state": "paid"}


def test_pydantic():
    """A pydantic model validates by its own rules."""

    class Row(pydantic.BaseModel):
        id: Annotated[int, pydantic.Field(gt=0)]
        total: Decimal
        day: dt.date
        note: str | None

    Row.model_rebuild(_types_namespace=globals())
    found = mapped(Row)
    assert (found.id, found.total, found.note) == (7, Decimal("12.50"), None)


def test_msgspec():
    """A msgspec Struct is converted by msgspec."""
    row_class = msgspec.defstruct(
        "Row", [("id", int), ("total", Decimal), ("note", str | None)]
    )
    assert mapped(row_class) == row_class(7, Decimal("12.50"), None)


def annotated(**fields: Any) -> type:
    """Return a dataclass with these annotations."""
    return dataclass(type("Row", (), {"__annotations__": fields}))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"note": str}, "column note = None: expected str, not NULL; annotate it as"),
        ({"id": str}, "column id = 7: expected str, not int"),
        ({"id": bool}, "column id = 7: expected bool, not int; a bool is 0 or 1"),
        ({"missing": int}, "it has no column missing, and the field has no default"),
        ({"state": enum.Enum("Other", ["NEW"])}, "column state = 'paid': Other has 1"),
        ({"state": Literal["new"]}, "column state = 'paid': expected one of 'new'"),
        ({"made": dt.date}, "column made = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)"),
        ({"total": int | str}, "column total = Decimal('12.50'): expected int"),
        ({"id": set[str]}, "column id = 7: expected set, not int"),
        ({"ratio": dt.time}, "column ratio = 1.0: expected time, not float"),
        ({"id": None}, "column id = 7: expected NULL"),
    ],
)
def test_a_row_that_does_not_fit(fields, problem):
    """The error names the table, the column, the value, and what was expected."""
    with pytest.raises(RowMappingError) as caught:
        mapped(annotated(**fields))
    text = str(caught.value)
    assert problem in text
    assert text.startswith("table shop.orders: a row does not fit Row: ")
    assert "(at binlog.000001:99)" in text


def test_models_that_refuse():
    """The reasons of pydantic and msgspec are passed on, in one line."""

    class Strict(pydantic.BaseModel, extra="forbid"):
        id: int

    for into in (Strict, msgspec.defstruct("Other", [("total", int)])):
        with pytest.raises(
            RowMappingError, match=r"table shop\.orders: .* does not fit"
        ):
            mapped(into)
        with pytest.raises(RowMappingError) as caught:
            mapped(into)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("into", [int, dict, str])
def test_classes_of_other_kinds(into):
    """A class of another kind is refused with those that can be used."""
    with pytest.raises(TypeError, match="expected a dataclass, a TypedDict"):
        RowMapper(into)


def test_long_values_are_cut():
    """An error does not repeat a whole document."""
    message = message_of({"id": ("text", "x" * 5000)})
    with pytest.raises(RowMappingError) as caught:
        mapped(annotated(id=int), message)
    assert len(str(caught.value)) < 400


@dataclass
class Item:
    """A row of the entries below."""

    id: int


def test_a_client_with_into(serve, instance):
    """`changes(into=)` yields rows of the class, and statements without rows."""
    instance.store.append(row(1), statement(2, "ALTER TABLE orders ADD x int"), row(3))
    client = CanalClient("127.0.0.1", serve().port, DESTINATION)
    found = []
    for each in client.changes("shop.orders", into=Item):
        found.append((each.kind, each.after))
        if each.after == Item(3):
            client.stop()
    client.close()
    assert found == [("insert", Item(1)), ("ddl", None), ("insert", Item(3))]
    with pytest.raises(ValueError, match="into needs a table"):
        next(client.changes(into=Item))
