"""Runs of neighbouring records: spans and slices."""

from __future__ import annotations

import pytest
from fix_blocks import ROWS, Entries, numbers_in, numbers_of

from canal_server.core.blocks import BlockPool
from canal_server.core.runs import merge, slices


def singles(spans):
    """Cut spans into spans of one record each."""
    return [(b, i, i + 1) for b, first, stop in spans for i in range(first, stop)]


def test_neighbours_merge():
    """Records that lie end to end in one block become one span."""
    entries = Entries(records_per_block=5)
    for _ in range(12):
        entries.add(ROWS)
    spans = entries.take()
    assert len(spans) == 3
    assert merge(singles(spans)) == spans


def test_gaps_stay():
    """Records that are separate, or in another order, stay separate."""
    entries = Entries()
    for _ in range(4):
        entries.add(ROWS)
    [(block, _, _)] = entries.take()
    apart = [(block, 0, 1), (block, 2, 3), (block, 1, 2)]
    assert merge(apart) == apart
    assert merge([]) == []
    assert merge([(block, 2, 2)]) == []


def test_a_large_run_is_not_copied():
    """Its slice is a view of the block."""
    entries = Entries()
    for _ in range(100):
        entries.add(ROWS)
    [span] = entries.take()
    [view] = slices([span])
    assert view.obj is span[0]
    assert numbers_of([view]) == list(range(100))


def test_a_single_small_run_is_not_copied():
    """Without a small neighbour to join there is no reason to copy."""
    entries = Entries()
    entries.add(ROWS)
    [span] = entries.take()
    [view] = slices([span])
    assert view.obj is span[0]
    assert slices([]) == ()


def test_small_runs_are_joined():
    """Small neighbours become one slice of new bytes, between views of large ones."""
    entries = Entries(BlockPool(256 * 1024))
    for _ in range(1000):
        entries.add(ROWS)
    [(block, _, _)] = entries.take()
    chosen = [(block, 0, 200), *((block, i, i + 1) for i in range(300, 320, 2))]
    chosen.append((block, 400, 600))
    views = slices(chosen)
    assert [view.obj is block for view in views] == [True, False, True]
    assert numbers_of(views) == numbers_in(chosen)


@pytest.mark.parametrize("size", [64, 5000])
def test_the_number_of_slices_is_bounded(size):
    """Even runs that are large by themselves make fewer than 512 slices."""
    entries = Entries(BlockPool(16 * 1024 * 1024))
    for _ in range(2000):
        entries.add(ROWS, size=size)
    [(block, _, _)] = entries.take()
    chosen = [(block, i, i + 1) for i in range(0, 2000, 2)]
    views = slices(chosen)
    assert len(views) < 512
    assert numbers_of(views) == list(range(0, 2000, 2))


def test_random_choices_keep_bytes_and_order(rng):
    """For any choice of records, the slices hold exactly their bytes."""
    for _ in range(30):
        entries = Entries(BlockPool(64 * 1024), records_per_block=rng.choice([3, 1000]))
        for _ in range(400):
            entries.add(ROWS, size=rng.choice([60, 60, 60, 6000]))
        spans = singles(entries.take())
        chosen = [span for span in spans if rng.random() < rng.choice([0.2, 0.9])]
        merged = merge(chosen)
        assert singles(merged) == chosen
        assert b"".join(slices(chosen)) == b"".join(
            block.slice(first, stop) for block, first, stop in merged
        )
        assert len(slices(chosen)) < 512
