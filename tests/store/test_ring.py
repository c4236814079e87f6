"""The slots of the event store."""

from __future__ import annotations

import pytest
from fix_blocks import BEGIN, ENTRY_BYTES, ROWS, Entries

from canal_server.core.blocks import BlockPool
from canal_server.errors import EntryTooLarge
from canal_server.store.ring import Ring, bytes_in_use


@pytest.fixture
def entries():
    """Make entries in blocks of ordinary size."""
    return Entries()


def test_sequences_count_entries(entries):
    """What is put and freed is counted, with bytes, rows and times."""
    ring = Ring(8, True, 1000)
    entries.transaction(rows=3)
    ring.append(entries.take(), 0)
    ring.free_before(2)
    ring.free_before(1)
    assert (ring.put_sequence, ring.free_sequence, ring.held) == (5, 2, 3)
    assert (ring.put_bytes, ring.free_bytes) == (5 * ENTRY_BYTES, 2 * ENTRY_BYTES)
    assert ring.held_bytes == 3 * ENTRY_BYTES
    assert (ring.put_rows, ring.free_rows) == (3, 1)
    assert ring.put_time == ring.free_time == entries.time


def test_slots_are_used_again(entries):
    """The ring wraps around, and each sequence finds its own entry."""
    ring = Ring(4, True, 1000)
    for turn in range(10):
        for _ in range(3):
            entries.add(ROWS)
        ring.append(entries.take(), 0)
        assert [ring.position(3 * turn + i)[1] for i in range(3)] == [
            100 * (3 * turn + i) for i in range(3)
        ]
        ring.free_before(ring.put_sequence)


def test_more_than_fits_is_a_mistake(entries):
    """The caller of append has made sure of room."""
    ring = Ring(4, True, 1000)
    entries.transaction(rows=3)
    with pytest.raises(AssertionError):
        ring.append(entries.take(), 0)


def test_a_freed_entry_has_no_position(entries):
    """Asking for an entry that is not in the ring is a mistake."""
    ring = Ring(4, True, 1000)
    entries.transaction(rows=1)
    ring.append(entries.take(), 0)
    ring.free_before(1)
    for sequence in (0, 3):
        with pytest.raises(AssertionError):
            ring.position(sequence)
    with pytest.raises(AssertionError):
        ring.free_before(4)


def test_entries_before_one_that_is_too_large_stay(entries):
    """The error names the position; earlier entries are in the ring."""
    ring = Ring(4, True, 1000)
    entries.add(BEGIN)
    entries.add(ROWS, size=1001)
    with pytest.raises(EntryTooLarge, match=r"bin\.000001:100"):
        ring.append(entries.take(), 0)
    assert ring.held == 1


@pytest.mark.parametrize("size", [0, 3, 1000])
def test_size_is_a_power_of_two(size):
    """Any other size is refused."""
    with pytest.raises(ValueError, match="power of two"):
        Ring(size, True, 1000)


def test_a_span_beyond_its_block_is_refused(entries):
    """The ring never names a record that does not exist."""
    ring = Ring(8, True, 1000)
    entries.transaction(rows=1)
    [(block, first, stop)] = entries.take()
    with pytest.raises(IndexError):
        ring.append([(block, first, stop + 1)], 0)


def test_the_ring_keeps_and_frees_blocks():
    """A block lives as long as one of its entries is in a live ring."""
    pool = BlockPool(64 * 1024)
    entries = Entries(pool)
    ring = Ring(8, True, 100_000)
    for _ in range(3):
        entries.add(ROWS, size=60_000)
    ring.append(entries.take(), 0)
    del entries
    assert bytes_in_use(pool) == 3 * 64 * 1024
    ring.free_before(2)
    assert bytes_in_use(pool) == 64 * 1024
    del ring
    assert bytes_in_use(pool) == 0
    assert pool.held == 3 * 64 * 1024
