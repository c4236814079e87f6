"""Messages in the JSON of Maxwell, read as its documentation has it."""

from __future__ import annotations

import json
import os
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from client_entries import row, statement
from damaged_entries import damaged_body
from fix_random import longer
from form_truth import (
    fold,
    in_order,
    of_maxwell,
    of_wkt,
    text_of_geometry,
    truth,
    word_of,
)
from random_entries import random_entry
from random_reading import random_load
from row_rules import body_of, end_entry, table_entry

from canal_server.decoder.text.time_zone import read_zone
from canal_server.errors import ProtocolError
from canal_server.protocol.entry_messages import decode_entry
from canal_server.protocol.protobuf import encode, varint
from canal_server.queues.forms.maxwell_rows import MaxwellRows
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from random_schema import RandomTable

ALL = (
    "binlog_position", "gtid_position", "server_id", "primary_keys",
    "primary_key_columns", "ddl",
)  # fmt: skip


def made(body: bytes, **options: Any) -> list[dict[str, Any]]:
    """Return the messages of a body."""
    form = MaxwellRows(lambda *_: Route("x"), **options)
    return [json.loads(each[2] or b"{}") for each in form.convert(1, body, 2)]


def test_random(source_server: Any, database: str, rng: random.Random) -> None:
    """Rows of all types are what SELECT shows, after all changes."""
    load, reading = random_load(source_server, database, rng, images=("FULL",))
    form = MaxwellRows(lambda *_: Route("x"), has_keys=True)
    tables = {table.name: table for table in load.tables}
    changes: list[tuple[str, Any, Any]] = []
    for _, _, value, key, _ in form.convert(1, reading.body, 0):
        assert value is not None
        # Numbers as they are written; those in documents are read again below.
        message = json.loads(value, parse_float=Decimal)
        if message["table"] not in tables:
            continue
        table = tables[message["table"]]
        assert (key is not None) == bool(table.key)
        before: Any
        after: Any = values_of(table, message["data"])
        before = after | values_of(table, message.get("old", {}))
        if message["type"] == "insert":
            before = None
        elif message["type"] == "delete":
            after = None
        changes.append((table.name, before, after))
    found, expected = fold(load.tables, changes), truth(load)
    for name, table in tables.items():
        for each in expected[name]:
            for column in table.columns:
                if word_of(column) == "geometry" and each[column.name] is not None:
                    each[column.name] = text_of_geometry(each[column.name])
                elif word_of(column) == "enum" and each[column.name] is None:
                    each[column.name] = ""  # null is either
        assert in_order(found[name]) == in_order(expected[name])


def values_of(table: RandomTable, data: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row."""
    found = {}
    for column in table.columns:
        if column.name in data:
            word, value = word_of(column), data[column.name]
            if word == "json" and column.kind.normal is not str:
                value = with_floats(value)
            elif word == "geometry" and value is not None:
                value = of_wkt(value)
            found[column.name] = of_maxwell(word, column.kind.definition, value)
    return found


def with_floats(value: Any) -> Any:
    """Return a document whose numbers with a fraction are those of Python."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [with_floats(each) for each in value]
    if isinstance(value, dict):
        return {key: with_floats(each) for key, each in value.items()}
    return value


def test_transactions() -> None:
    """The last row of a transaction has `commit`, all of them its number."""
    one = table_entry({"id": ("int", "1")})
    body = body_of(one, one, end_entry("71"), one, end_entry("0"), one)
    found = [(each.get("xid"), each.get("commit")) for each in made(body)]
    # 0 is no number of a transaction, and the end of the last one is not there.
    assert found == [(71, None), (71, True), (None, True), (None, None)]


def test_fields() -> None:
    """What is asked for is there, in the order that Maxwell has."""
    entry = row(1)
    body = b"\x12" + varint(len(entry)) + entry
    (message,) = made(body, output=ALL)
    assert list(message) == [
        "database", "table", "type", "ts", "position", "gtid", "server_id",
        "primary_key", "primary_key_columns", "data",
    ]  # fmt: skip
    header = decode_entry(entry).header
    assert message["position"] == f"{header.logfile_name}:{header.logfile_offset}"
    assert message["primary_key_columns"] == ["id"]
    assert list(made(body)[0]) == ["database", "table", "type", "ts", "data"]


def test_statements() -> None:
    """They are sent if that is asked for."""
    entry = statement(2, "ALTER TABLE t ADD a INT")
    body = b"\x12" + varint(len(entry)) + entry
    assert made(body) == []
    (message,) = made(body, output=["ddl"])
    assert message["type"] == "table-alter"
    assert message["sql"] == "ALTER TABLE t ADD a INT"


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the process in another zone."""
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    read_zone()
    yield
    if before is None:
        monkeypatch.delenv("TZ")
    else:
        monkeypatch.setenv("TZ", before)
    time.tzset()
    read_zone()


@pytest.mark.usefixtures("berlin")
def test_zones(rng: random.Random) -> None:
    """A TIMESTAMP is in UTC, also if the server is in another zone."""
    entry = table_entry({"t": ("timestamp(3)", "2026-07-01 12:00:00.250")})
    (message,) = made(body_of(entry))
    assert message["data"] == {"t": "2026-07-01 10:00:00.250"}
    entry = table_entry({"t": ("timestamp", "2026-01-01 00:30:00")})
    (message,) = made(body_of(entry))
    assert message["data"] == {"t": "2025-12-31 23:30:00"}


@pytest.mark.parametrize(
    ("mysql_type", "text"), [("enum('a')", "2"), ("set('a')", "2"), ("geometry", "")]
)
def test_values_that_a_type_does_not_have(mysql_type: str, text: str) -> None:
    """They are null."""
    body = body_of(table_entry({"id": ("int", "1"), "a": (mysql_type, text)}))
    (message,) = made(body)
    assert message["data"] == {"id": 1, "a": None}


def test_wide_decimals() -> None:
    """A DECIMAL may have more digits than its type."""
    columns = {"a": ("decimal(3,1)", "12345"), "b": ("decimal(3,0)", "1.25")}
    form = MaxwellRows(lambda *_: Route("x"))
    ((_, _, value, _, _),) = form.convert(1, body_of(table_entry(columns)), 2)
    assert b'"data":{"a":12345.0,"b":1.25}' in (value or b"")


def test_values_that_cannot_be_sent() -> None:
    """The error names column, type and position, but not the value."""
    entry = table_entry({"id": ("int", "1"), "a": ("int", "secret")})
    with pytest.raises(ProtocolError) as caught:
        made(body_of(entry))
    assert str(caught.value) == (
        "column shop.orders.a of type int: its messages cannot have a value that does"
        " not match the type (at binlog.000001:4711)"
    )


def test_damaged(rng: random.Random) -> None:
    """Whatever the bytes are, there are messages or a ProtocolError."""
    refused = 0
    entries = [encode(random_entry(rng)) for _ in range(40)]
    for _ in range(longer(2_000)):
        try:
            made(damaged_body(rng, entries), output=ALL, has_keys=True)
        except ProtocolError:
            refused += 1
    assert refused
