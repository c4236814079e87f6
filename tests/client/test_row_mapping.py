"""Rows as instances of a program's own classes, and errors that say what is wrong."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import json
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from client_entries import row, statement
from fix_random import longer
from fix_server import DESTINATION

from canal_server.client import (
    AsyncCanalClient,
    CanalClient,
    MappedChange,
    Message,
    RowMapper,
    RowMappingError,
)
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

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from canal_server.client import Change
    from canal_server.client.change_reader import Kind

    Texts = dict[str, tuple[str, str | None]]  # MySQL's type and the text, by column


class State(enum.StrEnum):
    """The labels of a column."""

    NEW = "new"
    PAID = "paid"


def change_of(
    after: Texts, before: Texts | None = None, kind: EventType = EventType.INSERT
) -> Change:
    """Return a change of shop.orders."""
    rows = RowData(before_columns=columns(before or {}), after_columns=columns(after))
    header = Header(
        logfile_name="binlog.000001",
        logfile_offset=99,
        schema_name="shop",
        table_name="orders",
        event_type=kind,
    )
    entry = Entry(
        header=header,
        entry_type=EntryType.ROWDATA,
        store_value=encode(RowChange(event_type=kind, row_datas=(rows,))),
    )
    (change,) = Message.of_entries(1, (entry,)).changes()
    return change


def columns(texts: Texts) -> tuple[Column, ...]:
    """Return columns as an entry has them."""
    return tuple(
        Column(
            name=name,
            is_key=name == "id",
            is_null=text is None,
            value=text or "",
            mysql_type=mysql_type,
        )
        for name, (mysql_type, text) in texts.items()
    )


# ------------------------------------------------------------------------------
# Random rows
# ------------------------------------------------------------------------------


class Sort(NamedTuple):
    """Columns of one type: how to make a text, and what an annotation makes of it."""

    mysql_type: str
    text: Callable[[random.Random], str]
    made: dict[Any, Callable[[str], Any]]  # the value of a text, by annotation
    refused: tuple[Any, ...]  # annotations for which the value does not fit


def clock(text: str) -> dt.timedelta:
    """Return a TIME."""
    hours, minutes, seconds = map(int, text.split(":"))
    return dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)


def day(rng: random.Random) -> str:
    """Return a random DATE."""
    return f"{rng.randint(1, 9999):04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def moment(rng: random.Random) -> str:
    """Return a random DATETIME(6)."""
    return f"{day(rng)} {rng.randint(0, 23):02}:03:04.{rng.randint(0, 999999):06}"


def bits_of(text: str) -> set[str]:
    """Return the labels of a SET of a, b and c."""
    return {label for i, label in enumerate("abc") if int(text) >> i & 1}


def is_set(text: str) -> bool:
    """Return whether a flag is."""
    return text == "1"


SORTS = (
    Sort(
        "bigint",
        lambda rng: str(rng.randint(-(2**63), 2**63 - 1)),
        {int: int, float: lambda text: float(int(text)), Any: int, int | str: int},
        (str, Decimal, bytes, bool, State, Literal[True, "1"], set[str], dict, dt.date),
    ),
    Sort(
        "decimal(30,4)",
        lambda rng: f"{rng.randint(-(10**20), 10**20)}.{rng.randint(0, 9999):04}",
        {Decimal: Decimal},
        (int, float, str, dt.time),
    ),
    Sort(
        "double",
        lambda rng: repr(rng.uniform(-1e300, 1e300)).replace("e+", "E"),  # as Java
        {float: float},
        (int, Decimal, str, bool),
    ),
    Sort(
        "varchar(99)",
        lambda rng: "".join(rng.choices("ab,'\\\n \N{SNOWMAN}", k=rng.randint(0, 30))),
        {str: str, str | int: str},
        (int, float, Decimal, bytes, State, dt.datetime, dt.time, dict),
    ),
    Sort(
        "varbinary(99)",
        lambda rng: "".join(map(chr, rng.choices(range(256), k=rng.randint(0, 30)))),
        {bytes: lambda text: text.encode("latin-1")},
        (str, list, set[str], int),
    ),
    Sort("date", day, {dt.date: dt.date.fromisoformat}, (dt.datetime, str, dt.time)),
    Sort(
        "datetime(6)",
        moment,
        {dt.datetime: dt.datetime.fromisoformat},
        (dt.date, str, int, dt.timedelta),
    ),
    Sort(
        "timestamp(6)",
        moment,
        {dt.datetime: lambda text: dt.datetime.fromisoformat(f"{text}+00:00")},
        (dt.date, str),
    ),
    Sort(
        "time",
        lambda rng: f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:59",
        {dt.timedelta: clock, dt.time: dt.time.fromisoformat},
        (str, dt.datetime),
    ),
    Sort(
        "tinyint(1)",
        lambda rng: rng.choice("01"),
        {bool: is_set, int: int, Literal[0, 1]: int},
        (str, State),
    ),
    Sort(
        "enum('new','paid')",
        lambda rng: rng.choice("12"),
        {
            State: lambda text: list(State)[int(text) - 1],
            str: lambda text: ("new", "paid")[int(text) - 1],
            Literal["new", "paid"]: lambda text: ("new", "paid")[int(text) - 1],
        },
        (int, bool, Literal["old"], list),
    ),
    Sort(
        "set('a','b','c')",
        lambda rng: str(rng.randrange(8)),
        {
            set[str]: bits_of,
            frozenset[str]: lambda text: frozenset(bits_of(text)),
            set[Literal["a", "b", "c"]]: bits_of,
            str: lambda text: ",".join(sorted(bits_of(text))),
        },
        (int, bytes, dict),
    ),
    Sort(
        "json",
        lambda rng: json.dumps({"a": [rng.random(), None, str(rng.random())]}),
        {dict: json.loads, dict[str, Any]: json.loads, str: str},
        (list, set[int], int),
    ),
)
MAKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dataclass": lambda hints: make_dataclass("Row", hints.items()),
    "TypedDict": lambda hints: TypedDict("Row", hints),  # type: ignore[operator]
    "pydantic": lambda hints: pydantic.create_model(
        "Row",
        **{name: (hint, ...) for name, hint in hints.items()},  # type: ignore[call-overload]
    ),
    "msgspec": lambda hints: msgspec.defstruct("Row", hints.items()),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_random_rows(rng, kind):
    """Each field has the value and type of its annotation, in all kinds of classes."""
    for _ in range(longer(100)):
        texts: Texts = {}
        hints: dict[str, Any] = {}
        expected: dict[str, Any] = {}
        for i, sort in enumerate(rng.choices(SORTS, k=rng.randint(1, 20))):
            name = f"c{i}"
            text = sort.text(rng)
            hint, value_of = rng.choice(list(sort.made.items()))
            value = value_of(text)
            if rng.random() < 0.3:
                hint |= None
                if rng.random() < 0.5:
                    text = value = None
            texts[name] = sort.mysql_type, text
            if rng.random() < 0.9:  # the class does not have all columns
                hints[name], expected[name] = hint, value
        change = change_of(texts)
        after: Any = RowMapper(MAKERS[kind](hints)).mapped(change).after
        found = {
            name: after[name] if kind == "TypedDict" else getattr(after, name)
            for name in hints
        }
        assert found == expected
        assert {name: type(value) for name, value in found.items()} == {
            name: type(value) for name, value in expected.items()
        }


@pytest.mark.parametrize("kind", ["dataclass", "TypedDict"])
@pytest.mark.parametrize("sort", SORTS, ids=lambda sort: sort.mysql_type)
def test_random_rows_that_do_not_fit(rng, kind, sort):
    """A wrong annotation, or a NULL without an optional one, is found at the row."""
    for wrong in sort.refused:
        text = sort.text(rng)
        change = change_of({"id": ("int", "1"), "c": (sort.mysql_type, text)})
        mapper = RowMapper(MAKERS[kind]({"id": int, "c": wrong}))
        with pytest.raises(RowMappingError) as caught:
            mapper.mapped(change)
        assert change.after is not None
        shown = repr(change.after["c"])[:80]
        assert f"does not fit Row: column c = {shown}" in str(caught.value)
    for hint in sort.made:
        change = change_of({"c": (sort.mysql_type, None)})
        if hint is not Any:
            with pytest.raises(RowMappingError, match=r"column c = None: .* not NULL"):
                RowMapper(MAKERS[kind]({"c": hint})).mapped(change)


# ------------------------------------------------------------------------------
# Changes
# ------------------------------------------------------------------------------


@dataclass
class Item:
    """A row of the entries below."""

    id: int
    state: State = State.NEW


OLD: Texts = {"id": ("int", "1"), "state": ("enum('new','paid')", "1")}
NEW: Texts = {"id": ("int", "1"), "state": ("enum('new','paid')", "2")}


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (EventType.INSERT, None, Item(1, State.PAID)),
        (EventType.UPDATE, Item(1, State.NEW), Item(1, State.PAID)),
        (EventType.DELETE, Item(1, State.NEW), None),
    ],
)
def test_sides(kind, before, after):
    """Each side of a change is an instance, if the change has it."""
    change = change_of(NEW if after else {}, before=OLD if before else None, kind=kind)
    assert RowMapper(Item).mapped(change) == MappedChange(
        change.kind, before, after, change
    )


def test_the_side_that_does_not_fit():
    """An error says which side it is, where it is, and what to do."""
    old = OLD | {"state": ("text", "gone")}
    change = change_of(NEW, before=old, kind=EventType.UPDATE)
    with pytest.raises(RowMappingError) as caught:
        RowMapper(Item).mapped(change)
    assert str(caught.value) == (
        "table shop.orders: `before` of a change (update) does not fit Item: column"
        " state = 'gone': expected State, which has 'new', 'paid' (at"
        " binlog.000001:99); correct the class, or iterate without `into`"
    )


def test_renames():
    """Fields may have other names than their columns."""
    mapper = RowMapper(Item, renames={"id": "number"})
    assert mapper.mapped(change_of({"number": ("int", "1")})).after == Item(1)


def test_models_that_refuse():
    """The reasons of pydantic and msgspec are passed on, in one line."""

    class Strict(pydantic.BaseModel, extra="forbid"):
        id: int

    for into, words in (
        (Strict, "column state = 'paid': Extra inputs are not permitted"),
        (msgspec.defstruct("Other", [("id", str)]), "column id = 1: Expected `str`"),
    ):
        with pytest.raises(RowMappingError) as caught:
            RowMapper(into).mapped(change_of(NEW))
        assert f"does not fit {into.__name__}: {words}" in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", MAKERS)
def test_long_values_are_cut(kind):
    """An error does not repeat a whole document."""
    change = change_of({"id": ("text", "x" * 5000)})
    with pytest.raises(RowMappingError) as caught:
        RowMapper(MAKERS[kind]({"id": int})).mapped(change)
    assert len(str(caught.value)) < 400


# ------------------------------------------------------------------------------
# Clients
# ------------------------------------------------------------------------------

ENTRIES = (
    row(1),
    statement(2, "ALTER TABLE orders ADD x int"),
    row(3, "other"),
    row(4),
)
EXPECTED = [("insert", Item(1)), ("ddl", None), ("insert", Item(4))]


@pytest.mark.parametrize("into", [Item, RowMapper(Item)], ids=["class", "mapper"])
def test_a_client_with_into(serve, instance, into):
    """`changes(into=)` yields rows of the class, and statements without rows."""
    instance.store.append(*ENTRIES)
    client = CanalClient("127.0.0.1", serve().port, DESTINATION)
    found = []
    for each in client.changes("shop.orders", into=into):
        found.append((each.kind, each.after))
        if each.after == Item(4):
            client.stop()
    client.close()
    assert found == EXPECTED
    assert each.change.table == "orders"


async def collected(client: AsyncCanalClient) -> list[tuple[Kind, Item | None]]:
    """Return the changes up to the last of the entries."""
    found = []
    async for each in client.changes("shop.orders", into=Item):
        found.append((each.kind, each.after))
        if each.after == Item(4):
            client.stop()
    await client.close()
    return found


def test_an_async_client_with_into(serve, instance):
    """So it is with asyncio."""
    instance.store.append(*ENTRIES)
    client = AsyncCanalClient("127.0.0.1", serve().port, DESTINATION)
    assert asyncio.run(collected(client)) == EXPECTED


def test_a_row_that_does_not_fit_is_delivered_again(serve, instance):
    """The error ends the iteration, and a client with a better class continues."""
    instance.store.append(*ENTRIES)
    port = serve().port
    wrong = make_dataclass("Wrong", [("id", str)])
    with (
        CanalClient("127.0.0.1", port, DESTINATION) as client,
        pytest.raises(RowMappingError, match="column id = 1: expected str, not int"),
    ):
        list(client.changes("shop.orders", into=wrong))
    with CanalClient("127.0.0.1", port, DESTINATION) as client:
        assert next(client.changes("shop.orders", into=Item)).after == Item(1)


def test_into_needs_a_table():
    """Rows of several tables have no common class."""
    with pytest.raises(ValueError, match="into needs a table"):
        next(CanalClient().changes("", into=Item))
