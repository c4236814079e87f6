"""From what a cursor fetched to the batch that its client gets."""

from __future__ import annotations

from fix_blocks import END, ROWS, Entries, numbers_of

from canal_server.model.positions import EntryPosition
from canal_server.store.client_batches import batch_of, position_of
from canal_server.store.cursor import Cursor
from canal_server.store.ring import Ring


def test_a_batch_shows_what_was_fetched():
    """Sequences, bytes, counts and positions are those of the entries."""
    entries = Entries()
    entries.add(ROWS, size=100)
    entries.add(END, size=80, gtid="a:1-5")
    entries.add(ROWS, size=60)
    ring = Ring(8, True, 1000)
    ring.append(entries.take(), 0)
    cursor = Cursor(ring, 1, None)
    cursor.scan()
    received = cursor.fetch(99, 9999, 9999, False)
    assert received is not None
    batch = batch_of(received)
    assert (batch.first_sequence, batch.last_sequence) == (0, 2)
    assert (batch.count, batch.size) == (3, 240)
    assert numbers_of(batch.slices) == [0, 1, 2]
    assert batch.start == EntryPosition("bin.000001", 0, entries.time * 1000, 7)
    assert batch.ack == EntryPosition(
        "bin.000001", 100, entries.time * 1000, 7, gtid="a:1-5"
    )
    assert batch.end == EntryPosition("bin.000001", 200, entries.time * 1000, 7)


def test_an_empty_gtid_is_none():
    """A position of an entry without GTID has none."""
    position = ("bin.000001", 4, 1000, 7, "", None)
    assert position_of(position) == EntryPosition("bin.000001", 4, 1000, 7, None)
