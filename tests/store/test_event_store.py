"""The event store as its callers see it, in one thread."""

from __future__ import annotations

from typing import Any

import pytest
from fix_blocks import (
    ALTER,
    BEGIN,
    END,
    ENTRY_BYTES,
    OTHER,
    QUERY,
    ROWS,
    Entries,
    numbers_of,
)
from fix_store import StoreUnderTest

from canal_server.config.schema import BatchMode
from canal_server.errors import EntryTooLarge, StoreError
from canal_server.model.positions import EntryPosition
from canal_server.store.cursor import Cursor
from canal_server.store.event_store import FRAME_BYTES_MAX, MemoryEventStore
from canal_server.store.ring import Ring
from canal_server.store.waiting import UNLIMITED

CLIENT = 1001


def got(batch) -> list[int]:
    """Return the numbers of a batch's entries; checks its count and size."""
    assert batch is not None
    numbers = numbers_of(batch.slices)
    assert len(numbers) == batch.count
    assert sum(len(piece) for piece in batch.slices) == batch.size
    return numbers


def test_gives_out_what_was_put():
    """A batch holds the entries in order, with its start and end."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=2)
    assert t.put()

    batch = t.get(CLIENT, 10)

    assert got(batch) == [0, 1, 2, 3]
    assert (batch.first_sequence, batch.last_sequence) == (0, 3)
    assert batch.start == EntryPosition("bin.000001", 0, 1_000_000_000, 7)
    assert batch.end == EntryPosition("bin.000001", 300, 1_000_000_000, 7)
    assert batch.ack == batch.end
    assert t.store.get(CLIENT, 10, 0) is None


def test_a_batch_has_at_most_the_size_asked_for():
    """In ITEMSIZE mode the size counts entries."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=8)
    t.put()
    assert got(t.store.get(CLIENT, 4, 0)) == [0, 1, 2, 3]
    assert got(t.store.get(CLIENT, 4, 0)) == [4, 5, 6, 7]
    assert got(t.store.get(CLIENT, 4, 0)) == [8, 9]


def test_memsize_may_exceed_by_one_entry():
    """In MEMSIZE mode entries are fetched while the sum is within size times unit."""
    t = StoreUnderTest(batch_mode=BatchMode.MEMSIZE, memunit=ENTRY_BYTES)
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=8)
    t.put()
    assert got(t.store.get(CLIENT, 3, 0)) == [0, 1, 2, 3]


def test_an_entry_larger_than_the_batch_is_given_out():
    """A batch has at least one entry, whatever its bytes."""
    t = StoreUnderTest(batch_mode=BatchMode.MEMSIZE, memunit=1)
    t.store.subscribe(CLIENT, None, None)
    t.entries.add(ROWS, size=5000)
    t.entries.add(ROWS, size=5000)
    t.put()
    assert got(t.store.get(CLIENT, 1, 0)) == [0]


def test_without_raw_entries_the_event_counts():
    """An entry then weighs six times its event in the binlog."""
    t = StoreUnderTest(batch_mode=BatchMode.MEMSIZE, memunit=180, raw_entry=False)
    t.store.subscribe(CLIENT, None, None)
    for _ in range(5):
        t.entries.add(ROWS, event_length=30)
    t.put()
    assert t.store.counts().put_bytes == 5 * 180
    assert got(t.store.get(CLIENT, 2, 0)) == [0, 1, 2]


def test_a_huge_batch_size_does_not_overflow():
    """The largest number that a client can send gets everything."""
    t = StoreUnderTest(batch_mode=BatchMode.MEMSIZE, memunit=2**31 - 1)
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=3)
    t.put()
    assert got(t.store.get(CLIENT, 2**31 - 1, 0)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_size_below_one_is_refused(size):
    """The store leaves the default size to its caller."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    with pytest.raises(StoreError, match="at least 1"):
        t.store.get(CLIENT, size, 0)


def test_a_batch_fits_in_a_frame():
    """A batch ends before the bytes of a frame are exceeded."""
    t = StoreUnderTest()
    store = MemoryEventStore(
        t.config, t.table_ids, t.entries.pool, frame_bytes_max=3 * ENTRY_BYTES
    )
    store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=4)
    store.put(t.entries.take(), t.stop)
    assert got(store.get(CLIENT, 100, 0)) == [0, 1, 2]


def test_an_entry_too_large_for_a_frame_is_named():
    """It stops the pump with an error that names the entry's position."""
    t = StoreUnderTest()
    store = MemoryEventStore(
        t.config, t.table_ids, t.entries.pool, frame_bytes_max=1000
    )
    t.entries.add(BEGIN)
    t.entries.add(ROWS, size=1001)
    with pytest.raises(EntryTooLarge, match=r"1001 bytes at bin\.000001:100 .*1000"):
        store.put(t.entries.take(), t.stop)


# -- ack and rollback -----------------------------------------------------------------


def test_rollback_gives_everything_unacked_again():
    """After a rollback the client gets again what it did not ack."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=4)
    t.put()
    first = t.get(CLIENT, 2)
    t.store.get(CLIENT, 2, 0)
    t.store.ack(CLIENT, first.last_sequence)
    t.store.rollback(CLIENT)
    assert got(t.store.get(CLIENT, 100, 0)) == [2, 3, 4, 5]


@pytest.mark.parametrize("sequence", [-1, 1, 4, 2**63])
def test_an_ack_must_be_of_an_open_batch(sequence):
    """What was acked before or never got is refused, and nothing moves."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=4)
    t.put()
    t.ack_next(CLIENT, 2)
    t.store.get(CLIENT, 2, 0)
    with pytest.raises(StoreError, match="unacked 2 to 3"):
        t.store.ack(CLIENT, sequence)
    t.store.ack(CLIENT, 3)
    assert got(t.store.get(CLIENT, 100, 0)) == [4, 5]


def test_a_client_without_a_cursor_is_refused():
    """Get, ack and rollback need a subscription."""
    t = StoreUnderTest()
    for call in (
        lambda: t.store.get(CLIENT, 1, 0),
        lambda: t.store.ack(CLIENT, 0),
        lambda: t.store.rollback(CLIENT),
        lambda: t.store.resume_position(CLIENT),
    ):
        with pytest.raises(StoreError, match="client 1001 has no cursor"):
            call()


@pytest.mark.parametrize(
    ("kind", "fields", "resumable"),
    [
        (END, {}, True),
        (BEGIN, {}, True),
        (BEGIN, {"gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"}, False),
        (ROWS, {}, False),
        (OTHER, {"event_type": QUERY}, False),
        *((OTHER, {"event_type": ddl}, True) for ddl in (4, 5, 6, 8, 9, 10, 11)),
        (OTHER, {"event_type": 13}, False),
    ],
)
def test_where_a_client_may_resume(kind, fields, resumable):
    """The ack position is the batch's last END, BEGIN without GTID, or DDL."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    t.entries.add(kind, **fields)
    t.entries.add(ROWS)
    t.put()
    batch = t.get(CLIENT, 10)
    assert batch.start.gtid == fields.get("gtid")
    assert batch.ack == (batch.start if resumable else None)


def test_resume_position():
    """It is the last boundary before a client's entries, even one that was freed."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    assert t.store.resume_position(CLIENT) is None
    t.entries.transaction(rows=2)
    t.entries.transaction(rows=2)
    t.put()
    assert t.store.resume_position(CLIENT) is None
    t.ack_next(CLIENT, 3)
    assert t.store.resume_position(CLIENT) is None
    t.ack_next(CLIENT, 3)
    # Inside the second transaction, everything before is freed.
    assert t.resume_offset(CLIENT) == 300
    t.store.subscribe(CLIENT + 1, None, None)
    assert t.resume_offset(CLIENT + 1) == 300
    t.ack_next(CLIENT, 3)
    assert t.resume_offset(CLIENT) == 700
    assert t.resume_offset(CLIENT + 1) == 300


# -- DDL isolation --------------------------------------------------------------------


def test_ddl_isolation():
    """A DDL is alone in its batch."""
    t = StoreUnderTest(ddl_isolation=True, batch_mode=BatchMode.MEMSIZE)
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=1)
    t.entries.add(OTHER, event_type=ALTER)
    t.entries.add(OTHER, event_type=QUERY)
    t.entries.transaction(rows=1)
    t.put()
    assert got(t.store.get(CLIENT, 100, 0)) == [0, 1, 2]
    assert got(t.store.get(CLIENT, 100, 0)) == [3]
    assert got(t.store.get(CLIENT, 100, 0)) == [4, 5, 6, 7]


def test_bytes_of_an_isolated_ddl_are_no_longer_available():
    """After a DDL was fetched alone, no byte is left to be got."""
    entries = Entries()
    ring = Ring(64, True, FRAME_BYTES_MAX)
    cursor = Cursor(ring, CLIENT, None)
    entries.transaction(rows=1)
    entries.add(OTHER, event_type=ALTER)
    entries.transaction(rows=1)
    ring.append(entries.take(), 0)
    cursor.scan()
    left = []
    while cursor.fetch(UNLIMITED, UNLIMITED, FRAME_BYTES_MAX, True):
        left.append(cursor.available_bytes)
    assert left == [4 * ENTRY_BYTES, 3 * ENTRY_BYTES, 0]


def test_without_isolation_a_ddl_is_an_entry_like_others():
    """By default a batch continues over a DDL."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=1)
    t.entries.add(OTHER, event_type=ALTER)
    t.put()
    assert got(t.store.get(CLIENT, 100, 0)) == [0, 1, 2, 3]


# -- room -----------------------------------------------------------------------------


def test_a_full_ring_takes_nothing_before_an_ack():
    """Entries fit only when all of them do; got but unacked ones hold their slots."""
    t = StoreUnderTest(buffer_size=8)
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=4)
    assert t.put()
    batch = t.get(CLIENT, 2)
    t.entries.transaction(rows=1)
    assert not t.try_put()
    t.store.ack(CLIENT, batch.last_sequence)
    t.entries.transaction(rows=3)
    assert not t.try_put()
    t.entries.transaction(rows=2)
    assert t.try_put()


def test_memsize_limits_the_bytes():
    """When size times unit is reached nothing is put; one chunk may exceed it."""
    t = StoreUnderTest(buffer_size=8, batch_mode=BatchMode.MEMSIZE, memunit=100)
    t.store.subscribe(CLIENT, None, None)
    t.entries.add(ROWS, size=799)
    assert t.try_put()
    t.entries.add(ROWS, size=5000)
    assert t.try_put()
    t.entries.add(ROWS)
    assert not t.try_put()
    t.ack_next(CLIENT, 1)
    t.ack_next(CLIENT, 1)
    t.entries.add(ROWS)
    assert t.try_put()


def test_itemsize_does_not_limit_the_bytes():
    """In ITEMSIZE mode only slots count."""
    t = StoreUnderTest(buffer_size=8, memunit=1)
    t.entries.add(ROWS, size=5000)
    assert t.try_put()
    t.entries.add(ROWS, size=5000)
    assert t.try_put()


def test_blocks_limit_the_bytes_whatever_the_mode():
    """The real size of blocks is limited, too, but never stops an empty ring."""
    t = StoreUnderTest(block_bytes_max=1000)
    t.store.subscribe(CLIENT, None, None)
    t.entries.add(ROWS)
    assert t.try_put()
    t.entries.add(ROWS)
    assert not t.try_put()
    t.ack_next(CLIENT, 9)
    t.entries.add(ROWS)
    assert t.try_put()


def test_without_a_client_entries_stay():
    """Entries that no client has got wait for the first one, up to the ring's size."""
    t = StoreUnderTest(buffer_size=4)
    t.entries.transaction(rows=2)
    assert t.try_put()
    t.entries.add(ROWS)
    assert not t.try_put()
    t.store.subscribe(CLIENT, None, None)
    assert got(t.store.get(CLIENT, 9, 0)) == [0, 1, 2, 3]


def test_the_slowest_client_holds_the_ring():
    """Each client has its own cursor, and a slot is freed when all have acked it."""
    t = StoreUnderTest(buffer_size=4)
    t.store.subscribe(1, None, None)
    t.store.subscribe(2, None, None)
    t.entries.transaction(rows=2)
    t.put()
    t.ack_next(1, 9)
    t.entries.transaction(rows=2)
    assert not t.try_put()
    assert got(t.store.get(2, 9, 0)) == [0, 1, 2, 3]
    t.store.unsubscribe(2)
    t.entries.transaction(rows=2)
    assert t.try_put()
    assert got(t.store.get(1, 9, 0)) == [8, 9, 10, 11]


def test_the_last_client_leaves_its_entries():
    """When the only client unsubscribes, what it had not acked waits for the next."""
    t = StoreUnderTest(buffer_size=8)
    t.store.subscribe(1, None, None)
    t.entries.transaction(rows=2)
    t.put()
    t.ack_next(1, 1)
    t.store.unsubscribe(1)
    t.store.unsubscribe(1)
    t.store.subscribe(2, None, None)
    assert got(t.store.get(2, 9, 0)) == [1, 2, 3]


def test_a_new_client_starts_at_the_oldest_entry():
    """It gets what the ring still holds, not what was freed before."""
    t = StoreUnderTest()
    t.store.subscribe(1, None, None)
    t.entries.transaction(rows=2)
    t.put()
    t.ack_next(1, 2)
    t.store.subscribe(2, None, None)
    assert got(t.store.get(2, 9, 0)) == [2, 3]


def test_more_entries_than_slots_go_in_parts():
    """A list longer than the ring is put in parts as room becomes free."""
    t = StoreUnderTest(buffer_size=8)
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=18)
    assert not t.try_put()
    assert got(t.store.get(CLIENT, 99, 0)) == list(range(8))


# -- after, close, counts -------------------------------------------------------------


def after(number: int, file: str = "bin.000001") -> EntryPosition:
    """Return the position of entry `number`."""
    return EntryPosition(file, number * 100)


def test_entries_up_to_the_position_are_skipped():
    """A client that acked an END gets what follows it."""
    t = StoreUnderTest()
    t.entries.transaction(rows=2)
    t.entries.transaction(rows=2)
    t.put()
    t.store.subscribe(CLIENT, None, after(3))
    assert got(t.store.get(CLIENT, 9, 0)) == [4, 5, 6, 7]


def test_the_begin_at_the_position_is_given():
    """A client that acked a BEGIN gets it again, with its rows."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, after(4))
    t.entries.transaction(rows=2)
    t.put()
    assert t.store.get(CLIENT, 9, 0) is None
    t.entries.transaction(rows=2)
    t.put()
    assert got(t.store.get(CLIENT, 9, 0)) == [4, 5, 6, 7]


def test_a_compressed_transaction_at_the_position_is_given():
    """Its entries share one offset, so that an ack inside does not say how far."""
    t = StoreUnderTest()
    for ordinal, kind in enumerate([BEGIN, ROWS, ROWS, END]):
        t.entries.add(kind, offset=500, ordinal=ordinal)
    t.put()
    t.store.subscribe(CLIENT, None, after(5))
    assert got(t.store.get(CLIENT, 9, 0)) == [0, 1, 2, 3]


def test_later_entries_of_the_event_at_the_position_are_given():
    """Of an event with several entries only the first is known to be acked."""
    t = StoreUnderTest()
    for ordinal in range(3):
        t.entries.add(OTHER, event_type=ALTER, offset=500, ordinal=ordinal)
    t.put()
    t.store.subscribe(CLIENT, None, after(5))
    assert got(t.store.get(CLIENT, 9, 0)) == [1, 2]


def test_files_are_ordered_by_number():
    """A position in a later file skips earlier files entirely."""
    t = StoreUnderTest()
    t.entries.rotate("bin.999999", 999999)
    t.entries.transaction(rows=1)
    t.entries.rotate("bin.1000000", 1000000)
    t.entries.transaction(rows=1, table_ordinal=0)
    t.put()
    t.store.subscribe(CLIENT, None, after(4, "bin.1000000"))
    assert got(t.store.get(CLIENT, 9, 0)) == [5]


def test_what_is_skipped_frees_the_ring():
    """A client whose position is ahead does not retain what it will not get."""
    t = StoreUnderTest(buffer_size=4)
    t.store.subscribe(CLIENT, None, after(11))
    for _ in range(4):
        t.entries.transaction(rows=2)
        assert t.try_put()
    assert got(t.store.get(CLIENT, 9, 0)) == [12, 13, 14, 15]


def test_a_position_without_a_file_skips_nothing():
    """A cursor known by GTID alone cannot be compared with offsets."""
    t = StoreUnderTest()
    t.entries.transaction(rows=1)
    t.put()
    t.store.subscribe(CLIENT, None, EntryPosition(gtid="a:1-5"))
    assert got(t.store.get(CLIENT, 9, 0)) == [0, 1, 2]


def test_close_drops_everything():
    """A closed store accepts and delivers nothing, and holds no blocks."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=1)
    t.put()
    t.store.close()
    t.entries.transaction(rows=1)
    assert not t.put()
    assert t.store.get(CLIENT, 9, None) is None
    assert t.store.counts().cursors == ()
    assert t.held() == 0


def test_slices_outlive_the_ring():
    """A batch's bytes stay readable after its entries were freed."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=3)
    t.put()
    batch = t.get(CLIENT, 9)
    t.store.ack(CLIENT, batch.last_sequence)
    t.store.close()
    assert got(batch) == [0, 1, 2, 3, 4]


def test_blocks_go_back_to_their_pool():
    """What is acked and no longer sent holds no memory."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    for _ in range(4):
        t.entries.add(ROWS, size=60_000)
    t.put()
    before = t.store.counts().block_bytes
    t.ack_next(CLIENT, 9)
    assert before == 4 * t.entries.pool.block_size
    assert t.store.counts().block_bytes == t.entries.pool.block_size


def test_counts():
    """The numbers cover puts and the client that lags most."""
    t = StoreUnderTest()
    t.store.subscribe(1, None, None)
    t.store.subscribe(2, None, None)
    empty = t.store.counts()
    assert (empty.put_sequence, empty.get_sequence, empty.ack_sequence) == (-1, -1, -1)
    t.entries.transaction(rows=2)
    t.put()
    t.ack_next(1, 9)
    t.ack_next(2, 2)
    t.store.get(2, 1, 0)
    counts = t.store.counts()
    assert (counts.put_sequence, counts.get_sequence, counts.ack_sequence) == (3, 2, 1)
    assert (counts.put_rows, counts.get_rows, counts.ack_rows) == (2, 2, 1)
    assert counts.put_bytes == 4 * ENTRY_BYTES
    assert counts.ack_bytes == 2 * ENTRY_BYTES
    assert counts.put_time_ms == counts.get_time_ms == t.entries.time * 1000
    assert [(c.client_id, c.ack_sequence) for c in counts.cursors] == [(1, 3), (2, 1)]


class Looked(dict[int, Any]):
    """A store's cursors, which counts the passes over all of them."""

    walks = 0

    def values(self):
        """Count a pass."""
        self.walks += 1
        return super().values()


def test_idle_cursors_cost_others_nothing(monkeypatch):
    """While one client is idle, no get or ack of others passes over all clients."""
    t = StoreUnderTest(buffer_size=1024)
    t.store.subscribe(1, None, None)
    for client_id in range(2, 500):
        t.store.subscribe(client_id, t.wanting(), None)
    cursors = Looked(t.store._cursors)
    monkeypatch.setattr(t.store, "_cursors", cursors)
    t.entries.transaction(rows=1)
    t.put()
    t.ack_next(1, 99)
    cursors.walks = 0
    for _ in range(100):
        t.entries.transaction(rows=1)
        t.put()
        t.ack_next(1, 99)
    assert cursors.walks == 0
