"""The sink: from the transaction buffer's spans to the store, with counters."""

from __future__ import annotations

import pytest
from fix_blocks import HEARTBEAT, ROWS, Entries, numbers_in, numbers_of
from fix_store import PATIENCE_S, StoreUnderTest, eventually, in_thread

from canal_server.pipeline.sink import EntrySink, SinkCounters
from canal_server.runtime.lifecycle import Stop


class RecordingStore:
    """A store that records what is put, and accepts it or not."""

    def __init__(self) -> None:
        self.puts: list[list[int]] = []
        self.accepts = True

    def put(self, spans, stop) -> bool:
        """Note one put."""
        self.puts.append(numbers_in(spans))
        return self.accepts


@pytest.fixture
def store():
    """Record what is put."""
    return RecordingStore()


def test_puts_what_passes_in_one_call(store):
    """Many transactions reach the store as one put."""
    entries = Entries()
    sink = EntrySink(store)
    for _ in range(5):
        entries.transaction(rows=1)
    assert sink.accept(entries.take(), Stop())
    assert store.puts == [list(range(15))]


def test_puts_nothing_when_nothing_passes(store):
    """A heartbeat does not reach the store, but its time is noted."""
    entries = Entries()
    sink = EntrySink(store)
    entries.add(HEARTBEAT)
    assert sink.accept(entries.take(), Stop())
    assert store.puts == []
    assert sink.counters.last_time_ms == entries.time * 1000


def test_counts_what_the_store_took(store):
    """Transactions, rows and entries count once the store has them."""
    entries = Entries()
    counters = SinkCounters()
    sink = EntrySink(store, counters=counters)
    entries.transaction(rows=3)
    assert sink.accept(entries.take(), Stop())
    assert (counters.transactions, counters.rows, counters.entries) == (1, 3, 5)


def test_a_stopped_store_is_passed_on(store):
    """When the store took nothing, accept says so and does not count."""
    entries = Entries()
    sink = EntrySink(store)
    store.accepts = False
    entries.transaction(rows=3)
    assert not sink.accept(entries.take(), Stop())
    assert sink.counters.entries == 0


def test_markers_are_thinned_on_demand(store):
    """With the setting, BEGIN and END stay away between two that passed."""
    entries = Entries()
    sink = EntrySink(store, thin_markers=True)
    entries.transaction(rows=1)
    entries.transaction(rows=1)
    assert sink.accept(entries.take(), Stop())
    assert store.puts == [[0, 1, 2, 4]]


def test_reset_forgets_the_open_transaction(store):
    """Rows of a cut transaction do not make the next empty one pass."""
    entries = Entries()
    sink = EntrySink(store)
    entries.transaction(rows=0)
    entries.add(ROWS)
    sink.accept(entries.take(), Stop())
    sink.reset()
    entries.transaction(rows=0, begin=False)
    assert sink.accept(entries.take(), Stop())
    assert store.puts == [[0, 1, 2]]


def test_back_pressure_is_counted():
    """While the ring is full the sink waits, and counts for how long."""
    t = StoreUnderTest(buffer_size=4)
    t.store.subscribe(1, None, None)
    sink = EntrySink(t.store)
    t.entries.transaction(rows=2)
    assert sink.accept(t.entries.take(), t.stop)
    t.entries.transaction(rows=2)
    accepting = in_thread(sink.accept, t.entries.take(), t.stop)
    eventually(t.store.blocked)
    before = sink.counters.waiting_ns
    t.ack_next(1, 9)
    assert accepting.result(PATIENCE_S)
    assert sink.counters.waiting_ns > before
    assert sink.counters.waiting_ns >= t.store.put_waiting_ns > 0
    assert numbers_of(t.get(1, 9).slices) == [4, 5, 6, 7]
