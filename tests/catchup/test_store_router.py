"""The ring and the private store of a lagging client: one stream for the client.

The reader is one of numbers: it makes again what a binlog would hold.
"""

from __future__ import annotations

import threading

import pytest
from fix_blocks import Entries, numbers_of
from fix_random import longer
from fix_store import PATIENCE_S, Absent, StoreUnderTest, in_thread

from canal_server.catchup.store_router import READERS_MAX, ClientStores
from canal_server.config.schema import BatchMode, StoreConfig
from canal_server.core.table_ids import TableIds
from canal_server.errors import StoreError
from canal_server.model.positions import EntryPosition
from canal_server.runtime.lifecycle import Stop
from canal_server.store.event_store import MemoryEventStore

LIVE, LATE = 1001, 1002
CONFIG = StoreConfig(buffer_size=16, batch_mode=BatchMode.ITEMSIZE)


class Numbers:
    """Transactions by the number of their first entry; the last number is the end."""

    def __init__(self):
        self.firsts = [0]

    def write(self, rows):
        """Append a transaction of so many rows."""
        self.firsts.append(self.firsts[-1] + rows + 2)

    def spans(self, index):
        """Return the entries of a transaction."""
        entries = Entries()
        entries.next_number = self.firsts[index]
        entries.transaction(rows=self.firsts[index + 1] - self.firsts[index] - 2)
        return entries.take()


class Reader:
    """Puts transactions after an acked number into a private store."""

    def __init__(self, ring, numbers, acked, table_filter):
        self.store = MemoryEventStore(CONFIG, TableIds(), Entries().pool)
        self.met = False
        self.started = self.stopped = False
        self.entered = threading.Event()
        self.table_filter = table_filter
        self._ring, self._numbers = ring, numbers
        self._next = max(i for i, n in enumerate(numbers.firsts) if n <= acked + 1)
        if acked >= 0 and numbers.firsts[self._next] == acked + 1 and self._next:
            self._next -= 1  # as one that begins with the event that was acked
        after = EntryPosition("bin.000001", acked * 100) if acked >= 0 else None
        self.store.subscribe(LATE, table_filter, after)

    def start(self):
        """Begin to read."""
        self.started = True
        self.entered.set()

    def change_table_filter(self, table_filter):
        """Take another filter."""
        self.table_filter = table_filter

    def request_stop(self):
        """End it."""
        self.stopped = True

    def join(self, deadline):
        """Return whether it has ended."""
        del deadline
        return self.stopped or self.met

    def status(self):
        """Report something."""
        return {"position": ""}

    def read(self):
        """Read one transaction, if there is one and room for it; try to hand over."""
        if self.met or self.stopped or self._next + 1 >= len(self._numbers.firsts):
            return
        stop = Stop()
        stop.request()
        if not self.store.put(self._numbers.spans(self._next), stop):
            return
        self._next += 1
        position = 1, (self._numbers.firsts[self._next] - 1) * 100 + 29
        if self._ring.join(
            LATE, self.table_filter, position, self._ring.run, needs=position
        ):
            self.met = True
            self.store.end()


class Apart:
    """A ring with a live and a lagging client, and what the latter has acked."""

    def __init__(self):
        self.numbers = Numbers()
        self.absent = Absent()
        self.t = StoreUnderTest(buffer_size=16, liveness=self.absent)
        self.ring = self.t.store
        self.acked = -1
        self.reader = None
        self.stores = ClientStores(self.ring, self._rejoin, self._read)
        self.absent.report = self.stores.divert
        self.ring.begin_run((1, 0))
        for client_id in (LIVE, LATE):
            self.stores.subscribe(client_id, None, None)
        self._put = 0

    def _rejoin(self, client_id, table_filter):
        position = 1, max(self.acked, 0) * 100
        return self.acked >= 0 and self.ring.join(
            client_id, table_filter, position, self.ring.run, needs=(1, position[1] - 1)
        )

    def _read(self, client_id, table_filter, filter_changed):
        del client_id, filter_changed
        self.reader = Reader(self.ring, self.numbers, self.acked, table_filter)
        return self.reader

    def pump(self):
        """Put the next transaction into the ring, if there is room."""
        if self._put + 1 < len(self.numbers.firsts):
            stop = Stop()
            stop.request()
            if self.ring.put(self.numbers.spans(self._put), stop):
                self._put += 1

    def drain_live(self):
        """Ack all that the live one can get."""
        while (batch := self.stores.get(LIVE, 100, 0)) is not None:
            self.stores.ack(LIVE, batch.last_sequence)

    def pass_over(self, transactions=8):
        """Let the ring continue without the lagging one."""
        self.absent.client_ids.add(LATE)
        for _ in range(transactions):
            self.numbers.write(3)
            self.pump()
            self.drain_live()
        self.absent.client_ids.clear()
        assert self.stores.is_diverted(LATE)

    def get(self, size=100):
        """Return the numbers that the late one gets next, and where they end."""
        batch = self.stores.get(LATE, size, 0)
        return ([], None) if batch is None else (numbers_of(batch.slices), batch)

    def ack(self, batch, numbers):
        """Ack a batch of the late one."""
        self.stores.ack(LATE, batch.last_sequence)
        self.acked = numbers[-1]


@pytest.fixture
def diverted():
    """Give such a ring; the lagging client is evicted."""
    found = Apart()
    found.pass_over()
    return found


def test_catches_up(diverted):
    """It gets its own store, then the ring, and is then like all others."""
    got = []
    assert diverted.get() == ([], None)  # it begins to read
    assert diverted.reader.started
    while diverted.stores.is_diverted(LATE):
        diverted.reader.read()
        numbers, batch = diverted.get()
        got += numbers
        if batch is not None:
            assert batch.last_sequence < 0 or diverted.reader.met
            diverted.ack(batch, numbers)
        diverted.drain_live()
    assert diverted.reader.met
    diverted.numbers.write(2)
    diverted.pump()
    numbers, _ = diverted.get()
    assert got + numbers == list(range(diverted.numbers.firsts[-1]))


def test_a_rollback_over_both(diverted):
    """Batches of its private store and of the ring are delivered again together."""
    diverted.get()
    for _ in range(8):
        diverted.reader.read()
        if diverted.reader.met:
            break
        numbers, batch = diverted.get()
        diverted.ack(batch, numbers)
    assert diverted.reader.met
    diverted.numbers.write(2)
    diverted.pump()
    first, own = diverted.get()
    second, of_ring = diverted.get()
    assert own.last_sequence < 0 <= of_ring.last_sequence
    diverted.stores.rollback(LATE)
    assert diverted.get()[0] == first
    assert diverted.get()[0] == second
    diverted.stores.ack(LATE, own.last_sequence)
    assert not diverted.stores.is_diverted(LATE)
    diverted.stores.ack(LATE, of_ring.last_sequence)
    assert diverted.get() == ([], None)


def test_an_old_ack_is_refused(diverted):
    """An ack of a batch of a deleted store is refused."""
    with pytest.raises(StoreError, match="was evicted"):
        diverted.stores.ack(LATE, -5)
    with pytest.raises(StoreError):
        diverted.stores.ack(LATE, 3)


def test_unsubscribed(diverted):
    """A late one that unsubscribes ends its reader and holds nothing."""
    diverted.get()
    diverted.stores.unsubscribe(LATE)
    assert diverted.reader.stopped
    assert not diverted.stores.is_diverted(LATE)
    with pytest.raises(StoreError):
        diverted.stores.get(LATE, 1, 0)


def test_passed_over_while_it_catches_up(diverted):
    """One that disconnects again starts after what it has acked."""
    diverted.get()
    diverted.reader.read()
    numbers, batch = diverted.get()
    diverted.ack(batch, numbers)
    old = diverted.reader
    diverted.stores.divert(LATE, None)
    assert old.stopped
    diverted.get()
    assert diverted.reader is not old
    diverted.reader.read()
    diverted.reader.read()
    assert diverted.get()[0][0] == diverted.acked + 1


def test_returns_to_the_ring(diverted):
    """One for which nothing else is left continues with the ring's oldest entry."""
    diverted.get()
    diverted.numbers.write(2)
    diverted.pump()
    diverted.stores.return_to_ring(LATE)
    assert diverted.reader.stopped
    assert diverted.get()[0][-1] == diverted.numbers.firsts[-1] - 1


def test_another_filter(diverted):
    """A filter that is given amid the catching up counts in both stores."""
    diverted.get()
    for _ in range(8):
        diverted.reader.read()
        _, batch = diverted.get()
        if batch is not None:
            diverted.stores.ack(LATE, batch.last_sequence)
    assert diverted.reader.met

    diverted.stores.divert(LATE, None)
    diverted.acked = diverted.numbers.firsts[-1] - 1

    def nothing(names):
        return not names

    diverted.stores.subscribe(LATE, nothing, None)
    assert diverted.reader.table_filter is nothing
    diverted.stores.subscribe(LATE, None, None)
    assert diverted.reader.table_filter is None


def test_so_many_at_a_time(diverted):
    """Readers beyond the limit wait until one has ended."""
    made = []

    def read(client_id, table_filter, filter_changed):
        del client_id, filter_changed
        made.append(Reader(diverted.ring, diverted.numbers, -1, table_filter))
        made[-1].store.subscribe(len(made) + 2000, table_filter, None)
        return made[-1]

    stores = ClientStores(diverted.ring, lambda *_: False, read)
    for client_id in range(2001, 2002 + READERS_MAX):
        stores.divert(client_id, None)
        stores.get(client_id, 1, 0)
    assert [each.started for each in made] == [True] * READERS_MAX + [False]
    # Also while its client waits without an end.
    waiting = in_thread(stores.get, 2001 + READERS_MAX, 1, None)
    made[0].request_stop()
    assert made[-1].entered.wait(PATIENCE_S)
    stores.close()
    assert waiting.result(PATIENCE_S) is None
    stores.close()
    assert all(each.stopped for each in made)
    assert stores.get(2001, 1, 0) is None


def test_random(rng):
    """Whatever the clients, the pump and the reader do, the late one's stream is whole.

    Forbidden: a number that is left out, or comes again without a rollback.
    """
    met = 0
    for _ in range(longer(40)):
        diverted = Apart()
        player = Player(diverted, rng)
        for _ in range(300):
            player.step()
        met += player.met
    print(f"{met} readers met the ring")
    assert met, "no reader ever met the ring"


class Player:
    """Does random steps, and knows which number the late one must get next."""

    def __init__(self, diverted, rng):
        self._scene, self._rng = diverted, rng
        self._expected = 0
        self._opened = []  # batches and their numbers
        self.met = 0  # readers that met the ring

    def step(self):
        """Do one of all steps that there are."""
        diverted, rng = self._scene, self._rng
        steps = {
            lambda: diverted.numbers.write(rng.randint(1, 5)): 2,
            diverted.pump: 3,
            diverted.drain_live: 3,
            self._leave_for_a_moment: 0.3,
            self._get: 5,
            self._ack: 5,
            self._roll_back: 0.4,
            self._read: 6,
        }
        (step,) = rng.choices(list(steps), list(steps.values()))
        step()

    def _leave_for_a_moment(self):
        """Be away; what is open may be void then."""
        self._scene.absent.client_ids.add(LATE)
        self._scene.pump()
        self._scene.absent.client_ids.clear()
        self._roll_back()

    def _read(self):
        reader = self._scene.reader
        if reader is not None and not reader.met:
            reader.read()
            self.met += reader.met

    def _get(self):
        numbers, batch = self._scene.get(self._rng.randint(1, 8))
        if batch is None:
            return
        before = self._expected - 1
        # A BEGIN that was acked alone comes again to a cursor that is new.
        if numbers[0] == before == self._scene.acked:
            assert before in self._scene.numbers.firsts
            self._expected -= 1
        assert numbers == list(range(self._expected, self._expected + len(numbers)))
        self._expected += len(numbers)
        self._opened.append((batch, numbers))

    def _ack(self):
        if self._opened:
            self._scene.ack(*self._opened.pop(0))

    def _roll_back(self):
        self._scene.stores.rollback(LATE)
        self._expected = self._scene.acked + 1
        self._opened.clear()
