"""Flat messages, against the same rules in plain Python."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from client_entries import row, statement
from damaged_entries import damaged_body
from fix_random import longer
from golden_form import DATA, decode_fields, load_workload
from java_hashes import java_hash, partition_of
from random_entries import random_body, random_entry

from canal_server.client.frame_reader import entries_of
from canal_server.config.schema import RoutingConfig
from canal_server.errors import ProtocolError
from canal_server.model.entry import EntryType, EventType
from canal_server.protocol.entry_messages import Entry, decode_entry
from canal_server.protocol.protobuf import encode, varint
from canal_server.queues.flat_messages import FlatMessages
from canal_server.queues.routing import Router
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    import random
    from pathlib import Path

WORKLOADS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))
ROWS = (EventType.INSERT, EventType.UPDATE, EventType.DELETE)
PARTITIONS = 4
BATCH, NOW_MS = 7, 1_700_000_000_123


class Plain:
    """The rules, an object a column."""

    def __init__(self, how: str) -> None:
        self.how = how  # by what rows are hashed: nothing, table, key, columns

    def messages(self, entry: Entry) -> list[tuple[str, int, bytes]]:
        """Return the messages of an entry."""
        if entry.entry_type is not EntryType.ROWDATA:
            return []
        change = entry.row_change()
        kind = EventType(change.event_type or EventType.UPDATE)
        rows = change.row_datas if kind in ROWS and not change.is_ddl else ()
        sql_types: dict[str, int] = {}
        mysql_types: dict[str, str] = {}
        updated: set[str] = set()
        keys: list[str] = []
        parts: dict[int, tuple[list[Any], list[Any]]] = {}
        for number, each in enumerate(rows):
            columns = (
                each.before_columns if kind is EventType.DELETE else each.after_columns
            )
            for column in columns:
                sql_types[column.name] = column.sql_type
                mysql_types[column.name] = column.mysql_type
                if column.updated:
                    updated.add(column.name)
                if number == 0 and column.is_key:
                    keys.append(column.name)
            data = {c.name: None if c.is_null else c.value for c in columns}
            old = {
                c.name: None if c.is_null else c.value
                for c in each.before_columns
                if c.name in updated
            }
            part = parts.setdefault(self.partition(entry, data, keys), ([], []))
            part[0].append(data)
            part[1].append(old)
        shared: dict[str, Any] = {
            "database": entry.header.schema_name,
            "es": entry.header.execute_time,
            "gtid": entry.header.gtid,
            "id": BATCH,
            "isDdl": bool(change.is_ddl),
            "mysqlType": mysql_types or None,
            "pkNames": keys or None,
            "sql": change.sql,
            "sqlType": sql_types or None,
            "table": entry.header.table_name,
            "ts": NOW_MS,
            "type": kind.name,
        }
        found = []
        for partition, (rows_, olds) in sorted(parts.items() or [(0, ([], []))]):
            own = {"data": rows_ or None}
            own["old"] = olds if rows_ and kind is EventType.UPDATE else None
            text = json.dumps(
                dict(sorted((shared | own).items())),
                ensure_ascii=False,
                separators=(",", ":"),
            )
            found.append(("top", partition, text.encode()))
        return found

    def partition(self, entry: Entry, data: dict[str, Any], keys: list[str]) -> int:
        """Return where a row goes."""
        if not self.how:
            return 0
        if self.how == "table":
            return partition_of(java_hash(entry.header.table_name), PARTITIONS)
        hashed = java_hash(entry.header.schema_name)
        for name, value in data.items():
            if name in keys if self.how == "key" else name.lower() in _NAMED:
                hashed ^= java_hash(value or "")
        return partition_of(hashed, PARTITIONS)


_NAMED = ("id0", "v1")  # in any case
EXPRESSIONS = {
    "": "",
    "table": r".*\..*",
    "key": r".*\..*:$pk$",
    "columns": r".*\..*:id0^V1",
}


def ours(how: str, body: bytes) -> list[tuple[str, int, bytes]]:
    """Return the messages of a body."""
    settings = RoutingConfig(
        topic="top", partitions=PARTITIONS, partition_hash=EXPRESSIONS[how]
    )
    return FlatMessages(Router(settings)).convert(BATCH, body, NOW_MS)


def plain(how: str, body: bytes) -> list[tuple[str, int, bytes]]:
    """Return the same, made by the rules."""
    rules = Plain(how)
    return [
        message
        for entry in map(decode_entry, entries_of(body))
        for message in rules.messages(entry)
    ]


@pytest.mark.parametrize("name", WORKLOADS)
def test_recorded(name: str, tmp_path: Path) -> None:
    """Of all recorded workloads: the bytes and partitions of the rules."""
    body = decode_fields(load_workload(name), tmp_path)
    for how in EXPRESSIONS:
        assert ours(how, body) == plain(how, body)


@pytest.mark.parametrize("how", EXPRESSIONS)
def test_random(rng: random.Random, how: str) -> None:
    """Of all letters, NULLs, partial images and kinds of entries."""
    for _ in range(longer(200)):
        body = random_body(rng, 3)
        assert ours(how, body) == plain(how, body)


def test_damaged(rng: random.Random) -> None:
    """Whatever the bytes are, there are messages or a ProtocolError."""
    refused = 0
    entries = [encode(random_entry(rng)) for _ in range(40)]
    for _ in range(longer(2_000)):
        body = damaged_body(rng, entries)
        try:
            found = ours("key", body)
        except ProtocolError:
            refused += 1
        else:
            for _, _, value in found:
                json.loads(value)
    assert refused


def test_statements() -> None:
    """A statement has no rows, and its text."""
    entries = [row(1), statement(2, "ALTER TABLE t ADD a INT")]
    body = b"".join(b"\x12" + varint(len(each)) + each for each in entries)
    (_, _, first), (_, _, second) = FlatMessages(lambda *_: Route("x")).convert(
        1, body, 2
    )
    assert json.loads(first)["data"] == [{"id": "1"}]
    assert json.loads(first)["pkNames"] == ["id"]
    assert json.loads(second)["data"] is None
    assert json.loads(second)["sql"] == "ALTER TABLE t ADD a INT"
    assert json.loads(second)["isDdl"] is True


def test_routes_are_asked_for_once() -> None:
    """However many entries a table has."""
    asked: list[tuple[str, str]] = []

    def route_of(schema: str, table: str) -> Route:
        asked.append((schema, table))
        return Route(f"{schema}-{table}", partition=3)

    entries = [row(1), row(2, "items"), row(3)]
    body = b"".join(b"\x12" + varint(len(each)) + each for each in entries)
    messages = FlatMessages(route_of)
    found = messages.convert(1, body, 2) + messages.convert(2, body, 2)
    assert [each[:2] for each in found[:3]] == [
        ("shop-orders", 3), ("shop-items", 3), ("shop-orders", 3),
    ]  # fmt: skip
    assert asked == [("shop", "orders"), ("shop", "items")]
