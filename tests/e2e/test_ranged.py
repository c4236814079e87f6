"""Ranged reads of a whole server, from memory and of the source again."""

from __future__ import annotations

import contextlib

import pytest
from fix_pipeline import DESTINATION, UNIT_S

from canal_server.client.ranged import RangedClient
from canal_server.errors import ClientError
from canal_server.protocol.entries import Entry, EntryType, EventType, decode_entry
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode

NAME = "lake"
WAIT_MS = int(UNIT_S * 3000)


@pytest.fixture
def ranged(pipeline):
    """Give a connected client of ranged reads."""
    with ranged_client(pipeline) as client:
        yield client


def ranged_client(pipeline):
    """Return a client of ranged reads."""
    return RangedClient("127.0.0.1", pipeline.server_port, timeout_s=3 * UNIT_S)


def read(client, start, end, name=NAME, **options):
    """Return the serialized entries of a range."""
    found = []
    for piece in client.read(DESTINATION, name, start, end, **options):
        found += decode(Messages, bytes(piece)).messages
    return found


def told(entries):
    """Return the kind, the table and the values of each entry, rows one by one."""
    found: list[tuple[str | None, ...]] = []
    for entry in map(decode_entry, entries):
        if entry.entry_type != EntryType.ROWDATA:
            found.append((f"TRANSACTION {entry.entry_type}",))
            continue
        change = entry.row_change()
        if change.is_ddl:
            found.append((change.sql,))
        found += [
            (entry.header.table_name, *(row.after or row.before).values())
            for row in change.row_datas
        ]
    return found


def rows_of(entries):
    """Return the rows and statements alone."""
    return [
        each for each in told(entries) if not str(each[0]).startswith("TRANSACTION")
    ]


def head(client, start, **options):
    """Return the ends of the next batch, which must come."""
    ends = client.head(DESTINATION, NAME, start, **({"wait_ms": WAIT_MS} | options))
    assert ends.end != start, f"nothing came behind {start}"
    return ends


def changes(pipeline, client, count):
    """Return so many entries that an ordinary client gets, but for texts of rows."""
    found: list[Entry] = []
    for message in pipeline.messages(client):
        found += (
            entry
            for entry in message.entries
            if entry.entry_type == EntryType.ROWDATA
            and entry.header.event_type != EventType.QUERY
        )
        if len(found) >= count:
            return found
    raise AssertionError("messages never end")


def looks(pipeline):
    """Return how often memory answered, and the binlog was read."""
    ranges = pipeline.status()["ranges"]
    return ranges["from_memory"], ranges["from_binlog"]


def test_a_first_batch(pipeline, ranged):
    """What is written behind a new cursor comes, once acked not again."""
    table = f"{pipeline.schema}.t"
    pipeline.source.execute(f"CREATE TABLE {table} (a INT PRIMARY KEY, b TEXT)")
    subscribed = ranged.subscribe(DESTINATION, NAME)
    assert subscribed.created
    at = subscribed.cursor
    pipeline.source.execute(f"INSERT INTO {table} VALUES (1, 'x'), (2, NULL)")
    ends = head(ranged, at)
    assert ends.rows == 2
    entries = read(ranged, at, ends.end)
    assert rows_of(entries) == [("t", "1", "x"), ("t", "2", None)]
    assert sum(map(len, entries)) < ends.bytes
    again = ranged.subscribe(DESTINATION, NAME)
    assert (again.created, again.cursor) == (False, at)
    ranged.ack(DESTINATION, NAME, ends.end)
    ranged.ack(DESTINATION, NAME, at)
    assert ranged.subscribe(DESTINATION, NAME).cursor == ends.end
    idle = ranged.head(DESTINATION, NAME, ends.end)
    assert (idle.end, idle.rows) == (ends.end, 0)


def test_memory_and_binlog_give_the_same(pipeline, ranged):
    """A range is the same from memory, of the source again, and for other clients."""
    table = f"{pipeline.schema}.t"
    with pipeline.client() as ordinary:
        pipeline.source.execute(f"CREATE TABLE {table} (a INT PRIMARY KEY, b TEXT)")
        at = ranged.subscribe(DESTINATION, NAME).cursor
        pipeline.source.execute(f"INSERT INTO {table} VALUES (0, 'first')")
        at = head(ranged, at).end
        for n in range(1, 30):
            pipeline.source.execute(
                "BEGIN",
                f"INSERT INTO {table} VALUES ({n}, 'x')",
                f"UPDATE {table} SET b = 'y' WHERE a = {n}",
                "COMMIT",
            )
        last = at
        while True:
            ends = ranged.head(DESTINATION, NAME, last, wait_ms=500)
            if ends.end == last:
                break
            last = ends.end
        memory, binlog = looks(pipeline)
        hot = read(ranged, at, last)
        assert looks(pipeline) == (memory + 1, binlog)
        assert len(rows_of(hot)) == 58
        own = rf"{pipeline.schema}\..*"
        assert read(ranged, at, last, name="", filter=own) == hot
        assert looks(pipeline) == (memory + 1, binlog + 1)
        assert read(ranged, at, last) == hot
        ordinarily = changes(pipeline, ordinary, 60)
    pipeline.stop()
    pipeline.start()
    with ranged_client(pipeline) as other:
        assert read(other, at, last) == hot
    decoded = map(decode_entry, hot)
    assert [e for e in decoded if e.entry_type == EntryType.ROWDATA] == ordinarily[-58:]


def test_refusals_leave_the_connection(pipeline, ranged):
    """What is wrong is told with its code, and the next request is answered."""
    at = ranged.subscribe(DESTINATION, NAME).cursor
    with pytest.raises(ClientError, match="no subscription") as refused:
        ranged.head(DESTINATION, "other", at)
    assert refused.value.code == 404
    with contextlib.suppress(ClientError):
        ranged.unsubscribe(DESTINATION, "other")
    assert ranged.subscribe(DESTINATION, NAME).cursor == at
