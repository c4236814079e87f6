"""Ranged reads of an instance: from memory or the binlog, cut and repeated."""

from __future__ import annotations

import itertools
import socket
import time

import pytest
from fix_random import longer
from fix_ranged import NAME, rows_of
from fix_source_access import PATIENCE_S
from fix_store import in_thread
from random_schema import RandomLoad

from canal_server.errors import ClientError
from canal_server.model.identity import ClientIdentity
from canal_server.model.ranges import EpochPosition, RangeLimits
from canal_server.protocol.entry_messages import EntryType, decode_entry
from canal_server.protocol.range_messages import IN_USE
from canal_server.ranges import range_heads
from canal_server.ranges.range_source import CUT_ROWS


@pytest.fixture
def table(source_server, database):
    """Yield the name of a table with a key of integers."""
    name = f"{database}.t"
    source_server.execute(f"CREATE TABLE {name} (a INT PRIMARY KEY)")
    return name


def joined(lists):
    """Return the items of lists one after the other."""
    return list(itertools.chain.from_iterable(lists))


def test_the_same_from_memory_and_binlog(make_lake, source_server, table):
    """A range has the same entries wherever it is read; its parts are the whole."""
    lake = make_lake(source_server)
    start = lake.warm(source_server, table)
    positions = [start]
    for n in range(5):
        source_server.execute(
            "BEGIN",
            *(f"INSERT INTO {table} VALUES ({10 * n + k})" for k in range(3)),
            f"DELETE FROM {table} WHERE a = {10 * n}",
            "COMMIT",
        )
        positions.append(lake.until(positions[-1], 4))
    whole = lake.read_memory(start, positions[-1])
    assert lake.read_again(start, positions[-1]) == whole
    assert len(rows_of(whole)) == 20
    pieces = [lake.read_memory(*ends) for ends in itertools.pairwise(positions)]
    assert joined(pieces) == whole
    again = [lake.read_again(*ends) for ends in itertools.pairwise(positions)]
    assert again == pieces


def test_columns_are_those_of_the_position(make_lake, source_server, table, database):
    """A range over DDL has the columns of each position, from memory and read again."""
    lake = make_lake(source_server)
    start = lake.warm(source_server, table)
    source_server.execute(
        f"INSERT INTO {table} VALUES (1)",
        f"ALTER TABLE {table} ADD COLUMN b VARCHAR(9) DEFAULT 'x'",
        f"INSERT INTO {table} VALUES (2, 'two')",
        f"ALTER TABLE {table} CHANGE b c VARCHAR(9), ADD COLUMN d INT FIRST",
        f"INSERT INTO {table} VALUES (7, 3, 'three')",
    )
    middle = lake.until(start, 5)
    source_server.execute(f"DROP TABLE {table}")
    end = lake.until(middle, 1)
    hot = lake.read_memory(start, end)
    cold = lake.read_again(start, end)
    rows = [row for row in rows_of(cold) if row[0] == "t"]
    assert rows == [
        ("t", "a", "1"),
        ("t", "a", "2", "b", "two"),
        ("t", "d", "7", "a", "3", "c", "three"),
    ]
    assert cold == hot
    # Another process finds the same, with the table dropped.
    restarted = make_lake(source_server)
    assert restarted.read_again(start, end) == hot
    before = restarted.ranges.columns(database, "t", start)
    assert [each.name for each in before.columns] == ["a"]
    then = restarted.ranges.columns(database, "t", middle)
    assert [each.name for each in then.columns] == ["d", "a", "c"]
    assert [each.is_key for each in then.columns] == [False, True, False]
    assert restarted.ranges.columns(database, "t", None) is None


def test_columns_while_nothing_changes(make_lake, source_server, table, database):
    """Repeated look-ups of a table do not query the source, until a DDL.

    This holds up to where the pump has read; after that there may be a DDL.
    """
    lake = make_lake(source_server)
    first = lake.warm(source_server, table)
    source_server.execute(f"INSERT INTO {table} VALUES (1)")
    second = lake.until(first, 1)
    lake.wait_for_memory(second)

    def names(position):
        before = lake.looks()[1]
        found = lake.ranges.columns(database, "t", position)
        return [each.name for each in found.columns], lake.looks()[1] - before

    assert names(first) == (["a"], 1)
    assert names(second) == names(first) == (["a"], 0)
    assert lake.ranges.columns(database, "other", second) is None
    source_server.execute(
        f"ALTER TABLE {table} ADD COLUMN b INT", f"INSERT INTO {table} VALUES (2, 2)"
    )
    third = lake.until(second, 2)
    lake.wait_for_memory(third)
    assert names(third) == (["a", "b"], 1)
    assert names(third) == (["a", "b"], 0)
    assert names(second)[0] == ["a"]
    assert names(None) == (["a", "b"], 1)


def test_columns_of_many_tables_and_positions(
    make_lake, source_server, table, database, rng
):
    """One query of the source covers all tables at a position, and after it.

    It is what another process finds at each position, which queries again.
    """
    lake = make_lake(source_server)
    at = lake.warm(source_server, table)
    names = ["t", *(f"t{number}" for number in range(8))]
    source_server.execute(*(f"CREATE TABLE {table}{n} (a INT)" for n in range(8)))
    positions = [lake.until(at, 8)]
    for number in range(longer(12)):
        name = rng.choice(names)
        source_server.execute(
            rng.choice(
                (
                    f"ALTER TABLE {database}.{name} ADD c{number} INT",
                    f"CREATE OR REPLACE VIEW {database}.v AS SELECT 1",
                    f"INSERT INTO {database}.{name} (a) VALUES (100 + {number})",
                    f"CREATE TABLE {database}.n{number} LIKE {database}.{name}",
                )
            ),
            f"INSERT INTO {table} (a) VALUES ({number})",
        )
        ends = lake.head(positions[-1])
        positions.append(ends.end)
    names += [f"n{number}" for number in range(longer(12))]
    lake.wait_until_delivered(positions[-1])

    def expected(lake):
        return {
            (name, n): columns and [each.name for each in columns.columns]
            for n, position in rng.sample([*enumerate(positions)], len(positions))
            for name in names
            for columns in [lake.ranges.columns(database, name, position)]
        }

    lake.ranges.columns(database, "t", positions[0])
    before = lake.looks()[1]
    found = expected(lake)
    assert lake.looks()[1] - before <= len(positions)
    assert expected(make_lake(source_server)) == found


def test_before_the_history(make_lake, source_server, table):
    """A range may start before anything was known about the tables."""
    file, offset = source_server.binlog_position()
    source_server.execute(
        f"INSERT INTO {table} VALUES (1)",
        f"ALTER TABLE {table} ADD COLUMN b INT DEFAULT 5",
        f"INSERT INTO {table} VALUES (2, 6)",
    )
    lake = make_lake(source_server)
    start = lake.subscribe(f"file:{file}:{offset}")
    assert (start.journal, start.position) == (file, offset)
    source_server.execute(
        f"ALTER TABLE {table} DROP COLUMN b", f"INSERT INTO {table} VALUES (3)"
    )
    end = lake.until(start, 5)
    rows = [row for row in rows_of(lake.read_again(start, end)) if row[0] == "t"]
    assert rows == [("t", "a", "1"), ("t", "a", "2", "b", "6"), ("t", "a", "3")]


def test_a_large_transaction_in_parts(make_lake, source_server, table):
    """Parts of one transaction, read separately, are together the whole of it."""
    lake = make_lake(source_server)
    start = lake.warm(source_server, table)
    rows = 6 * CUT_ROWS
    values = ",".join(f"({n})" for n in range(rows))
    source_server.execute(f"INSERT INTO {table} VALUES {values}")
    end = lake.until(start, rows)
    whole = lake.read_memory(start, end)
    last = decode_entry(whole[-1])
    assert last.entry_type == EntryType.TRANSACTIONEND
    for parts in (lake.plan(start, end, 4), lake.plan(start, end, 3)):
        assert len(parts) in (3, 4)
        assert (parts[0].start, parts[-1].end) == (start, end)
        assert sum(part.rows for part in parts) == rows
        assert sum(part.bytes for part in parts) == event_bytes(whole)
        for part, later in itertools.pairwise(parts):
            assert part.end == later.start
            assert part.commit == end
            assert part.commit_ms == last.header.execute_time
        assert parts[-1].commit is None
        for read in (lake.read_memory, lake.read_again):
            assert joined(read(part.start, part.end) for part in parts) == whole
        forgetful = EpochPosition(0, parts[1].start.journal, parts[1].start.position)
        assert lake.read_again(forgetful, parts[1].end) == lake.read_memory(
            parts[1].start, parts[1].end
        )
    cold = make_lake(source_server, memory=0)
    assert cold.head(start).end == end
    assert cold.plan(start, end, 4) == lake.plan(start, end, 4)


def event_bytes(entries):
    """Return the bytes of the events after the entries."""
    return sum(decode_entry(entry).header.event_length for entry in entries)


def test_limits(make_lake, source_server, table):
    """A batch ends with a transaction within its limits, but has at least one."""
    for memory in (32 << 20, 0):
        lake = make_lake(source_server, memory=memory)
        source_server.execute(f"DELETE FROM {table}")
        start = lake.subscribe("latest", NAME)
        lake.ranges.unsubscribe(NAME)
        start = lake.warm(source_server, table)
        for n in range(4):
            source_server.execute(
                f"INSERT INTO {table} VALUES ({2 * n}), ({2 * n + 1})"
            )
        end = lake.until(start, 8)
        lake.wait_for_memory(end)  # else a batch ends at the pump's position
        assert lake.head(start, RangeLimits(rows=5)).rows == 4
        assert lake.head(start, RangeLimits(rows=4)).rows == 4
        assert lake.head(start, RangeLimits(rows=1)).rows == 2
        assert lake.head(start, RangeLimits(bytes=1)).rows == 2
        assert lake.head(start, RangeLimits(rows=100)).end == end
        two = lake.head(start, RangeLimits(rows=4))
        entries = lake.read(start, two.end)
        assert two.bytes == event_bytes(entries)


def test_unwanted_changes_make_no_batch(
    make_lake, source_server, table, database, monkeypatch
):
    """What the filter rejects moves nothing, and is not part of a range."""
    lake = make_lake(source_server)
    lake.filter = rf"{database}\.t"
    start = lake.warm(source_server, table)
    source_server.execute(
        f"CREATE TABLE {database}.u (a INT)", f"INSERT INTO {database}.u VALUES (1)"
    )
    for _ in range(3):
        assert lake.head(start, wait_s=0.05).end == start
    source_server.execute(f"INSERT INTO {table} VALUES (1)")
    end = lake.until(start, 1)
    entries = lake.read_memory(start, end)
    assert rows_of(entries) == [("t", "a", "1")]
    assert lake.read_again(start, end) == entries
    # After long enough, a batch of rejected changes only moves on.
    source_server.execute(f"INSERT INTO {database}.u VALUES (2)")
    assert lake.head(end, wait_s=0.05).end == end
    monkeypatch.setattr(range_heads, "MOVES_ON_S", 0.0)
    moved = lake.head(end)
    assert (moved.rows, lake.read(end, moved.end)) == (0, [])
    assert moved.end.order() > end.order()
    begins = sum(
        decode_entry(e).entry_type == EntryType.TRANSACTIONBEGIN for e in entries
    )
    assert (begins, len(entries)) in ((1, 3), (0, 2))  # MariaDB has none


def test_starts(make_lake, source_server, table):
    """A new cursor starts as requested: at an end, a time, a position, a GTID set."""
    lake = make_lake(source_server)
    start = lake.warm(source_server, table)
    soon_ms = int(time.time() + 3600) * 1000  # everything is older
    inside = EpochPosition(0, start.journal, start.position)
    source_server.execute(f"INSERT INTO {table} VALUES (1)")
    end = lake.until(start, 1)
    middle = f"file:{end.journal}:{end.position - 10}"
    assert lake.subscribe(middle, "b") == inside
    assert lake.subscribe(f"file:{end.journal}:{end.position}", "c") == end
    earliest = lake.subscribe("earliest", "d")
    assert earliest.position == 4
    assert earliest.order() <= start.order()
    assert lake.subscribe("time:1000", "e") == earliest
    assert lake.subscribe(f"time:{soon_ms}", "f").order() >= end.order()
    large = f"time:{10**25}", f"file:{end.journal}:{10**25}"
    for wrong in (
        *large, "", "time:x", "file:4", "latest:1", "nowhere", "gtid:,;x", "time",
    ):  # fmt: skip
        with pytest.raises(ClientError, match=r"start|time|position|gtid"):
            lake.ranges.subscribe("g", lake.filter, wrong)
    with pytest.raises(ClientError, match="does not exist"):
        lake.subscribe(f"file:{end.journal}:{end.position + 10**9}", "h")
    found, _ = lake.ranges.subscriptions()
    assert {each.name for each in found} == {
        NAME,
        "b",
        "c",
        "d",
        "e",
        "f",
    }


def test_positions_and_parts_without_a_subscription(make_lake, source_server, table):
    """A bounded read needs no cursor: it has positions, and its own filter."""
    lake = make_lake(source_server)
    start = lake.ranges.locate("", "latest")
    source_server.execute(f"INSERT INTO {table} VALUES (1), (2)")
    end = lake.ranges.locate("", "latest")
    (part,) = lake.ranges.plan("", lake.filter, start, end, 4)
    assert (part.start, part.end, part.rows) == (start, end, 2)
    assert rows_of(lake.read(start, end, "")) == [("t", "a", "1"), ("t", "a", "2")]
    assert lake.ranges.subscriptions()[0] == []
    cursor = lake.subscribe()
    assert lake.ranges.locate(NAME, "acked") == cursor
    with pytest.raises(ClientError, match="no subscription"):
        lake.ranges.locate("other", "acked")


def test_wrong_ranges_are_refused(make_lake, source_server, table):
    """Other epochs, ends before starts and unknown names are refused with codes."""
    lake = make_lake(source_server)
    start = lake.warm(source_server, table)
    later = EpochPosition(start.epoch, start.journal, start.position + 1)
    other = EpochPosition(start.epoch + 1, start.journal, start.position)
    for call, code in (
        (lambda: lake.head(other), 409),
        (lambda: lake.read(other, other), 409),
        (lambda: lake.plan(later, start, 2), 400),
        (lambda: lake.read(later, start), 400),
        (lambda: lake.ranges.ack(NAME, other), 409),
        (lambda: lake.ranges.ack("nobody", start), 404),
        (lambda: lake.ranges.unsubscribe("nobody"), 404),
        (lambda: lake.ranges.subscribe(NAME, "(", "latest"), 400),
        (lambda: lake.read(start, EpochPosition(0, start.journal, 10**9), ""), 400),
    ):
        with pytest.raises(ClientError) as refused:
            call()
        assert refused.value.code == code
    assert lake.read(start, start) == []
    assert lake.plan(start, start, 3) == []


def test_a_head_that_waits(make_lake, source_server, table):
    """It answers when a change arrives, and ends on a disconnect or a stop."""
    lake = make_lake(source_server)
    start = lake.warm(source_server, table)
    waiting = in_thread(lambda: lake.head(start))
    source_server.execute(f"INSERT INTO {table} VALUES (1)")
    end = waiting.result(PATIENCE_S).end
    assert rows_of(lake.read(start, end)) == [("t", "a", "1")]

    ours, theirs = socket.socketpair()
    with ours:
        leaving = in_thread(
            lambda: lake.ranges.head(
                NAME, end, RangeLimits(), 10 * PATIENCE_S, ours.fileno()
            )
        )
        theirs.close()
        assert leaving.result(PATIENCE_S).end == end

    stopped = in_thread(
        lambda: _refusal(lambda: lake.head(end, wait_s=10 * PATIENCE_S))
    )
    lake.instance.request_stop()
    assert stopped.result(PATIENCE_S).code == 503


def _refusal(call):
    with pytest.raises(ClientError) as refused:
        call()
    return refused.value


def test_nobody_is_waited_for(make_lake, source_server, table):
    """Without ordinary clients the ring retains nothing, and memory answers."""
    lake = make_lake(source_server, ring=64)
    start = lake.warm(source_server, table)
    with source_server.connect() as connection, connection.cursor() as cursor:
        for n in range(200):
            cursor.execute(f"INSERT INTO {table} VALUES ({n})")
    end = lake.until(start, 200)
    looks = lake.looks()
    assert len(rows_of(lake.read_memory(start, end))) == 200
    assert lake.looks()[1] == looks[1]


def test_ahead_of_a_pump_that_is_held_up(make_lake, source_server, table):
    """A full ring stops no reader, and columns are those of the position before it."""
    source_server.execute(f"ALTER TABLE {table} ADD COLUMN b INT")
    lake = make_lake(source_server, ring=64)
    start = lake.warm(source_server, table, "(-1, 0)")
    lake.instance.subscribed(ClientIdentity("wired", 1001))  # and receives nothing
    with source_server.connect() as connection, connection.cursor() as cursor:
        for n in range(100):
            cursor.execute(f"INSERT INTO {table} VALUES ({n}, 1)")
    source_server.execute(
        f"ALTER TABLE {table} RENAME COLUMN b TO c",
        f"INSERT INTO {table} VALUES (200, 2)",
    )
    middle = lake.until(start, 102)
    source_server.execute(
        f"INSERT INTO {table} VALUES (201, 3)",
        f"ALTER TABLE {table} RENAME COLUMN c TO d",
    )
    end = lake.until(middle, 2)
    assert rows_of(lake.read_again(start, end))[-2] == ("t", "a", "201", "c", "3")
    assert rows_of(lake.read_again(middle, end))[0] == ("t", "a", "201", "c", "3")


def test_two_readers_at_once(make_lake, source_server, table):
    """Any number of readers get the same data, each separately."""
    lake = make_lake(source_server)
    start = lake.warm(source_server, table)
    values = ",".join(f"({n})" for n in range(3000))
    source_server.execute(f"INSERT INTO {table} VALUES {values}")
    end = lake.until(start, 3000)
    whole = lake.read(start, end)
    readers = [in_thread(lambda: lake.read(start, end, "")) for _ in range(3)]
    readers += [in_thread(lambda: lake.read(start, end)) for _ in range(3)]
    for reader in readers:
        assert reader.result(PATIENCE_S) == whole


def test_in_gtid_mode(make_lake, source_server, table):
    """The sets in entries are the same from memory and read again."""
    lake = make_lake(source_server, gtid_on=True)
    start = lake.warm(source_server, table)
    source_server.execute(f"INSERT INTO {table} VALUES (0)")
    first = lake.until(start, 1)
    source_server.execute(f"INSERT INTO {table} VALUES (1)")
    second = lake.until(first, 1)
    # What was read again from here on has shown that memory's sets are exact.
    assert lake.read_again(first, second) == lake.read_memory(first, second)
    start = second
    source_server.execute(f"INSERT INTO {table} VALUES (10)", "FLUSH BINARY LOGS")
    source_server.execute(f"INSERT INTO {table} VALUES (2)")
    middle = lake.until(start, 2)
    source_server.execute(f"INSERT INTO {table} VALUES (3)")
    end = lake.until(middle, 1)
    hot, cold = lake.read(middle, end), lake.read_again(middle, end)
    assert hot == cold
    assert lake.read(start, end) == lake.read_again(start, end)
    assert all(decode_entry(entry).header.gtid for entry in cold)


def test_cursors_outlive_the_process(make_lake, source_server, table):
    """A cursor and its filter survive a restart; acks only move it forward."""
    lake = make_lake(source_server)
    start = lake.warm(source_server, table)
    lake.ranges.ack(NAME, start)
    later = EpochPosition(0, start.journal, start.position + 100)
    earlier = EpochPosition(0, start.journal, start.position - 100)
    lake.ranges.ack(NAME, later)
    lake.ranges.ack(NAME, earlier)
    again = make_lake(source_server)
    found, created = again.ranges.subscribe(NAME, again.filter, "earliest")
    assert (found.cursor, found.filter, created) == (later, again.filter, False)
    again.ranges.unsubscribe(NAME)
    assert make_lake(source_server).ranges.subscriptions()[0] == []


def test_a_temporary_subscription(make_lake, source_server, table):
    """It has a separate name, and ends only where it is meant."""
    ranges = make_lake(source_server).ranges
    found, created = ranges.subscribe("eye", "a", "latest", temporary=True)
    assert (found.temporary, created) == (True, True)
    ranges.subscribe(NAME, "a", "latest")
    for name, temporary, kind in (("eye", False, "temporary"), (NAME, True, "kept")):
        with pytest.raises(ClientError, match=f"exists, a {kind} one") as caught:
            ranges.subscribe(name, "b", "latest", temporary=temporary)
        assert caught.value.code == IN_USE
    for name in (NAME, "eye", "nobody"):
        ranges.end_temporary(name)
    assert [each.name for each in ranges.subscriptions()[0]] == [NAME]


def test_random_changes(make_lake, source_server, table, database, rng):
    """Whatever is written, ranges from memory, read again and in parts are the same."""
    lake = make_lake(source_server)
    lake.filter = rf"{database}\.(t|w.*)"
    start = lake.warm(source_server, table)
    tables, keys = [table], itertools.count()

    def statement():
        name = rng.choice([*tables, f"{database}.unwanted"])
        kind = rng.randrange(12)
        if kind == 0 and len(tables) < 4:
            tables.append(f"{database}.w{next(keys)}")
            return f"CREATE TABLE {tables[-1]} (a INT PRIMARY KEY)"
        if kind == 1:
            return f"ALTER TABLE {name} ADD COLUMN c{next(keys)} VARCHAR(9) DEFAULT 'x'"
        if kind == 2:
            return f"DELETE FROM {name} WHERE a % 5 = {rng.randrange(5)}"
        if kind == 3:
            return f"UPDATE {name} SET a = a + 1000000 WHERE a % 7 = {rng.randrange(7)}"
        rows = ",".join(f"({next(keys)})" for _ in range(rng.choice((1, 2, 2000))))
        return f"INSERT INTO {name} (a) VALUES {rows}"

    source_server.execute(f"CREATE TABLE {database}.unwanted (a INT PRIMARY KEY)")
    positions = [start]
    for _ in range(12):
        for _ in range(rng.randint(1, 5)):
            source_server.execute(
                "BEGIN", *(statement() for _ in range(rng.randint(1, 4))), "COMMIT"
            )
        ends = lake.head(
            positions[-1], RangeLimits(rows=rng.randint(1, 4000)), wait_s=0.1
        )
        positions.append(ends.end)
    whole = lake.read_memory(start, positions[-1])
    assert lake.read_again(start, positions[-1]) == whole
    ranges = list(itertools.pairwise(positions))
    assert joined(lake.read(*ends) for ends in ranges) == whole
    for first, last in rng.sample(ranges, 3):
        assert lake.read_again(first, last) == lake.read_memory(first, last)
    parts = lake.plan(start, positions[-1], 5)
    assert joined(lake.read_again(part.start, part.end) for part in parts) == whole
    assert joined(lake.read_memory(part.start, part.end) for part in parts) == whole


def test_random_tables(make_lake, source_server, database, rng):
    """Rows of all types and images are the same, rendered by either side."""
    lake = make_lake(source_server)
    start = lake.subscribe()
    RandomLoad(source_server, database, rng).run(tables=6, steps=longer(40))
    end = lake.ranges.locate(NAME, "latest")
    assert len(rows_of(lake.read_again(start, end))) > 20
    whole = lake.read(start, end, name="", relays=True)
    parts = lake.plan(start, end, 3)
    assert joined(lake.read_again(each.start, each.end) for each in parts) == whole
