"""Walks over records: what passes, how far a range goes, where it can be cut."""

from __future__ import annotations

import pytest
from fix_blocks import ALTER, BEGIN, END, HEARTBEAT, OTHER, ROWS, Entries, numbers_of

from canal_server.core.table_ids import TableIds
from canal_server.errors import StoreError
from canal_server.ranges.selection import RangeWalk

EVERYTHING = (1 << 30, 0)
OPEN = 2


@pytest.fixture
def table_ids():
    """Give numbers 1 and 2 to the tables s.red and s.blue."""
    found = TableIds()
    assert [found.ordinal_of((("s", n),)) for n in ("red", "blue")] == [1, 2]
    return found


def only_red(names):
    """Select one table."""
    return names == (("s", "red"),)


def walk_over(entries, table_ids, start=(1, 0), end=None, **options):
    """Return a walk over all entries."""
    walk = RangeWalk(only_red, table_ids, start, end, picks=True, **options)
    walk.walk(entries.take())
    return walk


def transaction(entries, *expected):
    """Add a transaction with a row in the tables of these ids; return numbers."""
    kinds = [(BEGIN, 0), *((ROWS, each) for each in expected), (END, 0)]
    return [
        entries.add(
            kind, table_ordinal=table_ordinal, rows=kind == ROWS, event_length=100
        )
        for kind, table_ordinal in kinds
    ]


def picked(walk):
    """Return the numbers of what was picked."""
    slices, size = walk.take()
    assert sum(map(len, slices)) == size
    return numbers_of(slices)


def test_picks_what_passes_the_filter(table_ids):
    """Transactions without selected rows are left out as a whole."""
    entries = Entries()
    red = transaction(entries, 1, 2)
    transaction(entries, 2)
    entries.add(HEARTBEAT)
    both = transaction(entries, 2, 1, 1)
    walk = walk_over(entries, table_ids)
    assert picked(walk) == [red[0], red[1], red[3], both[0], both[2], both[3], both[4]]
    assert (walk.rows, walk.has_found, walk.pending) == (3, True, False)
    assert (walk.file, walk.offset) == ("bin.000001", 100 * both[-1] + 100)


def test_ends_and_starts(table_ids):
    """Only events from the start to the end count, and no more are read."""
    entries = Entries()
    first, second, third = (transaction(entries, 1) for _ in range(3))
    spans = entries.take()
    walk = RangeWalk(
        only_red, table_ids, (1, 100 * second[0]), (1, 100 * third[0]), picks=True
    )
    assert not walk.walk(spans)
    assert walk.is_over
    assert picked(walk) == second
    inside = RangeWalk(
        only_red,
        table_ids,
        (1, 100 * second[1]),
        None,
        begin=(1, 100 * second[0]),
        picks=True,
    )
    inside.walk(spans)
    assert picked(inside) == [*second[1:], *third]
    del first


def test_an_open_transaction_is_no_end(table_ids):
    """A transaction that has not ended is pending, and the range ends before it."""
    entries = Entries()
    whole = transaction(entries, 1)
    entries.add(BEGIN, event_length=100)
    entries.add(ROWS, table_ordinal=1, rows=5, event_length=100)
    walk = walk_over(entries, table_ids)
    assert (walk.rows, walk.pending) == (1, True)
    assert walk.offset == 100 * whole[-1] + 100


@pytest.mark.parametrize(("limit", "rows"), [(1, 2), (2, 2), (3, 2), (4, 4), (9, 6)])
def test_limits_of_rows(table_ids, limit, rows):
    """A range ends within the limit, but has at least one transaction."""
    entries = Entries()
    for _ in range(3):
        transaction(entries, 1, 1)
    walk = walk_over(entries, table_ids, max_rows=limit)
    assert walk.rows == rows
    assert walk.is_over == (limit < 9)


def test_statements(table_ids):
    """A statement outside of transactions is one by itself, and counts as a row."""
    entries = Entries()
    entries.add(OTHER, table_ordinal=1, event_type=ALTER, event_length=100)
    entries.add(OTHER, table_ordinal=2, event_type=ALTER, event_length=100)
    walk = walk_over(entries, table_ids)
    assert (walk.rows, walk.offset) == (1, 200)
    assert picked(walk) == [0]


def test_cuts_between_and_inside_of_transactions(table_ids):
    """Cuts lie after events; inside a transaction they have the end of that."""
    entries = Entries()
    short = transaction(entries, 1, 1)
    long = transaction(entries, 1, 1, 1, 1, 1)
    transaction(entries, 1)
    walk = walk_over(entries, table_ids, cut_rows=2)
    stop, begin = 100 * long[-1] + 100, 100 * short[-1] + 100
    size = 100  # of an event
    assert walk.found_cuts() == [
        ("bin.000001", begin, 0, 2, 4 * size, 0, 0),
        ("bin.000001", 100 * long[3], begin, 4, 7 * size, stop, entries.time),
        ("bin.000001", 100 * long[5], begin, 6, 9 * size, stop, entries.time),
    ]


def test_forgotten_names_are_an_error(table_ids):
    """Entries whose table name is forgotten are an error, not a guess."""
    entries = Entries()
    transaction(entries, 7)
    with pytest.raises(StoreError, match="forgotten"):
        walk_over(entries, table_ids)
