"""When a get answers and a put continues: threads, sockets and wake-ups.

Nothing here measures time: where a get must wait, its linger is so long that only
the event under test can end it; where it must not, it has no time-out at all.
"""

from __future__ import annotations

import logging
import random
import socket
from typing import TYPE_CHECKING, ClassVar

import pytest
from fix_blocks import ENTRY_BYTES, ROWS, numbers_of
from fix_store import PATIENCE_S, StoreUnderTest, eventually, in_thread

from canal_server.config.schema import BatchMode
from canal_server.errors import StoreError
from canal_server.store import event_store
from canal_server.store.event_store import MemoryEventStore
from canal_server.store.waiting import Getter
from canal_server.store.wakeup import WakeUp

if TYPE_CHECKING:
    from canal_server.store.cursor import Cursor

CLIENT = 1001
FOR_EVER_MS = 10**7


class WatchedGetter(Getter):
    """A get that shows whether it sleeps, and how often it was woken."""

    made: ClassVar[list[WatchedGetter]] = []
    is_asleep = False
    wakes = 0

    def __init__(
        self,
        cursor: Cursor,
        limits: tuple[int, int],
        peer_fd: int | None,
        *,
        whole: bool = False,
    ) -> None:
        super().__init__(cursor, limits, peer_fd, whole=whole)
        self.made.append(self)

    def wake(self) -> None:
        """Count a wake-up."""
        self.wakes += 1
        super().wake()

    def sleep(self, seconds: float | None) -> bool:
        """Sleep; a look at the peer without waiting is no sleep."""
        self.is_asleep = seconds != 0
        try:
            return super().sleep(seconds)
        finally:
            self.is_asleep = False


@pytest.fixture(autouse=True)
def getters(monkeypatch):
    """Make every get a watched one; return those that were made, in order."""
    monkeypatch.setattr(event_store, "Getter", WatchedGetter)
    made: list[WatchedGetter] = []
    monkeypatch.setattr(WatchedGetter, "made", made)
    return made


@pytest.fixture
def lingering():
    """Return a store whose gets linger until something else ends them."""
    t = StoreUnderTest(linger_ms=FOR_EVER_MS)
    t.store.subscribe(CLIENT, None, None)
    return t


def waits() -> WatchedGetter:
    """Wait until the last get has checked the store and waits; return it."""
    eventually(lambda: WatchedGetter.made and WatchedGetter.made[-1].is_asleep)
    return WatchedGetter.made[-1]


def lingers() -> None:
    """Wait until the waiting get knows of entries and still waits."""
    eventually(lambda: any(g.is_asleep and g.lingers for g in WatchedGetter.made))


def numbers(future) -> list[int] | None:
    """Return the numbers of the entries that a get in a thread returned."""
    batch = future.result(PATIENCE_S)
    return None if batch is None else numbers_of(batch.slices)


# -- answers --------------------------------------------------------------------------


def test_answers_when_the_pump_has_nothing_more(lingering):
    """New entries are delivered once the pump is idle."""
    t = lingering
    get = in_thread(t.store.get, CLIENT, 99, None)
    waits()
    t.entries.transaction(rows=1)
    t.put()
    lingers()
    assert not get.done()
    t.store.wake_getters()
    assert numbers(get) == [0, 1, 2]


def test_answers_at_once_while_the_pump_is_idle(lingering):
    """After an idle pump's last put a get does not wait at all."""
    t = lingering
    t.entries.transaction(rows=1)
    t.put()
    t.store.wake_getters()
    assert numbers_of(t.store.get(CLIENT, 2, None).slices) == [0, 1]
    assert numbers_of(t.store.get(CLIENT, 2, None).slices) == [2]


def test_an_idle_pump_without_entries_ends_no_wait(lingering):
    """A wake-up without entries leaves the get waiting for the next ones."""
    t = lingering
    get = in_thread(t.store.get, CLIENT, 99, None)
    waits()
    t.store.wake_getters()
    t.entries.transaction(rows=0)
    t.put()
    lingers()
    assert not get.done()
    t.store.wake_getters()
    assert numbers(get) == [0, 1]


def test_answers_with_a_full_batch(lingering):
    """A full batch is delivered although the pump continues."""
    t = lingering
    get = in_thread(t.store.get, CLIENT, 4, None)
    waits()
    t.entries.add(ROWS)
    t.put()
    lingers()
    for _ in range(5):
        t.entries.add(ROWS)
    t.put()
    assert numbers(get) == [0, 1, 2, 3]


def test_answers_with_a_full_batch_of_bytes():
    """In MEMSIZE mode a batch is full when its bytes are there."""
    t = StoreUnderTest(
        linger_ms=FOR_EVER_MS, batch_mode=BatchMode.MEMSIZE, memunit=ENTRY_BYTES
    )
    t.store.subscribe(CLIENT, None, None)
    get = in_thread(t.store.get, CLIENT, 3, None)
    waits()
    for _ in range(2):
        t.entries.add(ROWS)
    t.put()
    lingers()
    t.entries.add(ROWS)
    t.put()
    assert numbers(get) == [0, 1, 2]


def test_answers_when_the_linger_is_over():
    """Without any further call a get ends by itself after its linger."""
    t = StoreUnderTest(linger_ms=1)
    t.store.subscribe(CLIENT, None, None)
    get = in_thread(t.store.get, CLIENT, 99, None)
    waits()
    t.entries.transaction(rows=1)
    t.put()
    assert numbers(get) == [0, 1, 2]


def test_answers_when_the_time_is_up(lingering):
    """At the time-out a get returns what there is, or None."""
    t = lingering
    assert t.store.get(CLIENT, 99, 0.001) is None
    t.entries.transaction(rows=1)
    t.put()
    assert numbers_of(t.store.get(CLIENT, 99, 0.001).slices) == [0, 1, 2]


def test_answers_when_the_ring_is_full(lingering):
    """A put that waits for room makes gets answer: nothing more would come."""
    t = lingering
    get = in_thread(t.store.get, CLIENT, 1000, None)
    waits()
    for _ in range(65):
        t.entries.add(ROWS)
    put = in_thread(t.put)
    assert numbers(get) == list(range(64))
    assert not put.done()
    t.store.ack(CLIENT, 63)
    assert put.result(PATIENCE_S)


def test_without_linger_the_original_waiting():
    """Linger 0 waits for the full batch or the time-out, idle pump or not."""
    t = StoreUnderTest(linger_ms=0)
    t.store.subscribe(CLIENT, None, None)
    get = in_thread(t.store.get, CLIENT, 4, None)
    getter = waits()
    t.entries.transaction(rows=1)
    t.put()
    t.store.wake_getters()
    assert not getter.wakes
    t.entries.add(ROWS)
    t.put()
    assert numbers(get) == [0, 1, 2, 3]


def test_a_filtered_get_is_not_woken_by_others_rows(lingering):
    """Entries that a client's filter rejects neither answer nor start its linger."""
    t = lingering
    t.store.subscribe(2, t.wanting("a"), None)
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    t.put()
    assert t.store.get(2, 99, 0) is None  # now the filter was asked about both
    get = in_thread(t.store.get, 2, 99, None)
    getter = waits()
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    t.put()
    t.store.wake_getters()
    assert not getter.wakes
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("a"))
    t.put()
    t.store.wake_getters()
    assert numbers(get) == [2]


def test_a_rollback_wakes_another_connection_of_the_client(lingering):
    """What one connection rolls back, another one that waits gets."""
    t = lingering
    t.entries.transaction(rows=1)
    t.put()
    t.store.wake_getters()
    t.store.get(CLIENT, 99, None)
    get = in_thread(t.store.get, CLIENT, 99, None)
    waits()
    t.store.rollback(CLIENT)
    assert numbers(get) == [0, 1, 2]


@pytest.mark.parametrize("resubscribe", [False, True])
def test_unsubscribing_ends_a_waiting_get(lingering, resubscribe):
    """The get whose cursor was removed fails, even if there is a new one."""
    t = lingering
    get = in_thread(t.store.get, CLIENT, 99, None)
    waits()
    t.store.unsubscribe(CLIENT)
    if resubscribe:
        t.store.subscribe(CLIENT, None, None)
    with pytest.raises(StoreError, match="client 1001"):
        get.result(PATIENCE_S)


def test_close_ends_waiting_gets_and_puts(lingering):
    """Both return nothing."""
    t = lingering
    t.store.subscribe(2, t.wanting(), None)
    get = in_thread(t.store.get, 2, 99, None)
    waits()
    for _ in range(64):
        t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    assert t.put()
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    put = in_thread(t.put)
    eventually(t.store.blocked)
    t.store.close()
    assert numbers(get) is None
    assert put.result(PATIENCE_S) is False


# -- the peer -------------------------------------------------------------------------


@pytest.fixture
def link():
    """Return both ends of a connection: the server's and the client's."""
    server, client = socket.socketpair()
    with server, client:
        yield server, client


@pytest.mark.parametrize("how", ["close", "shutdown"])
def test_a_waiting_get_ends_when_the_peer_closes(lingering, link, how):
    """It returns None and fetches nothing, with entries in the ring and without."""
    t = lingering
    server, client = link
    get = in_thread(t.store.get, CLIENT, 99, None, server.fileno())
    getter = waits()
    t.entries.transaction(rows=1)
    t.put()
    lingers()
    if how == "close":
        client.close()
    else:
        client.shutdown(socket.SHUT_WR)
    assert numbers(get) is None
    wakes = getter.wakes
    t.store.wake_getters()
    assert getter.wakes == wakes, "it has ended"
    assert numbers_of(t.store.get(CLIENT, 99, 0).slices) == [0, 1, 2]


@pytest.mark.parametrize("timeout_s", [0, None])
def test_a_closed_peer_takes_nothing(lingering, link, timeout_s):
    """A get that could answer at once checks its peer before it fetches."""
    t = lingering
    server, client = link
    t.entries.transaction(rows=1)
    t.put()
    t.store.wake_getters()
    client.close()
    assert t.store.get(CLIENT, 99, timeout_s, server.fileno()) is None
    assert t.store.counts().get_sequence == -1


def test_a_request_of_the_peer_does_not_end_its_get(lingering, link):
    """Bytes that the client sends ahead are not a closed connection."""
    t = lingering
    server, client = link
    client.send(b"the next request")
    t.entries.transaction(rows=0)
    t.put()
    t.store.wake_getters()
    batch = t.store.get(CLIENT, 99, None, server.fileno())
    assert numbers_of(batch.slices) == [0, 1]


# -- back-pressure --------------------------------------------------------------------


def fill(t) -> None:
    """Put as much as the ring holds."""
    for _ in range(t.config.buffer_size):
        t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    assert t.put()


class WatchedWakeUp(WakeUp):
    """A put's wake-up that counts how often it was woken."""

    wakes = 0

    def wake(self) -> None:
        """Count a wake-up."""
        type(self).wakes += 1
        super().wake()


def test_a_put_waits_until_its_entries_fit(lingering, monkeypatch):
    """The pump continues when enough was acked, and the wait was counted."""
    monkeypatch.setattr(event_store, "WakeUp", WatchedWakeUp)
    monkeypatch.setattr(WatchedWakeUp, "wakes", 0)
    t = lingering
    fill(t)
    t.entries.transaction(rows=8)
    put = in_thread(t.put)
    eventually(t.store.blocked)
    t.store.ack(CLIENT, t.store.get(CLIENT, 9, 0).last_sequence)
    wakes_before = WatchedWakeUp.wakes
    t.store.ack(CLIENT, t.store.get(CLIENT, 1, 0).last_sequence)
    assert put.result(PATIENCE_S) is True
    assert wakes_before == 0
    assert WatchedWakeUp.wakes > 0
    assert t.store.counts().put_waiting_ns > 0
    assert t.store.counts().put_sequence == 73


def test_a_stop_ends_a_waiting_put(lingering):
    """Nothing of what waited is put."""
    t = lingering
    fill(t)
    t.entries.transaction(rows=8)
    put = in_thread(t.put)
    eventually(t.store.blocked)
    t.stop.request()
    assert put.result(PATIENCE_S) is False
    assert t.store.blocked() is None
    assert t.store.counts().put_sequence == 63


def test_unsubscribing_the_slowest_lets_the_put_go_on(lingering):
    """What only the unsubscribed client retained is freed for the pump."""
    t = lingering
    t.store.subscribe(2, t.wanting(), None)
    fill(t)
    t.entries.transaction(rows=0)
    put = in_thread(t.put)
    eventually(t.store.blocked)
    t.store.unsubscribe(CLIENT)
    assert put.result(PATIENCE_S) is True


def test_a_put_goes_on_when_blocks_come_back():
    """Blocks whose last view is dropped let the pump continue without another call."""
    t = StoreUnderTest(block_bytes_max=4 * 64 * 1024)
    t.store.subscribe(CLIENT, None, None)
    for _ in range(5):
        t.entries.add(ROWS, size=60_000)
    assert t.put()
    batch = t.get(CLIENT, 4)
    t.store.ack(CLIENT, batch.last_sequence)
    t.entries.add(ROWS)
    put = in_thread(t.put)
    eventually(t.store.blocked)
    del batch
    assert put.result(PATIENCE_S) is True


# -- under load -----------------------------------------------------------------------


class Consumer:
    """A client in a thread: gets, acks, occasionally rolls back or disconnects."""

    def __init__(self, t, client_id: int, rng, last: int) -> None:
        self.t = t
        self.client_id = client_id
        self.rng = rng
        self.last = last  # number of the entry that ends the test
        self.acked: list[int] = []
        self.fetched_by_closed = 0

    def run(self) -> list[int]:
        """Return the numbers of the entries in the order of their acks."""
        store = self.t.store
        while not self.acked or self.acked[-1] != self.last:
            chance = self.rng.random()
            if chance < 0.05:
                self.hang_up()
                continue
            batch = store.get(self.client_id, self.rng.randrange(1, 90), None)
            if chance < 0.15:
                store.rollback(self.client_id)
                continue
            self.acked += numbers_of(batch.slices)
            store.ack(self.client_id, batch.last_sequence)
        return self.acked

    def hang_up(self) -> None:
        """Ask for entries on a connection that is closed already."""
        server, client = socket.socketpair()
        with server:
            client.close()
            if self.t.store.get(self.client_id, 9, None, server.fileno()):
                self.fetched_by_closed += 1


def test_threads(rng):
    """One pump and four clients, on a small ring that is often full.

    Forbidden: an entry is lost, comes twice, or out of order; a filter passes another
    table or rejects its own; a closed connection fetches a batch; any thread hangs.
    """
    t = StoreUnderTest(linger_ms=1, buffer_size=128)
    tables = {1: None, 2: "a", 3: "b", 4: "ab"}
    for client_id, names in tables.items():
        t.store.subscribe(client_id, t.wanting(*names) if names else None, None)
    # One letter per entry: its table. The last one has none, so that all get it.
    chunks = ["".join(rng.choices("abc", k=rng.randrange(1, 40))) for _ in range(800)]
    stream = "".join(chunks)
    consumers = [
        Consumer(t, client_id, random.Random(rng.random()), len(stream))
        for client_id in tables
    ]

    def pump() -> bool:
        for chunk in chunks:
            for name in chunk:
                t.entries.add(ROWS, table_ordinal=t.table_ordinal(name))
            assert t.put()
            if rng.random() < 0.5:
                t.store.wake_getters()
        t.entries.add(ROWS)
        return t.put()

    running = [in_thread(consumer.run) for consumer in consumers]
    assert in_thread(pump).result(PATIENCE_S)

    for consumer, result in zip(consumers, running, strict=True):
        names = tables[consumer.client_id] or "abc"
        expected = [number for number, name in enumerate(stream) if name in names]
        assert result.result(PATIENCE_S) == [*expected, len(stream)]
        assert consumer.fetched_by_closed == 0
    t.store.close()
    assert t.held() == 0


# -- reporting it ---------------------------------------------------------------------


def test_a_long_wait_names_the_client_that_holds_the_entries(caplog):
    """The log and the status show whose ack is missing, and when reading resumes."""
    caplog.set_level(logging.INFO)
    t = StoreUnderTest(buffer_size=4)
    store = MemoryEventStore(
        t.config,
        t.table_ids,
        t.entries.pool,
        destination="example",
        report_after_s=0.001,
    )
    for client in (CLIENT, 9999):
        store.subscribe(client, None, None)
    t.entries.transaction(rows=2)
    store.put(t.entries.take(), t.stop)
    batch = store.get(CLIENT, 4, 0)
    assert batch is not None
    store.ack(CLIENT, batch.last_sequence)
    assert store.holders() == ()
    t.entries.transaction(rows=2)
    put = in_thread(store.put, t.entries.take(), t.stop)
    eventually(lambda: "client 9999 must ack" in caplog.text)
    assert store.holders() == (9999,)
    store.unsubscribe(9999)
    assert put.result(PATIENCE_S)
    assert "destination example: resumed reading" in caplog.text
    assert store.holders() == ()
