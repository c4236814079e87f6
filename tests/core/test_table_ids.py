"""Numbers for the names that entries are about."""

from __future__ import annotations

import pytest

from canal_server.core.table_ids import NO_TABLE, TableIds


def test_numbers() -> None:
    """Equal names have equal numbers, others another; the number leads back to them."""
    table_ids = TableIds()
    one = table_ids.ordinal_of((("db", "t"),))
    two = table_ids.ordinal_of((("db", "t"), ("db", "u")))
    assert one == table_ids.ordinal_of((("db", "t"),))
    assert len({one, two, NO_TABLE}) == 3
    assert table_ids.names_of(one) == (("db", "t"),)
    assert table_ids.names_of(two) == (("db", "t"), ("db", "u"))
    assert len(table_ids) == 3


def test_no_names() -> None:
    """Entries without a table have the number that every filter passes."""
    table_ids = TableIds()
    assert table_ids.ordinal_of(()) == NO_TABLE
    assert table_ids.names_of(NO_TABLE) == ()


def test_small_numbers() -> None:
    """Numbers have no gaps: they index the verdicts of a filter."""
    table_ids = TableIds()
    found = [table_ids.ordinal_of((("db", str(n)),)) for n in range(100)]
    assert found == list(range(1, 101))


def test_an_epoch_begins_with_too_many_names() -> None:
    """Names get new numbers then; the names of old numbers are still known."""
    table_ids = TableIds(names_max=2)
    old = [table_ids.ordinal_of((("db", name),)) for name in "ab"]
    assert (table_ids.epoch, table_ids.ageing) == (0, False)
    new = [table_ids.ordinal_of((("db", name),)) for name in "cab"]
    assert (table_ids.epoch, table_ids.ageing) == (1, True)
    assert len({*old, *new}) == 5
    assert [table_ids.names_of(each) for each in old] == [
        (("db", "a"),),
        (("db", "b"),),
    ]
    assert table_ids.ordinal_of(()) == NO_TABLE


def test_forgotten_names() -> None:
    """The names of the previous epoch are forgotten on request; others stay."""
    table_ids = TableIds(names_max=2)
    old = [table_ids.ordinal_of((("db", name),)) for name in "ab"]
    new = table_ids.ordinal_of((("db", "c"),))
    table_ids.forget_old()
    assert table_ids.names_of(new) == (("db", "c"),)
    assert len(table_ids) == 2
    with pytest.raises(LookupError, match=f"table id {old[-1]} was forgotten"):
        table_ids.names_of(old[-1])


def test_no_second_epoch_while_names_of_the_first_are_kept() -> None:
    """Only one epoch's old numbers are kept: the next waits until they are dropped."""
    table_ids = TableIds(names_max=2)
    for n in range(9):
        table_ids.ordinal_of((("db", str(n)),))
    assert table_ids.epoch == 1
    table_ids.forget_old()
    last = table_ids.ordinal_of((("db", "8"),))
    assert table_ids.epoch == 1
    assert table_ids.ordinal_of((("db", "9"),)) == last + 1
    assert table_ids.epoch == 2


def test_names_since() -> None:
    """They begin with the requested number, or the lowest that is left."""
    table_ids = TableIds(names_max=2)
    for name in "abcd":
        table_ids.ordinal_of((("db", name),))
    assert table_ids.since(0) == (1, [((("db", name),)) for name in "abcd"])
    assert table_ids.since(4) == (1, [(("db", "d"),)])
    assert table_ids.since(5) == (1, [])
    table_ids.forget_old()
    assert table_ids.since(1) == (3, [(("db", "c"),), (("db", "d"),)])
