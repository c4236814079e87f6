"""What several filters accept together: answers that last, and a limit of steps."""

from __future__ import annotations

import pytest

from canal_server.filters.filter_union import KNOWN_MAX, NAMES_MAX, FilterUnion
from canal_server.filters.table_filters import TableFilter

A, B, C = ((("a", "t"),), (("b", "t"),), (("c", "t"),))
COSTLY_ON_Z = "(?=z*(?=z*(?=z*y)y)y).*"  # on names of many z


class Counted(TableFilter):
    """A filter that counts how often the union asks it."""

    asked = 0

    def accepts_within(self, names, steps):
        """Count, and answer."""
        self.asked += 1
        return super().accepts_within(names, steps)


def test_union():
    """A union accepts what one of its filters accepts."""
    table_filter = FilterUnion([TableFilter(r"a\..*", ""), TableFilter(r"b\..*", "")])
    assert table_filter(A)
    assert table_filter(B)
    assert not table_filter(C)
    assert table_filter(())
    assert FilterUnion([])(())
    assert not FilterUnion([])(C)


def test_each_filter_is_asked_once_about_a_table():
    """Tables that are met again, and equal filters, cost nothing."""
    mine = Counted(r"a\..*", "")
    table_filter = FilterUnion([mine] * 5_000)
    for _ in range(3):
        assert table_filter(A)
        assert not table_filter(B)
    assert mine.asked == 2


def test_added_filter_is_asked_by_whoever_brings_it():
    """The pump finds what another filter says of the tables that were met so far."""
    first = Counted(r"a\..*", "")
    before = FilterUnion([first])
    assert [before(A), before(B), before(C)] == [True, False, False]
    added = Counted(r"b\..*", "")
    after = FilterUnion([first, added], before, {added: before.judged_by(added)})
    first.asked = 0
    assert [after(A), after(B), after(C)] == [True, True, False]
    assert (first.asked, added.asked) == (0, 0)
    assert before.judged_by(first) == {}


def test_added_filter_that_nobody_asked_is_asked_later():
    """Without answers an added filter is asked when its tables are met again."""
    before = FilterUnion([TableFilter(r"a\..*", "")])
    assert not before(B)
    assert FilterUnion([TableFilter(r"b\..*", "")], before)(B)


def test_removed_filter():
    """What only that one accepted is rejected, what others reject stays so."""
    kept, removed = Counted(r"a\..*", ""), TableFilter(r".*\.t", "")
    before = FilterUnion([kept, removed])
    assert [before(A), before(B)] == [True, True]
    after = FilterUnion([kept], before)
    assert [after(A), after(B)] == [True, False]
    again = FilterUnion([kept], after)
    kept.asked = 0
    assert again(B) is False
    assert kept.asked == 0


def test_steps_are_limited_for_all_together(caplog):
    """If filters are too slow together, a table counts as accepted; logged once."""
    costly = [TableFilter(f"{COSTLY_ON_Z}{i}", "") for i in range(50)]
    table_filter = FilterUnion(costly)
    assert table_filter((("z" * 64, "z" * 64),))
    assert table_filter((("z" * 64, "z" * 63),))
    assert not table_filter(A)
    assert caplog.text.count("take more than") == 1


def test_long_lists_have_steps_enough():
    """Thousands of filters with thousands of simple pieces are evaluated exactly."""
    many = [
        TableFilter(",".join(rf"d{i}\.t{j}_.*" for j in range(20)), "")
        for i in range(300)
    ]
    table_filter = FilterUnion(many)
    assert not table_filter((("d299", "x"),))
    assert table_filter((("d299", "t19_1"),))


@pytest.mark.parametrize("count", [KNOWN_MAX + 5])
def test_memory_is_limited(count):
    """Answers are kept of so many tables, and of no statement with many names."""
    mine = Counted(r"a\..*", "")
    table_filter = FilterUnion([mine])
    for i in range(count):
        table_filter((("b", f"t{i}"),))
    assert len(table_filter.judged_by(TableFilter("x", ""))) <= KNOWN_MAX
    many = tuple(("b", f"t{i}") for i in range(NAMES_MAX + 1))
    mine.asked = 0
    assert not table_filter(many)
    assert not table_filter(many)
    assert mine.asked == 2
