"""Ranges across a change of the source: the same transactions, by their GTIDs."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from functools import partial

import pytest
from fix_ranged import NAME, rows_of
from fix_store import eventually

from canal_server.config.schema import HostConfig, HostPort
from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import ClientError, TableMetaError
from canal_server.model.ranges import RangeLimits
from canal_server.protocol.entry_messages import EntryType, decode_entry
from canal_server.protocol.range_messages import NOT_HERE
from canal_server.ranges.range_source import CUT_ROWS

# So that a position shows which server it is from.
REPLICA_OPTIONS = ("--log-bin=second",)
ONE_ROW = RangeLimits(rows=1)


@pytest.fixture
def database(replicated_schema):
    """Yield the name of the schema."""
    return replicated_schema


@pytest.fixture
def table(replicas, replicated_schema):
    """Yield the name of a table with a key of integers, on both servers."""
    name = f"{replicated_schema}.t"
    replicas.source.execute(f"CREATE TABLE {name} (a INT PRIMARY KEY)")
    replicas.catch_up()
    return name


@pytest.fixture(params=[True, False], ids=["gtid", "set"])
def gtid_on(request):
    """Yield whether the destination is in GTID mode."""
    return request.param


def refusal(call):
    """Return the refusal of a call."""
    with pytest.raises(ClientError) as refused:
        call()
    return refused.value


def insert(server, table, *numbers):
    """Insert each number in a transaction of its own."""
    server.execute(*(f"INSERT INTO {table} VALUES ({n})" for n in numbers))


def numbers_of(entries):
    """Return the inserted values."""
    return [int(str(row[2])) for row in rows_of(entries) if row[0] == "t"]


def next_rows(lake, start, count):
    """Return the end of a batch with that many rows, and its rows."""
    end = lake.until(start, count)
    return end, numbers_of(lake.read(start, end))


def numbers_after(lake, start, end):
    """Return the numbers in an old range, by its current plan."""
    found = []
    for part in lake.plan(start, end, 3):
        assert part.end.epoch > end.epoch
        found += numbers_of(lake.read(part.start, part.end))
    return found


def test_a_stream_continues(make_lake, replicas, table, gtid_on):
    """Earlier batches are read again, and the next ones follow, without repetition.

    Then each server replaces the other again.
    """
    lake = make_lake(replicas.source, gtid_on=gtid_on)
    start = lake.subscribe()
    insert(replicas.source, table, 1, 2)
    middle, rows = next_rows(lake, start, 2)
    assert rows == [1, 2]
    insert(replicas.source, table, 3, 4, 5)
    end, rows = next_rows(lake, middle, 3)
    lake.ranges.ack(NAME, middle)
    replicas.catch_up()
    replicas.source.kill()
    replicas.take_over()
    insert(replicas.source, table, 6, 7)

    lake = make_lake(replicas.source, gtid_on=gtid_on)
    cursor = lake.subscribe()
    assert (cursor, cursor.gtids) == (middle, middle.gtids)
    assert numbers_after(lake, start, end) == [1, 2, 3, 4, 5]
    assert numbers_after(lake, middle, end) == [3, 4, 5]
    assert refusal(lambda: lake.read(middle, end)).code == 409
    later, rows = next_rows(lake, end, 2)
    assert (rows, later.epoch) == ([6, 7], end.epoch + 1)
    assert next_rows(lake, middle, 5) == (later, [3, 4, 5, 6, 7])
    assert lake.head(later, wait_s=0).end == later
    columns = lake.ranges.columns(table.partition(".")[0], "t", middle)
    assert [each.name for each in columns.columns] == ["a"]

    replicas.rejoin()
    insert(replicas.source, table, 8)
    replicas.catch_up()
    replicas.source.kill()
    replicas.take_over()
    insert(replicas.source, table, 9)
    lake = make_lake(replicas.source, gtid_on=gtid_on)
    last, rows = next_rows(lake, later, 2)
    assert (rows, last.epoch) == ([8, 9], end.epoch + 2)
    assert last.order() > later.order() > end.order()
    replicas.rejoin()


def test_another_order(make_lake, replicas, table, gtid_on):
    """Transactions are delivered once, though committed there in another order."""
    if replicas.flavour == "mariadb":
        pytest.skip("a domain of MariaDB has one order")
    source, replica = replicas.source, replicas.replica
    lake = make_lake(source, gtid_on=gtid_on)
    start = lake.subscribe()
    replica.execute("STOP REPLICA SQL_THREAD")
    executed = [replicas.executed(source)]
    for number in range(6):
        insert(source, table, number)
        executed.append(replicas.executed(source))
    sets = itertools.pairwise(map(GtidSet.parse, executed))
    gtids = [str(after.subtract(before)) for before, after in sets]
    positions = [start]
    for number in range(6):
        positions.append(lake.head(positions[-1], ONE_ROW).end)
        assert numbers_of(lake.read(*positions[-2:])) == [number]
    # 1 and 4 are first there.
    for number in (4, 1):
        replica.execute(
            f"SET gtid_next = '{gtids[number]}'",
            f"INSERT INTO {table} VALUES ({number})",
            "SET gtid_next = AUTOMATIC",
        )
    replica.execute("START REPLICA SQL_THREAD")
    replicas.catch_up()
    source.kill()
    replicas.take_over()
    insert(replicas.source, table, 6)

    lake = make_lake(replicas.source, gtid_on=gtid_on)
    lake.subscribe()
    assert numbers_after(lake, start, positions[-1]) == [4, 1, 0, 2, 3, 5]
    for first, later in ((0, 1), (0, 2), (1, 4), (2, 5), (4, 5), (5, 6)):
        found = numbers_after(lake, positions[first], positions[later])
        assert sorted(found) == list(range(first, later)), (first, later)
    for number in (0, 1, 2, 5):
        position = positions[number]
        # Whatever the limit: what was read already must not be repeated.
        end = lake.head(position, ONE_ROW).end
        found = numbers_of(lake.read(position, end))
        while len(found) < 7 - number:
            before, end = end, lake.head(end, ONE_ROW).end
            found += numbers_of(lake.read(before, end))
        assert sorted(found) == list(range(number, 7))
    replicas.rejoin()


def test_lost_with_the_source(make_lake, replicas, table, gtid_on):
    """What only the lost server had is not waited for; new changes are read once."""
    lake = make_lake(replicas.source, gtid_on=gtid_on)
    start = lake.subscribe()
    insert(replicas.source, table, 1)
    replicas.catch_up()
    with replicas.lag():
        replicas.replica.execute("STOP REPLICA")
        insert(replicas.source, table, 2)
        end, rows = next_rows(lake, start, 2)
        assert rows == [1, 2]
        replicas.source.kill()
        lake = make_lake(replicas.replica, gtid_on=gtid_on)
        # As long as it is a replica, it may still receive it.
        waits = refusal(lambda: lake.head(end, wait_s=0))
        assert (waits.code, "has not yet executed" in str(waits)) == (503, True)
        replicas.take_over()
    insert(replicas.source, table, 3)
    assert next_rows(lake, end, 1)[1] == [3]
    assert numbers_after(lake, start, end) == [1]


def test_sets_without_a_look(make_lake, replicas, table):
    """Once the pump's sets proved exact, memory has those of new batches."""
    source = replicas.source
    kind = GtidSet if replicas.flavour == "mysql" else MariaGtidSet
    lake = make_lake(source)
    position = lake.subscribe()

    def next_position(number):
        insert(source, table, number)
        file, offset = source.binlog_position()
        # Else a head is answered from the binlog.
        lake.wait_for_memory(replace(position, journal=file, position=offset))
        return next_rows(lake, position, 1)[0]

    for number in range(3):
        position = next_position(number)
    before = lake.looks()
    for number in range(3, 8):
        position = next_position(number)
        executed = replicas.executed(source)
        assert kind.parse(position.gtids) == kind.parse(executed)
    assert lake.looks()[1] == before[1]


def test_a_located_end_continues_the_set_of_the_cursor(make_lake, replicas, table):
    """The set at the end of the binlog is right, and counted from the cursor on."""
    source = replicas.source
    is_mysql = replicas.flavour == "mysql"
    kind = GtidSet if is_mysql else MariaGtidSet
    lake = make_lake(source)
    start = lake.subscribe()
    insert(source, table, 1)
    end, _ = next_rows(lake, start, 1)
    located = lake.ranges.locate(NAME, "latest")
    assert kind.parse(located.gtids) == kind.parse(replicas.executed(source))
    # No server executed this: only who continues from the cursor has it.
    other = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5" if is_mysql else "77-8-9"
    lake.ranges.ack(NAME, replace(end, gtids=f"{end.gtids},{other}"))
    insert(source, table, 2)
    located = lake.ranges.locate(NAME, "latest")
    executed = f"{replicas.executed(source)},{other}"
    assert kind.parse(located.gtids) == kind.parse(executed)


STATEMENTS = (
    ("ANALYZE TABLE {t}",),
    ("CREATE VIEW {t}v AS SELECT 1",),
    ("OPTIMIZE TABLE {t}",),
    ("ALTER TABLE {t} PARTITION BY KEY (a) PARTITIONS 3",),
    ("CREATE USER '{n}'@'%'", "DROP USER '{n}'@'%'"),
    ("FLUSH TABLES",),
    ("BEGIN", "SAVEPOINT a", "INSERT INTO {t} VALUES (8)", "ROLLBACK TO a", "COMMIT"),
    ("FLUSH BINARY LOGS",),
    ("XA START '{n}'", "XA END '{n}'", "XA PREPARE '{n}'", "XA ROLLBACK '{n}'"),
    ("XA START '{n}'", "INSERT INTO {t} VALUES (7)", "XA END '{n}'",
     "XA PREPARE '{n}'", "XA COMMIT '{n}'"),
    ("ALTER TABLE {t} COMMENT = 'number'",),
    ("CREATE INDEX i7 ON {t} (a)",),
    ("ALTER TABLE {t} FORCE",),
    ("TRUNCATE TABLE {t}",),
    ("CREATE TABLE {t}y LIKE {t}", "RENAME TABLE {t} TO {t}z, {t}y TO {t}"),
)  # fmt: skip


@pytest.mark.parametrize("statements", STATEMENTS, ids=lambda each: each[-1])
def test_a_statement_follows(make_lake, replicas, table, statements, gtid_on):
    """A range that ends before any statement is the same on the other server.

    Nothing between it and the next row is left out there.
    """
    source = replicas.source
    lake = make_lake(source, gtid_on=gtid_on)
    start = lake.subscribe()
    insert(source, table, 0)
    start, _ = next_rows(lake, start, 1)
    insert(source, table, 1)
    end, rows = next_rows(lake, start, 1)
    assert rows == [1]
    name = table.replace(".", "")
    source.execute(*(each.format(t=table, n=name) for each in statements))
    insert(source, table, 2)
    expected = up_to(lake, end, 2)
    replicas.catch_up()
    lake = make_lake(replicas.replica, gtid_on=gtid_on)
    lake.subscribe()
    assert numbers_after(lake, start, end) == [1]
    assert up_to(lake, end, 2) == expected


def up_to(lake, start, number):
    """Return the kinds of entries after a position, up to the row with a number."""
    found = []
    while True:
        end = lake.head(start).end
        for each in lake.read(start, end):
            entry = decode_entry(each)
            if entry.entry_type != EntryType.ROWDATA:
                continue
            rows = rows_of([each])
            found.append((entry.header.event_type, entry.row_change().sql, rows))
            if rows and rows[-1][-1] == str(number):
                return found
        start = end


def test_idle_over_two_changes(make_lake, replicas, table, gtid_on):
    """A reader without new data survives two changes of the source."""
    source, replica = replicas.source, replicas.replica
    standby = HostConfig(address=HostPort(replica.host, replica.port))
    lake = make_lake(source, gtid_on=gtid_on, standby=standby)
    start = lake.subscribe()
    insert(source, table, 1)
    position, _ = next_rows(lake, start, 1)
    replicas.catch_up()
    pump = lake.instance.pipelines[0].pump
    for epoch in (1, 2):
        pump.switch_to(pump.sources.other)
        eventually(partial(is_read, lake, position, epoch))
    insert(source, table, 2)
    end, rows = next_rows(lake, position, 1)
    assert (rows, end.epoch) == ([2], position.epoch + 2)


def is_read(lake, position, epoch):
    """Return whether heads after an old position query the source of an epoch."""
    try:
        found = lake.head(position, wait_s=0).end
    except ClientError as error:
        if error.code != NOT_HERE:
            raise
        return False
    assert found == position
    return lake.ranges.subscriptions()[1] == epoch


def test_parts_have_sets(make_lake, replicas, table):
    """A batch that was cut between transactions is continued by parts elsewhere."""
    source = replicas.source
    lake = make_lake(source, gtid_on=True)
    position = lake.subscribe()
    insert(source, table, -1)
    start, _ = next_rows(lake, position, 1)
    rows = 3 * CUT_ROWS
    for first in range(0, rows, 1000):
        values = ",".join(f"({n})" for n in range(first, first + 1000))
        source.execute(f"INSERT INTO {table} VALUES {values}")
    end = lake.until(start, rows)
    parts = lake.plan(start, end, 3)
    assert len(parts) == 3
    replicas.catch_up()
    lake = make_lake(replicas.replica, gtid_on=True)
    lake.subscribe()
    found = [numbers_after(lake, part.start, part.end) for part in parts]
    assert [n for each in found for n in each] == list(range(rows))
    assert all(found)


def forget_transactions(replicas):
    """Reset both servers to an empty set, with the tables that they have."""
    replica = replicas.replica
    old = replicas.flavour == "mariadb"
    replica.execute("STOP REPLICA", "RESET REPLICA ALL")
    for server in (replica, replicas.source):
        server.execute("RESET MASTER" if old else "RESET BINARY LOGS AND GTIDS")
    replicas.begin_after()
    assert not replicas.executed(replicas.source)


def test_tables_known_from_the_first_transaction_on(
    make_lake, replicas, table, gtid_on, caplog
):
    """What was read from a server with an empty set is known on the next one."""
    forget_transactions(replicas)
    source = replicas.source
    lake = make_lake(source, gtid_on=gtid_on)
    lake.subscribe()
    insert(source, table, 0)
    start = lake.subscribe("latest", "later")
    insert(source, table, 1)
    start, _ = next_rows(lake, start, 1)
    insert(source, table, 2)
    source.execute(f"ALTER TABLE {table} ADD b INT FIRST")
    end = lake.until(start, 2)
    lake.wait_until_delivered(end)
    replicas.catch_up()

    caplog.set_level("INFO", "canal_server.source.schema.history_segments")
    lake = make_lake(replicas.replica, gtid_on=gtid_on)
    lake.subscribe()
    (part,) = lake.plan(start, end, 1)
    rows = rows_of(lake.read(part.start, part.end))
    assert [row[1:] for row in rows if row[0] == "t"] == [("a", "2")]
    # The pump's own position is found by GTID in GTID mode only.
    assert ("continuing the table history at " in caplog.text) is gtid_on


def test_tables_that_are_not_known(make_lake, replicas, table, gtid_on):
    """The refusal is final; it says why, and from where on the tables are known."""
    source = replicas.source
    file, offset = source.binlog_position()
    gtids = replicas.executed(source)
    insert(source, table, 1)
    source.execute(f"ALTER TABLE {table} ADD b INT FIRST")
    lake = make_lake(source, gtid_on=gtid_on)
    lake.subscribe()
    start = lake.subscribe(f"file:{file}:{offset}", "early")
    refused = errors_of(lambda: lake.head(start))
    known = r"is not known: the table history of server \S+ starts after the"
    assert re.search(known, refused)
    (position,) = re.findall(
        r"subscription there, with (file:\S+:\d+), and load", refused
    )
    begin = lake.subscribe(position, "known")
    source.execute(f"INSERT INTO {table} VALUES (2, 3)")
    end = lake.until(begin, 2)
    assert rows_of(lake.read(begin, end))[1:] == [("t", "b", "2", "a", "3")]
    lake.wait_until_delivered(end)
    replicas.catch_up()

    lake = make_lake(replicas.replica, gtid_on=gtid_on)
    lake.subscribe()
    refused = errors_of(lambda: lake.head(replace(start, gtids=gtids)))
    assert re.search(rf"{known}.* cannot be carried over: it starts at", refused)


def errors_of(call):
    """Return the errors about columns that are not known."""
    with pytest.raises(TableMetaError, match="column size is not match") as refused:
        call()
    return str(refused.value)


def test_what_is_unknown(make_lake, replicas, table):
    """A position without a set, of no epoch or inside a transaction is refused."""
    lake = make_lake(replicas.source, gtid_on=True)
    start = lake.subscribe()
    insert(replicas.source, table, 1)
    end, _ = next_rows(lake, start, 1)
    replicas.catch_up()
    lake = make_lake(replicas.replica, gtid_on=True)
    lake.subscribe()
    for position, why in (
        (replace(end, gtids=""), "its GTID set is unknown"),
        (replace(end, gtids="x"), "not of this source's kind"),
        (replace(end, epoch=7), "its epoch is unknown"),
    ):
        refused = refusal(lambda position=position: lake.head(position, wait_s=0))
        assert (refused.code, why in str(refused)) == (409, True), refused
        assert str(position) in str(refused)
    # What the subscription's own cursor has need not be in its readers' positions.
    lake.ranges.ack(NAME, end)
    assert lake.head(replace(end, gtids=""), wait_s=0).end == end
