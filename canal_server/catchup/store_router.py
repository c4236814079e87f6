"""Clients' stores as one: the ring, and a store of its own for each late client.

::

    ring ◄── pump                       most clients
    store of its own ◄── catch-up       a late client: what the ring has no more …
       └─► ring                         … and behind that, once the two met, the ring

A client that was passed over, or floated when the instance started, is *apart*. When
it comes back its place may be in the ring still; else a reader of its own reads from
there and puts what it finds into a store of its own, until that meets the ring. Then
the client has a cursor in the ring behind the last entry of its store, and gets from
there what follows; what it has not acked of its store stays there, as a rollback
brings it again. A batch that came from such a store has negative sequences, so that
an ack tells where to go.

Methods are called by the threads of connections. What meets: the ring passes a client
over under its own lock, which replaces the client's `_Late` in one step; whoever holds
the old one finds its store closed. Only absent clients are passed over, so that no
request of theirs is under way. A reader that meets the ring gives the client its
cursor first, then says that it met: a get that finds its store at an end before that
says that there is nothing, and after it asks the ring.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.errors import StoreError
from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from canal_server.model.batch import Batch
    from canal_server.model.positions import EntryPosition
    from canal_server.ports import Span, TablePredicate
    from canal_server.runtime.lifecycle import Stop
    from canal_server.store.event_store import MemoryEventStore

READERS_MAX: Final = 8  # late clients that catch up at a time; others wait for them
TURN_S: Final = 1.0  # between two looks whether one of those has ended
APART: Final = 1 << 62  # taken off the sequences of stores beside the ring


class CatchUp(Protocol):
    """Reads what one late client lacks into a store of its own."""

    @property
    def store(self) -> MemoryEventStore:
        """Return the store, in which the client has a cursor."""

    @property
    def met(self) -> bool:
        """Tell whether the ring goes on behind the store, and the client has a cursor.

        Nothing is put any more then.
        """

    def start(self) -> None:
        """Begin to read."""

    def change_table_filter(self, table_filter: TablePredicate | None) -> None:
        """Read other tables from now on."""

    def request_stop(self) -> None:
        """End it; returns at once. Needs no lock of any store."""

    def join(self, deadline: Deadline) -> bool:
        """Wait until it has ended."""

    def status(self) -> dict[str, object]:
        """Return what an operator asks, as plain values."""


class _Late:
    """One client apart; it has a reader once it came back."""

    __slots__ = ("is_judged_anew", "is_started", "reader", "table_filter")

    def __init__(self, table_filter: TablePredicate | None) -> None:
        self.table_filter = table_filter
        self.is_judged_anew = False  # it has another filter than the ring was read by
        self.reader: CatchUp | None = None
        self.is_started = False  # the reader; it may have to wait for its turn


class ClientStores:
    """All stores of one instance as its clients see them; a `ports.EventStore`.

    `rejoin` gives a client its cursor in the ring if its place is there, `read` makes
    a reader that does so when it meets the ring. `changed` is told that another client
    is apart, or one is not any more.
    """

    def __init__(
        self,
        ring: MemoryEventStore,
        rejoin: Callable[[int, TablePredicate | None], bool],
        read: Callable[[int, TablePredicate | None, bool], CatchUp],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._ring = ring
        self._rejoin = rejoin
        self._read = read
        self._changed = changed
        self._late: dict[int, _Late] = {}
        self._lock = threading.Lock()  # one change of readers at a time
        self._readers: list[CatchUp] = []  # that have begun, and were not joined
        self._closed = False

    # -- clients apart ------------------------------------------------------------

    def divert(self, client_id: int, table_filter: TablePredicate | None) -> None:
        """Have a client read by itself what it lacks, once it comes.

        Also under the lock of the ring, or of its own store.
        """
        old = self._late.get(client_id)
        self._late[client_id] = _Late(table_filter)
        self._changed()
        if old is not None and old.reader is not None:
            old.reader.request_stop()

    def return_to_ring(self, client_id: int) -> None:
        """Give a client that is apart a cursor at the oldest entry of the ring."""
        late = self._late.pop(client_id, None)
        if late is not None:
            self._ring.subscribe(client_id, late.table_filter, None)
            if late.reader is not None:
                late.reader.request_stop()
                late.reader.store.close()

    def diverted(self) -> dict[int, dict[str, object]]:
        """Return what is to be told of the clients that are apart."""
        return {
            client_id: {"reading": False}
            if late.reader is None
            else {"reading": True, **late.reader.status()}
            for client_id, late in sorted(self._late.items())
        }

    def is_diverted(self, client_id: int) -> bool:
        """Tell whether a client is apart."""
        return client_id in self._late

    def readers(self) -> list[CatchUp]:
        """Return the readers of clients that are apart."""
        return [each.reader for each in list(self._late.values()) if each.reader]

    def _begin(self, client_id: int, late: _Late) -> CatchUp | None:
        """Return a client's reader, started if there may be one more; None: no need."""
        if late.reader is not None and late.is_started:
            return late.reader
        with self._lock:
            if self._late.get(client_id) is not late:
                return None
            if late.reader is None:
                if not late.is_judged_anew and self._rejoin(
                    client_id, late.table_filter
                ):
                    self._late.pop(client_id, None)
                    self._changed()
                    return None
                late.reader = self._read(
                    client_id, late.table_filter, late.is_judged_anew
                )
            if not self._closed and len(self._active()) < READERS_MAX:
                late.is_started = True
                self._readers.append(late.reader)
                late.reader.start()
            return late.reader

    def _active(self) -> list[CatchUp]:
        self._readers = [each for each in self._readers if not each.join(Deadline(0.0))]
        return [each for each in self._readers if not each.met]

    def _end_if_drained(self, client_id: int, late: _Late) -> None:
        """Let a store go whose client got and acked it all, and is in the ring."""
        reader = late.reader
        if (
            reader is not None
            and reader.met
            and reader.store.is_drained(client_id, acked=True)
        ):
            with self._lock:
                if self._late.get(client_id) is late:
                    del self._late[client_id]
            self._changed()
            reader.store.close()

    def request_stop_of_readers(self) -> None:
        """End all readers, and begin none any more."""
        with self._lock:
            self._closed = True
            for reader in self._readers:
                reader.request_stop()

    def join(self, deadline: Deadline) -> bool:
        """Wait for all readers; false when the deadline passed first."""
        with self._lock:
            readers = list(self._readers)
        ended = [each.join(deadline) for each in readers]
        return all(ended)

    def has_all(self, client_id: int) -> bool:
        """Tell whether a client was given all that is in the ring, and acked it."""
        return client_id not in self._late and self._ring.has_all(client_id)

    # -- the port -----------------------------------------------------------------

    def put(self, spans: Sequence[Span], stop: Stop) -> bool:
        """Append entries to the ring."""
        return self._ring.put(spans, stop)

    def wake_getters(self) -> None:
        """Say that the instance's pump has nothing more at hand now."""
        self._ring.wake_getters()

    def subscribe(
        self,
        client_id: int,
        table_filter: TablePredicate | None,
        after: EntryPosition | Mapping[int, EntryPosition] | None,
    ) -> None:
        """Give a client a cursor, or another filter; a late one begins to read."""
        late = self._late.get(client_id)
        if late is None:
            self._ring.subscribe(client_id, table_filter, after)
            return
        # Methods of one object are equal, but not the same.
        late.is_judged_anew |= table_filter != late.table_filter
        late.table_filter = table_filter
        reader = self._begin(client_id, late)
        if reader is None:
            return
        reader.store.subscribe(client_id, table_filter, None)
        reader.change_table_filter(table_filter)
        if reader.met:
            self._ring.subscribe(client_id, table_filter, None)

    def unsubscribe(self, client_id: int) -> None:
        """Forget a client."""
        late = self._late.pop(client_id, None)
        if late is not None and late.reader is not None:
            late.reader.request_stop()
            late.reader.store.close()
        self._ring.unsubscribe(client_id)

    def get(
        self,
        client_id: int,
        batch_size: int,
        timeout_s: float | None,
        peer_fd: int | None = None,
    ) -> Batch | None:
        """Take the next entries, None when there are none in time."""
        late = self._late.get(client_id)
        if late is None:
            return self._ring.get(client_id, batch_size, timeout_s, peer_fd)
        deadline = Deadline(timeout_s)
        while (reader := self._begin(client_id, late)) is not None:
            turn = deadline if late.is_started else _turn_of(deadline)
            batch = _get_of(reader, client_id, batch_size, turn, peer_fd)
            if batch is not None:
                return replace(
                    batch,
                    first_sequence=batch.first_sequence - APART,
                    last_sequence=batch.last_sequence - APART,
                )
            if turn is not deadline and turn.passed() and not deadline.passed():
                continue
            if not reader.met or not reader.store.is_drained(client_id, acked=False):
                return None
            self._end_if_drained(client_id, late)
            break
        return self._ring.get(client_id, batch_size, deadline.remaining_s(), peer_fd)

    def ack(self, client_id: int, last_sequence: int) -> None:
        """Free a client's entries up to and including this sequence."""
        late = self._late.get(client_id)
        if last_sequence >= 0:
            self._ring.ack(client_id, last_sequence)
        elif late is None or late.reader is None:
            raise StoreError(
                f"client {client_id} acks a batch of before it was passed over; "
                "roll back and get again"
            )
        else:
            late.reader.store.ack(client_id, last_sequence + APART)
            self._end_if_drained(client_id, late)

    def rollback(self, client_id: int) -> None:
        """Put a client's get sequence back to its ack sequence."""
        late = self._late.get(client_id)
        if late is None:
            self._ring.rollback(client_id)
        elif late.reader is not None:
            # First the ring: a get that is under way asks it last.
            if late.reader.met:
                self._ring.rollback(client_id)
            late.reader.store.rollback(client_id)

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return the boundary behind which a client's entries lie, None: not known."""
        late = self._late.get(client_id)
        if late is None:
            return self._ring.resume_position(client_id)
        reader = late.reader
        return None if reader is None else reader.store.resume_position(client_id)

    def resume_positions(self, client_id: int) -> dict[int, EntryPosition]:
        """Return the same for each source of a group, by number, where it is known."""
        return self._ring.resume_positions(client_id)

    def forget_after(self, client_id: int, number: int) -> None:
        """Give a client all entries of a source, wherever it was to begin."""
        self._ring.forget_after(client_id, number)

    def close(self) -> None:
        """Drop the content and end every waiting get and put."""
        self.request_stop_of_readers()
        for reader in self.readers():
            reader.store.close()
        self._ring.close()


def _turn_of(deadline: Deadline) -> Deadline:
    """Return when to look again whether a reader may begin, no later than another."""
    left_s = deadline.remaining_s()
    return Deadline(TURN_S if left_s is None else min(TURN_S, left_s))


def _get_of(
    reader: CatchUp,
    client_id: int,
    batch_size: int,
    deadline: Deadline,
    peer_fd: int | None,
) -> Batch | None:
    """Take the next entries of a late client's own store, None without any in time."""
    while True:
        had_met = reader.met
        batch = reader.store.get(client_id, batch_size, deadline.remaining_s(), peer_fd)
        # The last entries may have come just behind the end of the time, with what
        # follows in the ring.
        if batch is not None or had_met or not reader.met:
            return batch
