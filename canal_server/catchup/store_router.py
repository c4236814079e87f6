"""The stores of all clients as one: the ring, and one more for each lagging client.

::

    ring ◄── pump                       most clients
    private store ◄── catch-up reader   a lagging client: what the ring no longer has …
       └─► ring                         … and after the handoff, the ring

A client that was evicted, or was evictable when the instance started, is *diverted*.
When it connects again, its position may still be in the ring. If not, a reader reads
from there into a private store, until the handoff to the ring. Then the client has a
cursor in the ring after the last entry of its store, and gets from there what follows;
what it has not acked in its store stays there, as a rollback delivers it again. A batch
from such a store has negative sequences, so that an ack is routed there.

Methods are called by the threads of connections. The ring evicts a client under its
own lock, which replaces the client's `_Diverted` in one step; whoever holds the old one
finds its store closed. Only absent clients are evicted, so that no request of theirs is
open. At the handoff a reader gives the client its cursor first, then sets `met`: a get
that finds the end of its store before that returns nothing, and after it asks the ring.
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

READERS_MAX: Final = 8  # lagging clients that catch up at a time; others wait
TURN_S: Final = 1.0  # between two checks whether one of those has ended
APART: Final = 1 << 62  # subtracted from the sequences of private stores


class CatchUp(Protocol):
    """Reads what one lagging client lacks into a private store."""

    @property
    def store(self) -> MemoryEventStore:
        """Return the store, in which the client has a cursor."""

    @property
    def met(self) -> bool:
        """Return whether the ring continues the store, and the client has a cursor.

        Nothing more is put then.
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


class _Diverted:
    """One diverted client; it has a reader once it has connected again."""

    __slots__ = ("filter_changed", "is_started", "reader", "table_filter")

    def __init__(self, table_filter: TablePredicate | None) -> None:
        self.table_filter = table_filter
        self.filter_changed = False  # since the ring was read
        self.reader: CatchUp | None = None
        self.is_started = False  # the reader; it may have to wait for others


class ClientStores:
    """All stores of one instance as its clients see them; a `ports.EventStore`.

    `rejoin` gives a client its cursor in the ring if its position is there,
    `make_reader` makes a reader that does so at the handoff. `on_change` is called when
    a client is diverted, or is no longer.
    """

    def __init__(
        self,
        ring: MemoryEventStore,
        rejoin: Callable[[int, TablePredicate | None], bool],
        make_reader: Callable[[int, TablePredicate | None, bool], CatchUp],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._ring = ring
        self._rejoin = rejoin
        self._make_reader = make_reader
        self._on_change = on_change
        self._diverted: dict[int, _Diverted] = {}
        self._lock = threading.Lock()  # one change of readers at a time
        self._readers: list[CatchUp] = []  # started and not joined
        self._closed = False

    # -- diverted clients ---------------------------------------------------------

    def divert(self, client_id: int, table_filter: TablePredicate | None) -> None:
        """Give a client a reader for what it lacks, once it connects.

        May be called under the lock of the ring, or of the client's own store.
        """
        old = self._diverted.get(client_id)
        self._diverted[client_id] = _Diverted(table_filter)
        self._on_change()
        if old is not None and old.reader is not None:
            old.reader.request_stop()

    def return_to_ring(self, client_id: int) -> None:
        """Give a diverted client a cursor at the oldest entry of the ring."""
        diverted = self._diverted.pop(client_id, None)
        if diverted is not None:
            self._ring.subscribe(client_id, diverted.table_filter, None)
            if diverted.reader is not None:
                diverted.reader.request_stop()
                diverted.reader.store.close()

    def diverted(self) -> dict[int, dict[str, object]]:
        """Return the status of the diverted clients, by id."""
        return {
            client_id: {"reading": False}
            if diverted.reader is None
            else {"reading": True, **diverted.reader.status()}
            for client_id, diverted in sorted(self._diverted.items())
        }

    def is_diverted(self, client_id: int) -> bool:
        """Return whether a client is diverted."""
        return client_id in self._diverted

    def readers(self) -> list[CatchUp]:
        """Return the readers of the diverted clients."""
        return [each.reader for each in list(self._diverted.values()) if each.reader]

    def _begin(self, client_id: int, diverted: _Diverted) -> CatchUp | None:
        """Return a client's reader, started if possible; None: it needs none."""
        if diverted.reader is not None and diverted.is_started:
            return diverted.reader
        with self._lock:
            if self._diverted.get(client_id) is not diverted:
                return None
            if diverted.reader is None:
                if not diverted.filter_changed and self._rejoin(
                    client_id, diverted.table_filter
                ):
                    self._diverted.pop(client_id, None)
                    self._on_change()
                    return None
                diverted.reader = self._make_reader(
                    client_id, diverted.table_filter, diverted.filter_changed
                )
            if not self._closed and len(self._active()) < READERS_MAX:
                diverted.is_started = True
                self._readers.append(diverted.reader)
                diverted.reader.start()
            return diverted.reader

    def _active(self) -> list[CatchUp]:
        self._readers = [each for each in self._readers if not each.join(Deadline(0.0))]
        return [each for each in self._readers if not each.met]

    def _end_if_drained(self, client_id: int, diverted: _Diverted) -> None:
        """Close a store whose client has acked all of it, and is in the ring."""
        reader = diverted.reader
        if (
            reader is not None
            and reader.met
            and reader.store.is_drained(client_id, acked=True)
        ):
            with self._lock:
                if self._diverted.get(client_id) is diverted:
                    del self._diverted[client_id]
            self._on_change()
            reader.store.close()

    def request_stop_of_readers(self) -> None:
        """Stop all readers, and start no more."""
        with self._lock:
            self._closed = True
            for reader in self._readers:
                reader.request_stop()

    def join(self, deadline: Deadline) -> bool:
        """Wait for all readers; false if the deadline passed first."""
        with self._lock:
            readers = list(self._readers)
        ended = [each.join(deadline) for each in readers]
        return all(ended)

    def has_all(self, client_id: int) -> bool:
        """Return whether a client received and acked all that is in the ring."""
        return client_id not in self._diverted and self._ring.has_all(client_id)

    # -- the port -----------------------------------------------------------------

    def put(self, spans: Sequence[Span], stop: Stop) -> bool:
        """Append entries to the ring."""
        return self._ring.put(spans, stop)

    def wake_getters(self) -> None:
        """Note that the instance's pump has nothing more to read now."""
        self._ring.wake_getters()

    def subscribe(
        self,
        client_id: int,
        table_filter: TablePredicate | None,
        after: EntryPosition | Mapping[int, EntryPosition] | None,
    ) -> None:
        """Give a client a cursor, or another filter; a diverted one gets a reader."""
        diverted = self._diverted.get(client_id)
        if diverted is None:
            self._ring.subscribe(client_id, table_filter, after)
            return
        # Methods of one object are equal, but not identical.
        diverted.filter_changed |= table_filter != diverted.table_filter
        diverted.table_filter = table_filter
        reader = self._begin(client_id, diverted)
        if reader is None:
            return
        reader.store.subscribe(client_id, table_filter, None)
        reader.change_table_filter(table_filter)
        if reader.met:
            self._ring.subscribe(client_id, table_filter, None)

    def unsubscribe(self, client_id: int) -> None:
        """Forget a client."""
        self.end_reader(client_id)
        self._ring.unsubscribe(client_id)

    def end_reader(self, client_id: int) -> None:
        """Divert a client no longer; a get that waits for its reader finds nothing."""
        diverted = self._diverted.pop(client_id, None)
        if diverted is not None and diverted.reader is not None:
            diverted.reader.request_stop()
            diverted.reader.store.close()

    def get(
        self,
        client_id: int,
        batch_size: int,
        timeout_s: float | None,
        peer_fd: int | None = None,
        *,
        whole: bool = False,
    ) -> Batch | None:
        """Take the next entries, None when there are none in time."""
        diverted = self._diverted.get(client_id)
        if diverted is None:
            return self._ring.get(
                client_id, batch_size, timeout_s, peer_fd, whole=whole
            )
        deadline = Deadline(timeout_s)
        while (reader := self._begin(client_id, diverted)) is not None:
            turn = deadline if diverted.is_started else _turn_of(deadline)
            batch = _get_of(reader, client_id, batch_size, turn, peer_fd, whole=whole)
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
            self._end_if_drained(client_id, diverted)
            break
        return self._ring.get(
            client_id, batch_size, deadline.remaining_s(), peer_fd, whole=whole
        )

    def ack(self, client_id: int, last_sequence: int) -> None:
        """Free a client's entries up to and including this sequence."""
        diverted = self._diverted.get(client_id)
        if last_sequence >= 0:
            self._ring.ack(client_id, last_sequence)
        elif diverted is None or diverted.reader is None:
            raise StoreError(
                f"client {client_id} acked a batch that became invalid when its cursor "
                "was evicted; roll back and get again"
            )
        else:
            diverted.reader.store.ack(client_id, last_sequence + APART)
            self._end_if_drained(client_id, diverted)

    def rollback(self, client_id: int) -> None:
        """Put a client's get sequence back to its ack sequence."""
        diverted = self._diverted.get(client_id)
        if diverted is None:
            self._ring.rollback(client_id)
        elif diverted.reader is not None:
            # First the ring: a get in progress asks it last.
            if diverted.reader.met:
                self._ring.rollback(client_id)
            diverted.reader.store.rollback(client_id)

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return the boundary after which a client's entries are, None: not known."""
        diverted = self._diverted.get(client_id)
        if diverted is None:
            return self._ring.resume_position(client_id)
        reader = diverted.reader
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
    """Return when to check again whether a reader may start, at most a deadline."""
    left_s = deadline.remaining_s()
    return Deadline(TURN_S if left_s is None else min(TURN_S, left_s))


def _get_of(
    reader: CatchUp,
    client_id: int,
    batch_size: int,
    deadline: Deadline,
    peer_fd: int | None,
    *,
    whole: bool,
) -> Batch | None:
    """Take the next entries of a private store, None when there are none in time."""
    while True:
        had_met = reader.met
        batch = reader.store.get(
            client_id, batch_size, deadline.remaining_s(), peer_fd, whole=whole
        )
        # The last entries may have been put just after the timeout, and the next ones
        # are in the ring.
        if batch is not None or had_met or not reader.met:
            return batch
