"""Ranged reads of a whole server, from memory and of the source again."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
from fix_pipeline import DESTINATION, UNIT_S
from fix_store import in_thread

from canal_server.client.range_client import RangedClient
from canal_server.errors import ClientError
from canal_server.model.positions import binlog_file_number
from canal_server.protocol.entry_messages import (
    Entry,
    EntryType,
    EventType,
    decode_entry,
)
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode
from canal_server.protocol.range_messages import NOT_HERE, RangePosition
from canal_server.ranges.range_access import DUMPS_MAX

NAME = "lake"
WAIT_MS = int(UNIT_S * 3000)
ASKED = 30  # times
COMMIT_BYTES_MAX = 31  # of its event, with a checksum
# More than the buffers of a connection hold.
LARGE_ROWS = 12
LARGE_ROW_BYTES = 1 << 20
STALLED_BUFFER = 64 << 10


@pytest.fixture
def ranged(pipeline):
    """Give a connected client of ranged reads."""
    with ranged_client(pipeline) as client:
        yield client


def ranged_client(pipeline):
    """Return a client of ranged reads."""
    return RangedClient("127.0.0.1", pipeline.server_port, timeout_s=3 * UNIT_S)


def read(client, start, end, *, name=NAME, **options):
    """Return the serialized entries of a range."""
    found: list[bytes] = []
    for piece in client.read(DESTINATION, name, start, end, **options):
        found += decode(Messages, bytes(piece)).messages
    return found


def plain(entries):
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
        each for each in plain(entries) if not str(each[0]).startswith("TRANSACTION")
    ]


def head(client, start, **options):
    """Return the ends of the next batch, which must come."""
    ends = client.head(DESTINATION, NAME, start, **({"wait_ms": WAIT_MS} | options))
    assert ends.end != start, f"nothing arrived after {start}"
    return ends


def until(client, start, rows):
    """Return the end of a range with so many rows and statements."""
    found = 0
    while found < rows:
        ends = head(client, start)
        found, start = found + ends.rows, ends.end
    assert found == rows
    return start


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


def wait_for_memory(pipeline, position):
    """Wait until memory has the COMMIT that ends at a position; a head may be ahead."""

    def has_it(status):
        file, _, offset = status["position"].partition(":")
        reached = binlog_file_number(file), int(offset)
        expected = (
            binlog_file_number(position.journal),
            position.position - COMMIT_BYTES_MAX,
        )
        return reached >= expected

    pipeline.wait_for_status(has_it)


def stall(pipeline, stack, start, end, **options):
    """Begin to read a range, and take nothing after the first piece; returns the rest.

    The reader has its turn then, and what is left does not fit into any buffer.
    """
    client = stack.enter_context(ranged_client(pipeline))
    client._link._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STALLED_BUFFER)
    pieces = client.read(DESTINATION, start=start, end=end, **options)
    next(pieces)
    return pieces


def test_a_first_batch(pipeline, ranged):
    """What is written after a new cursor comes, once acked not again."""
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
    lengths = [decode_entry(entry).header.event_length for entry in entries]
    assert sum(lengths) == ends.bytes
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
        last = until(ranged, at, 58)
        wait_for_memory(pipeline, last)
        memory, binlog = looks(pipeline)
        hot = read(ranged, at, last)
        assert looks(pipeline) == (memory + 1, binlog)
        assert len(rows_of(hot)) == 58
        own = rf"{pipeline.schema}\..*"
        assert read(ranged, at, last, name="", filter=own) == hot
        assert looks(pipeline) == (memory + 1, binlog + 1)
        assert read(ranged, at, last) == hot
        ordinarily = changes(pipeline, ordinary, 60)
    decoded = map(decode_entry, hot)
    assert [e for e in decoded if e.entry_type == EntryType.ROWDATA] == ordinarily[-58:]


def test_one_query_at_a_time(pipeline, ranged):
    """A query has its subscription until its connection ends; errors end none."""
    at = ranged.subscribe(DESTINATION, NAME).cursor
    ranged.head(DESTINATION, NAME, at, query="one")
    with ranged_client(pipeline) as other:
        with pytest.raises(ClientError, match="another query"):
            other.head(DESTINATION, NAME, at, query="two")
        with pytest.raises(ClientError, match="no subscription") as refused:
            other.head(DESTINATION, "other", at)
        assert refused.value.code == 404
        with pytest.raises(ClientError, match="invalid range"):
            list(other.read(DESTINATION, NAME, at, RangePosition(0, at.journal, 4)))
        link = other._link
        assert other.subscribe(DESTINATION, NAME).cursor == at
        assert other._link is link

        table = f"{pipeline.schema}.t"
        pipeline.source.execute(
            f"CREATE TABLE {table} (a INT)", f"INSERT INTO {table} VALUES (1)"
        )
        end = head(ranged, at, query="one").end
        # A read that is given up ends its connection; the next request has another.
        given_up = other.read(DESTINATION, NAME, at, end)
        next(given_up)
        given_up.close()
        assert other._link is None
        assert len(rows_of(read(other, at, end))) >= 1

        ranged.close()
        give_up_at = time.monotonic() + 3 * UNIT_S
        while True:
            with contextlib.suppress(ClientError):
                other.head(DESTINATION, NAME, at, query="two")
                return
            assert time.monotonic() < give_up_at, "the first query keeps it"


def test_columns_of_now_while_others_write(pipeline, ranged) -> None:
    """What a table is can be asked at any time, however fast the binlog grows."""
    source, schema = pipeline.source, pipeline.schema
    source.execute(
        f"CREATE TABLE {schema}.busy (id INT AUTO_INCREMENT PRIMARY KEY, a CHAR(200))",
        f"CREATE TABLE {schema}.calm (a INT)",
    )
    enough = threading.Event()

    def write():
        with source.connect(database=schema) as connection:
            while not enough.is_set():
                connection.cursor().execute("INSERT INTO busy (a) VALUES ('x')")
                connection.commit()

    writing = in_thread(write)
    try:
        for _ in range(ASKED):
            found = ranged.schema(DESTINATION, schema, "calm")
            assert [each.name for each in found.columns] == ["a"]
    finally:
        enough.set()
        writing.result(WAIT_MS / 1000)


def test_acks_outlive_a_crash(pipeline, ranged):
    """What was acked is acked after SIGKILL, and ranges read as they did."""
    table = f"{pipeline.schema}.t"
    pipeline.source.execute(f"CREATE TABLE {table} (a INT PRIMARY KEY)")
    at = ranged.subscribe(DESTINATION, NAME).cursor
    positions = [at]
    for n in range(3):
        pipeline.source.execute(f"INSERT INTO {table} VALUES ({n})")
        positions.append(head(ranged, positions[-1]).end)
    entries = read(ranged, positions[0], positions[3])
    ranged.head(DESTINATION, NAME, positions[1], ack=True)
    ranged.ack(DESTINATION, NAME, positions[2])
    pipeline.kill()
    pipeline.start()
    with ranged_client(pipeline) as again:
        found = again.subscribe(DESTINATION, NAME)
        assert (found.cursor, found.created) == (positions[2], False)
        assert read(again, positions[0], positions[3]) == entries
        assert head(again, positions[2]).end == positions[3]
        waiting = in_thread(
            again.head, DESTINATION, NAME, positions[3], wait_ms=10 * WAIT_MS
        )
        pipeline.stop()
        with pytest.raises((ClientError, OSError)):
            waiting.result(3 * UNIT_S)


@pytest.mark.parametrize("kept_in", ["memory", "binlog"])
def test_stalled_readers_do_not_hold_up_others(pipeline, kept_in):
    """With every turn held by who reads nothing, another reader gets its range."""
    table = f"{pipeline.schema}.t"
    pipeline.source.execute(f"CREATE TABLE {table} (a INT PRIMARY KEY, b LONGBLOB)")
    options = {
        # A read with a filter of its own is never answered from memory.
        "memory": {"name": NAME},
        "binlog": {"name": "", "filter": rf"{pipeline.schema}\..*"},
    }[kept_in]
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(ranged_client(pipeline))
        start = reader.subscribe(DESTINATION, NAME).cursor
        # Memory answers from after what was there when the subscription arrived.
        pipeline.source.execute(f"INSERT INTO {table} VALUES (-1, '')")
        start = head(reader, start).end
        for n in range(LARGE_ROWS):
            pipeline.source.execute(
                f"INSERT INTO {table} VALUES ({n}, REPEAT('x', {LARGE_ROW_BYTES}))"
            )
        end = until(reader, start, LARGE_ROWS)
        wait_for_memory(pipeline, end)
        expected = read(reader, start, end)
        stalled = [
            stall(pipeline, stack, start, end, **options) for _ in range(DUMPS_MAX)
        ]
        before = pipeline.status()["ranges"]
        assert read(reader, start, end, **options) == expected
        after = pipeline.status()["ranges"]
        assert after[f"from_{kept_in}"] > before[f"from_{kept_in}"]
        pipeline.process.wait_for_log("closed the connection of a reader")
        # Who was cut off sees it, and may read the range again.
        with pytest.raises(ConnectionError):
            list(stalled[0])
        again = stack.enter_context(ranged_client(pipeline))
        assert read(again, start, end, **options) == expected


def test_another_server_goes_on(cluster):
    """In a cluster the cursor is there on the next server, and ranges are the same."""
    one, two = cluster.one, cluster.two
    table = f"{one.schema}.t"
    one.source.execute(f"CREATE TABLE {table} (a INT PRIMARY KEY)")
    with ranged_client(one) as first, ranged_client(two) as second:
        at = first.subscribe(DESTINATION, NAME).cursor
        with pytest.raises(ClientError) as refused:
            second.subscribe(DESTINATION, NAME)
        assert refused.value.code == NOT_HERE
        one.source.execute(f"INSERT INTO {table} VALUES (1)")
        middle = head(first, at).end
        one.source.execute(f"ALTER TABLE {table} ADD COLUMN b INT")
        one.source.execute(f"INSERT INTO {table} VALUES (2, 3)")
        end = until(first, middle, 2)
        entries = read(first, at, end)
        first.head(DESTINATION, NAME, middle, ack=True)
        one.kill()
        give_up_at = time.monotonic() + 6 * UNIT_S
        while True:
            try:
                found = second.subscribe(DESTINATION, NAME)
                break
            except ClientError as error:
                assert error.code == NOT_HERE, error  # noqa: PT017
                assert time.monotonic() < give_up_at, "nobody takes over"
        assert (found.cursor, found.created) == (middle, False)
        assert read(second, at, end) == entries
        assert rows_of(entries)[-1] == ("t", "2", "3")
        assert head(second, middle).end.position > middle.position
