"""Canal-json with one row in each message, against messages of whole entries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from client_entries import row, statement
from damaged_entries import damaged_body
from fix_random import longer
from golden_form import DATA, decode_fields, load_workload
from random_entries import random_body, random_entry
from row_rules import body_of, rows_of

from canal_server.client.frame_reader import entries_of
from canal_server.config.schema import RoutingConfig
from canal_server.errors import ProtocolError
from canal_server.protocol.entry_messages import Entry, EntryType, decode_entry
from canal_server.protocol.protobuf import encode, varint
from canal_server.queues.flat_messages import FlatMessages
from canal_server.queues.forms.flat_rows import FlatRows
from canal_server.queues.routing import Router
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    import random
    from pathlib import Path

WORKLOADS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))
PARTITIONS = 4
BATCH, NOW_MS = 7, 1_700_000_000_123
EXPRESSIONS = {"one": "", "table": r".*\..*", "key": r".*\..*:$pk$"}


def router(how: str) -> Router:
    """Return the routes of all tables."""
    return Router(
        RoutingConfig(
            topic="top", partitions=PARTITIONS, partition_hash=EXPRESSIONS[how]
        )
    )


def ours(how: str, body: bytes) -> list[tuple[Any, ...]]:
    """Return the messages of a body, with keys and tombstones."""
    form = FlatRows(router(how), has_keys=True, has_tombstones=True)
    return [each[:4] for each in form.convert(BATCH, body, NOW_MS)]


def key_of(entry: Entry, columns: dict[str, Any]) -> bytes:
    """Return a key as the documentation has it."""
    named = {"database": entry.header.schema_name, "table": entry.header.table_name}
    named |= {f"pk.{name.lower()}": value for name, value in columns.items()}
    return json.dumps(named, ensure_ascii=False, separators=(",", ":")).encode()


def plain(how: str, body: bytes) -> list[tuple[Any, ...]]:
    """Return the same, by messages of entries with one row, and the rules of keys."""
    whole = FlatMessages(router(how))
    found: list[tuple[Any, ...]] = []
    for entry in map(decode_entry, entries_of(body)):
        rows = list(rows_of(entry))
        if not rows:
            for topic, partition, value in whole.convert(BATCH, body_of(entry), NOW_MS):
                found.append((topic, partition, value, key_of(entry, {})))
        for each in rows:
            ((_, _, value),) = whole.convert(BATCH, body_of(each.entry), NOW_MS)
            deleted = each.is_deleted
            old = each.texts(old=True)
            there = each.partition(how, PARTITIONS, old=True)
            here = each.partition(how, PARTITIONS, old=deleted)
            key = key_of(entry, each.texts(old=deleted)) if old else None
            if each.moved:
                found.append(("top", there, None, key_of(entry, old)))
            found.append(("top", here, value, key))
            if deleted and key:
                found.append(("top", here, None, key))
    return found


@pytest.mark.parametrize("name", WORKLOADS)
def test_recorded(name: str, tmp_path: Path) -> None:
    """Of all recorded workloads: bytes, keys, tombstones and partitions."""
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
        try:
            found = ours("key", damaged_body(rng, entries))
        except ProtocolError:
            refused += 1
        else:
            for _, _, value, key in found:
                json.loads(value or "{}")
                json.loads(key or "{}")
    assert refused


def test_headers(rng: random.Random) -> None:
    """Where the row is in the binlog, and its transaction if the batch has its end."""
    form = FlatRows(lambda *_: Route("x"), has_headers=True)
    entries = [row(1), row(2), row(3), statement(2, "ALTER TABLE t ADD a INT")]
    body = b"".join(b"\x12" + varint(len(each)) + each for each in entries)
    found = form.convert(1, body, 2)
    assert [each[3] for each in found] == [None] * 4
    headers = [dict(each[4] or ()) for each in found]
    header = decode_entry(entries[0]).header
    position = f"{header.logfile_name}:{header.logfile_offset}"
    assert headers[0]["canal.position"] == position.encode()
    assert headers[0]["canal.server_id"] == str(header.server_id).encode()
    assert "canal.xid" not in headers[0]
    for _ in range(longer(100)):
        body = random_body(rng, 12, has_markers=True)
        expected = [
            xid
            for entry, xid in with_xids(body)
            for _ in range(max(1, len(list(rows_of(entry)))))
        ]
        found = form.convert(1, body, 2)
        assert [dict(each[4] or ()).get("canal.xid") for each in found] == expected


def with_xids(body: bytes) -> list[tuple[Entry, bytes | None]]:
    """Return the entries that are sent, with the transactions that end after them."""
    found: list[tuple[Entry, bytes | None]] = []
    xid: bytes | None = None
    for entry in reversed(list(map(decode_entry, entries_of(body)))):
        if entry.entry_type is EntryType.TRANSACTIONEND:
            text = entry.transaction_end().transaction_id
            xid = None if text == "0" else text.encode()
        elif entry.entry_type is EntryType.TRANSACTIONBEGIN:
            xid = None
        else:
            found.append((entry, xid))
    return found[::-1]
