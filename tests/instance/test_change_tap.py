"""What a reader follows of a destination: its tables, and nothing of others."""

from __future__ import annotations

from typing import Any, cast

from fix_blocks import BEGIN, END, OTHER, ROWS, numbers_of
from fix_store import StoreUnderTest

from canal_server.instance.change_tap import ChangeTap
from canal_server.instance.stages import Stages
from canal_server.store.head_taps import TOO_SLOW, Skipped


def tap_of(under_test, *tables: str, reads=lambda _: True) -> ChangeTap:
    """Return a tap for tables of schema `s`."""
    stages = Stages(under_test.table_ids, under_test.store, cast("Any", None), {})
    return ChangeTap(stages, under_test.wanting(*tables), reads, lambda: None)


def read_all(tap: ChangeTap) -> tuple[list[int], list[Skipped]]:
    """Return the numbers of the entries that can be read, and what was skipped."""
    numbers, skipped = [], []
    while (tapped := tap.read()) is not None:
        numbers += numbers_of(tapped.bodies)
        skipped += tapped.skipped
    return numbers, skipped


def test_only_its_tables():
    """Rows of others, and transactions without its rows, do not come."""
    under_test = StoreUnderTest()
    entries = under_test.entries
    tap = tap_of(under_test, "a", "b")
    ordinals = {table: under_test.table_ordinal(table) for table in "abc"}
    for tables in ("a", "c", "cb", ""):
        entries.add(BEGIN)
        for table in tables:
            entries.add(ROWS, table_ordinal=ordinals[table])
        entries.add(END)
    entries.add(OTHER, event_type=5, table_ordinal=ordinals["c"])
    entries.add(OTHER, event_type=5, table_ordinal=ordinals["b"])
    entries.add(OTHER, event_type=4)  # names no table
    under_test.put()
    assert read_all(tap) == ([0, 1, 2, 6, 8, 9, 13, 14], [])
    assert tap.read() is None
    assert not tap.closed


def test_tables_that_are_new_to_it():
    """The filter is asked about tables that occur later."""
    under_test = StoreUnderTest()
    tap = tap_of(under_test, "a")
    for number in range(30):
        ordinal = under_test.table_ordinal("a" if number % 3 == 0 else f"t{number}")
        under_test.entries.add(ROWS, table_ordinal=ordinal)
        under_test.put()
    assert read_all(tap)[0] == list(range(0, 30, 3))


def test_names_that_were_forgotten():
    """Entries that are older than the names of their tables are skipped by number."""
    under_test = StoreUnderTest(names_max=2)
    tap = tap_of(under_test, "a")
    under_test.entries.add(ROWS, table_ordinal=under_test.table_ordinal("a"), rows=3)
    under_test.put()
    for number in range(4):
        under_test.table_ordinal(f"t{number}")
    under_test.table_ids.forget_old()
    assert read_all(tap) == ([], [Skipped(TOO_SLOW, 1, 3)])
    under_test.entries.add(ROWS, table_ordinal=under_test.table_ordinal("a"))
    under_test.put()
    assert read_all(tap) == ([1], [])


def test_close():
    """A closed tap gets nothing more, and the store has none."""
    under_test = StoreUnderTest()
    tap = tap_of(under_test, "a", reads=lambda names: names == (("s", "a"),))
    tap.close()
    assert tap.closed
    under_test.entries.transaction(rows=1)
    under_test.put()
    assert tap.read() is None
    assert under_test.store.taps.held_bytes == 0
    assert tap.reads((("s", "a"),))
    assert not tap.reads((("s", "b"),))
