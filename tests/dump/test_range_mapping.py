"""Ranges over a change of the source: the same transactions, told by their GTIDs."""

from __future__ import annotations

import pytest
from fix_pipeline import UNIT_S
from fix_ranged import NAME, rows_of
from fix_store import eventually

from canal_server.config.schema import HostConfig, HostPort
from canal_server.errors import ClientError
from canal_server.model.ranges import RangeLimits, RangePlace

# So that a place tells which server it is of.
REPLICA_OPTIONS = ("--log-bin=second",)


@pytest.fixture
def database(replicated_schema):
    """Give the name of the schema."""
    return replicated_schema


@pytest.fixture
def table(replicas, replicated_schema):
    """Give the name of a table with a key of integers, on both servers."""
    name = f"{replicated_schema}.t"
    replicas.source.execute(f"CREATE TABLE {name} (a INT PRIMARY KEY)")
    replicas.catch_up()
    return name


@pytest.fixture(params=[True, False], ids=["gtid", "set"])
def gtid_on(request):
    """Give whether the destination is in GTID mode."""
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
    """Return what was inserted."""
    return [int(row[2]) for row in rows_of(entries) if row[0] == "t"]


def next_rows(lake, start, count):
    """Return the end of a batch with so many rows, and what its rows are."""
    end = lake.until(start, count)
    return end, numbers_of(lake.read(start, end))


def numbers_behind(lake, start, end):
    """Return the numbers in a range of old, as its plan of now says."""
    found = []
    for part in lake.plan(start, end, 3):
        assert part.end.epoch > end.epoch
        found += numbers_of(lake.read(part.start, part.end))
    return found


def test_a_stream_goes_on(make_lake, replicas, table, gtid_on):
    """Batches of before are read again, and the next ones follow, nothing twice.

    Each server then gives way to the other again.
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
    assert numbers_behind(lake, start, end) == [1, 2, 3, 4, 5]
    assert numbers_behind(lake, middle, end) == [3, 4, 5]
    assert refusal(lambda: lake.read(middle, end)).code == 409
    behind, rows = next_rows(lake, end, 2)
    assert (rows, behind.epoch) == ([6, 7], end.epoch + 1)
    assert next_rows(lake, middle, 5) == (behind, [3, 4, 5, 6, 7])
    assert lake.head(behind, wait_s=0).end == behind
    columns = lake.ranges.columns(table.partition(".")[0], "t", middle)
    assert [each.name for each in columns.columns] == ["a"]

    replicas.rejoin()
    insert(replicas.source, table, 8)
    replicas.catch_up()
    replicas.source.kill()
    replicas.take_over()
    insert(replicas.source, table, 9)
    lake = make_lake(replicas.source, gtid_on=gtid_on)
    last, rows = next_rows(lake, behind, 2)
    assert (rows, last.epoch) == ([8, 9], end.epoch + 2)
    assert last.order() > behind.order() > end.order()
    replicas.rejoin()
