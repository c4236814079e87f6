"""Entries of several sources in one store: positions of each, kept apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fix_blocks import ALTER, END, OTHER, ROWS, Entries, numbers_of

from canal_server.config.schema import BatchMode, StoreConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import TableIds
from canal_server.model.positions import EntryPosition
from canal_server.runtime.lifecycle import Stop
from canal_server.store.event_store import MemoryEventStore

CLIENT = 1001


class Sources:
    """A store for a group, and entries of its sources to put into it."""

    def __init__(self, count: int, **changes) -> None:
        config = replace(
            StoreConfig(buffer_size=64, batch_mode=BatchMode.ITEMSIZE), **changes
        )
        self.pool = BlockPool(4096)
        self.table_ids = TableIds()
        self.store = MemoryEventStore(config, self.table_ids, self.pool, grouped=True)
        self.of = {
            number: Entries(self.pool.of_source(number), file=f"bin{number}.000007")
            for number in range(1, count + 1)
        }
        for number, entries in self.of.items():
            entries.rotate(f"bin{number}.000007", 7)
            entries.next_number = 1000 * number

    def put(
        self, number: int, transactions: int = 1, *, table_ordinal: int = 0
    ) -> None:
        """Put transactions of one row each."""
        for _ in range(transactions):
            self.of[number].transaction(1, table_ordinal=table_ordinal)
        assert self.store.put(self.of[number].take(), Stop())

    def get(self, count: int = 99, client: int = CLIENT):
        """Get without waiting; None when there is nothing."""
        return self.store.get(client, count, 0)


def offsets(positions: dict[int, EntryPosition]) -> dict[int, int]:
    """Return by source which of its entries, by number, a position is at."""
    return {
        number: (position_at.position or 0) // 100
        for number, position_at in positions.items()
    }


@pytest.fixture
def two() -> Sources:
    """Return a store with two sources, and a client without a filter."""
    made = Sources(2)
    made.store.subscribe(CLIENT, None, None)
    return made


def test_sources_of_blocks():
    """A source's blocks have its number; their memory counts in the common pool."""
    sources = Sources(2)
    for number, entries in sources.of.items():
        entries.transaction(1)
        ((block, _, _),) = entries.take()
        assert block.source_number == number
    own = sources.pool.of_source(1)
    entries = Entries(own)
    entries.transaction(1)
    assert own.held == 0
    assert sources.pool.held >= sources.pool.block_size


def test_positions_of_a_batch(two):
    """An ack of a batch has for each source the position of its last boundary."""
    two.put(1)
    two.put(2, 2)
    two.put(1)
    first = two.get(5)
    assert offsets(first.source_positions) == {1: 1002}
    assert first.source_positions[1].journal_name == "bin1.000007"
    second = two.get(99)
    assert offsets(second.source_positions) == {1: 1005, 2: 2005}
    assert second.ack == second.source_positions[1]


def test_boundaries_only(two):
    """An unfinished transaction moves no position; a statement outside of one does."""
    two.put(1)
    two.of[2].add(OTHER, event_type=ALTER)
    two.of[2].add(ROWS)
    two.store.put(two.of[2].take(), Stop())
    assert offsets(two.get().source_positions) == {1: 1002, 2: 2000}
    two.of[2].add(END)
    two.store.put(two.of[2].take(), Stop())
    assert offsets(two.get().source_positions) == {1: 1002, 2: 2002}


def test_rejected_entries_count(two):
    """What a filter rejects of a source moves its position as well."""
    two.store.unsubscribe(CLIENT)
    two.store.subscribe(CLIENT, lambda names: names == (("s", "selected"),), None)
    expected = two.table_ids.ordinal_of((("s", "selected"),))
    other = two.table_ids.ordinal_of((("s", "other"),))
    # One without passing rows passes occasionally, as the first one does.
    two.put(2, 3, table_ordinal=other)
    two.put(1, table_ordinal=expected)
    batch = two.get()
    assert numbers_of(batch.slices) == [2000, 2002, 1000, 1001, 1002]
    assert offsets(batch.source_positions) == {1: 1002, 2: 2008}


def test_skipped_and_freed_entries_count(two):
    """Even when they were removed from the ring before the next batch."""
    two.store.unsubscribe(CLIENT)
    two.store.subscribe(CLIENT, lambda names: names == (("s", "selected"),), None)
    expected = two.table_ids.ordinal_of((("s", "selected"),))
    other = two.table_ids.ordinal_of((("s", "other"),))
    two.put(2, 1, table_ordinal=other)
    two.store.ack(CLIENT, two.get().last_sequence)
    two.put(2, 60, table_ordinal=other)  # more than fits next to what was
    assert two.get() is None
    two.put(1, table_ordinal=expected)
    assert offsets(two.get().source_positions) == {1: 1002, 2: 2182}


def test_rollback(two):
    """What was rolled back moves no position until it is got again."""
    two.put(1)
    two.put(2)
    two.store.ack(CLIENT, two.get(3).last_sequence)
    assert offsets(two.get().source_positions) == {1: 1002, 2: 2002}
    two.store.rollback(CLIENT)
    assert offsets(two.get(2).source_positions) == {1: 1002}


def test_resume_positions(two):
    """They are the boundaries after which a client's entries come, even freed ones."""
    assert two.store.resume_positions(CLIENT) == {}
    two.put(1)
    two.put(2)
    assert two.store.resume_positions(CLIENT) == {}
    two.store.ack(CLIENT, two.get(3).last_sequence)
    assert offsets(two.store.resume_positions(CLIENT)) == {1: 1002}
    two.store.ack(CLIENT, two.get().last_sequence)
    two.put(1)
    assert offsets(two.store.resume_positions(CLIENT)) == {1: 1002, 2: 2002}


def position_at(number: int, entry: int) -> EntryPosition:
    """Return the position of an entry."""
    return EntryPosition(f"bin{number}.000007", entry * 100)


def test_each_source_begins_after_its_position(two):
    """Entries at or before a client's position in their source are not delivered."""
    two.store.subscribe(2, None, {1: position_at(1, 1005), 2: position_at(2, 2002)})
    two.put(1)
    two.put(2, 2)
    two.put(1, 2)
    batch = two.get(client=2)
    assert numbers_of(batch.slices) == [2003, 2004, 2005, 1006, 1007, 1008]
    assert offsets(batch.source_positions) == {1: 1008, 2: 2005}
    assert len(numbers_of(two.get().slices)) == 15


def test_positions_never_go_back(two):
    """A redelivery for other clients moves no position, even after a rollback."""
    two.store.subscribe(2, None, {1: position_at(1, 1005), 2: position_at(2, 2002)})
    two.put(1)
    two.put(2, 2)
    assert offsets(two.get(client=2).source_positions) == {2: 2005}
    two.store.rollback(2)
    assert offsets(two.get(client=2).source_positions) == {2: 2005}


def test_position_of_another_server(two):
    """A position that is forgotten skips nothing, in its own source only."""
    two.store.subscribe(2, None, {1: position_at(1, 1005), 2: position_at(2, 2002)})
    two.store.forget_after(2, 1)
    two.put(1)
    two.put(2)
    batch = two.get(client=2)
    assert numbers_of(batch.slices) == [1000, 1001, 1002]
    assert offsets(batch.source_positions) == {1: 1002}


def test_source_without_a_position(two):
    """A client without a position in a source gets all its entries."""
    two.store.subscribe(2, None, {2: position_at(2, 2002)})
    two.put(1)
    two.put(2)
    assert numbers_of(two.get(client=2).slices) == [1000, 1001, 1002]
