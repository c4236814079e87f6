"""A range split into parts of about as many rows each."""

from __future__ import annotations

import pytest

from canal_server.model.ranges import EpochPosition, RangePart
from canal_server.ranges.range_parts import parts_of

START, END = EpochPosition(2, "bin.000001", 4), EpochPosition(2, "bin.000002", 900)
# Every 10 rows and 100 bytes; those of the second half are inside a transaction.
CUTS = [
    (
        "bin.000001",
        100 * n,
        0 if n < 5 else 500,
        10 * n,
        100 * n,
        0 if n < 5 else 990,
        7,
    )
    for n in range(1, 10)
]
TOTALS = (100, 1000)


def test_without_cuts_there_is_one_part():
    """A range without cuts is read as a whole."""
    assert parts_of(START, END, (5, 50), [], 4) == [RangePart(START, END, 5, 50)]
    assert parts_of(START, END, TOTALS, CUTS, 1) == [RangePart(START, END, *TOTALS)]


@pytest.mark.parametrize("parts", [2, 3, 4, 7, 10, 1000])
def test_parts_are_the_whole(parts):
    """Parts follow each other without a gap, and share the rows fairly."""
    found = parts_of(START, END, TOTALS, CUTS, parts)
    assert len(found) == min(parts, 10)
    assert (found[0].start, found[-1].end) == (START, END)
    assert [each.end for each in found[:-1]] == [each.start for each in found[1:]]
    assert sum(each.rows for each in found) == 100
    assert sum(each.bytes for each in found) == 1000
    assert max(each.rows for each in found) <= 100 / min(parts, 10) + 10


def test_where_a_cut_transaction_ends():
    """A part that ends inside a transaction has the end of that, and its time."""
    first, second, third = parts_of(START, END, TOTALS, CUTS, 3)
    assert first.end == EpochPosition(2, "bin.000001", 400)
    assert (first.commit, first.commit_ms) == (None, 0)
    assert second.end == EpochPosition(2, "bin.000001", 700, 500)
    assert second.commit == EpochPosition(2, "bin.000001", 990)
    assert second.commit_ms == 7000
    assert third.commit is None
