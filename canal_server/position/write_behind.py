"""A meta manager that answers from memory and writes to a place that lasts.

The place is a folder of files (`file`) or nodes of ZooKeeper (`nodes`). Leaves out
the thread that writes (`flusher`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from canal_server.errors import MetaStoreError
from canal_server.position.flusher import STOP_TIMEOUT_S, Flusher
from canal_server.position.memory_meta import MemoryMetaManager
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogPosition, PositionRange


class Writing(StrEnum):
    """When a change of a cursor or of batches is written."""

    PERIODIC = "periodic"  # by a thread, once in a period
    SOON = "soon"  # by a thread, at once
    AT_ONCE = "at once"  # before the call that makes it returns


@dataclass(frozen=True, slots=True)
class StoredClient:
    """What outlives the process of one client.

    Of open batches, what is read back is the last id: the sequences in them mean
    nothing in another process.
    """

    identity: ClientIdentity
    cursor: LogPosition | None
    batches: Mapping[int, PositionRange] = field(default_factory=dict)
    last_batch_id: int = 0
    places: Mapping[int, LogPosition] = field(default_factory=dict)  # of a group


class MetaStorage(Protocol):
    """Where clients are stored; every method raises MetaStoreError.

    All but `open` are called by one thread at a time.
    """

    def open(self, destinations: Sequence[str], stop: Stop) -> None:
        """Get ready; may wait until a stop is asked for, which is an error then."""

    def close(self) -> None:
        """Let go of what `open` took."""

    def read(self, destination: str) -> list[StoredClient]:
        """Return the clients of a destination."""

    def must_write(self, destination: str) -> bool:
        """Tell whether what was read must be written again, as it was damaged."""

    def write(self, destination: str, clients: list[StoredClient]) -> None:
        """Store these clients, and no others, for a destination."""

    @property
    def silence(self) -> str:
        """Return how to say that the place does not answer."""


class MixedMetaManager:
    """Subscriptions, cursors and batches in memory and a place; a `MetaManager`.

    Clients of `destinations` are read by `start`, those of others when they are asked
    for first; any call may therefore raise MetaStoreError. Subscriptions are written
    at once, and so is the first cursor of a client: without it, a start after a crash
    would take the end of the binlog for the place to begin at. Cursors that move are
    written as `writing` says. But for `Writing.AT_ONCE` all this is done by a thread,
    so that no client waits for the place. What could not be written is tried again.
    """

    def __init__(
        self,
        place: MetaStorage,
        *,
        destinations: Sequence[str] = (),
        writing: Writing = Writing.PERIODIC,
        flush_period_s: float = 1.0,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self.place = place
        self._destinations = tuple(destinations)
        self._writing = writing
        self._memory = MemoryMetaManager()
        self._lock = threading.Lock()  # guards the two that follow
        self._loaded: set[str] = set()
        self._dirty: set[str] = set()
        # What was written last, by destination. Used by one writer at a time.
        self._written: dict[str, dict[ClientIdentity, StoredClient]] = {}
        self._using_place = threading.Lock()  # one reader or writer at a time
        self._stop = Stop()  # ends a start that waits
        self._flusher = Flusher(
            self.flush,
            what=f"cursors of {', '.join(self._destinations)}",
            name=" ".join((*self._destinations, "meta flush")),
            period_s=flush_period_s if writing is Writing.PERIODIC else 0.0,
            stop_timeout_s=stop_timeout_s,
        )

    def start(self) -> None:
        """Load what is stored and begin to write. Raises MetaStoreError."""
        self.place.open(self._destinations, self._stop)
        try:
            for destination in self._destinations:
                self._load(destination)
        except MetaStoreError:
            self.place.close()
            raise
        self._flusher.start()

    def request_stop(self) -> None:
        """Let a start that waits for the place end."""
        self._stop.request()

    def stop(self) -> None:
        """Write what is not written yet and end the thread; may be called again.

        Raises MetaStoreError when it cannot be written, or not in time: a place that
        hangs must not keep the process from ending.
        """
        try:
            self._flusher.stop(
                self.place.silence,
                "; clients receive again what they acked since the last write",
            )
        finally:
            self.place.close()

    def subscribe(self, identity: ClientIdentity) -> None:
        """Add the client or replace its filter."""
        self._load(identity.destination)
        self._memory.subscribe(identity)
        self._mark(identity.destination, urgent=True)

    def unsubscribe(self, identity: ClientIdentity) -> None:
        """Remove the client; its cursor and batches stay in memory."""
        self._load(identity.destination)
        self._memory.unsubscribe(identity)
        self._mark(identity.destination, urgent=True)

    def has_subscribed(self, identity: ClientIdentity) -> bool:
        """Tell whether the client is subscribed."""
        self._load(identity.destination)
        return self._memory.has_subscribed(identity)

    def subscriptions(self, destination: str) -> list[ClientIdentity]:
        """Return all clients of a destination, by client id."""
        self._load(destination)
        return self._memory.subscriptions(destination)

    def cursor(self, identity: ClientIdentity) -> LogPosition | None:
        """Return where the client has acked to."""
        self._load(identity.destination)
        return self._memory.cursor(identity)

    def update_cursor(self, identity: ClientIdentity, position: LogPosition) -> None:
        """Move the client's cursor."""
        self._load(identity.destination)
        is_first = self._memory.cursor(identity) is None
        self._memory.update_cursor(identity, position)
        self._mark(identity.destination, urgent=is_first)

    def places(self, identity: ClientIdentity) -> dict[int, LogPosition]:
        """Return where the client has acked to in each source of a group."""
        self._load(identity.destination)
        return self._memory.places(identity)

    def update_places(
        self, identity: ClientIdentity, places: Mapping[int, LogPosition]
    ) -> None:
        """Move these of the client's places."""
        self._load(identity.destination)
        has_first = not self._memory.places(identity).keys() >= places.keys()
        self._memory.update_places(identity, places)
        self._mark(identity.destination, urgent=has_first)

    def add_batch(self, identity: ClientIdentity, positions: PositionRange) -> int:
        """Register a batch; returns its id: 1, 2, 3 … per client."""
        self._load(identity.destination)
        batch_id = self._memory.add_batch(identity, positions)
        self._mark_batches(identity.destination)
        return batch_id

    def remove_batch(
        self, identity: ClientIdentity, batch_id: int
    ) -> PositionRange | None:
        """Remove an open batch; None when the id is unknown.

        Raises ClientError when it is not the smallest open id.
        """
        removed = self._memory.remove_batch(identity, batch_id)
        if removed is not None:
            self._mark_batches(identity.destination)
        return removed

    def batches(self, identity: ClientIdentity) -> dict[int, PositionRange]:
        """Return the open batches, smallest id first."""
        return self._memory.batches(identity)

    def clear_batches(self, identity: ClientIdentity) -> None:
        """Forget all open batches; their ids are not used again."""
        self._memory.clear_batches(identity)
        self._mark_batches(identity.destination)

    def flush(self) -> None:
        """Write what is not written yet. Raises MetaStoreError."""
        with self._using_place:
            with self._lock:
                # Taken before the content is: what changes meanwhile is written by
                # the next flush.
                dirty, self._dirty = self._dirty, set()
            written: set[str] = set()
            try:
                for destination in sorted(dirty):
                    self.place.write(destination, self._clients(destination))
                    written.add(destination)
            finally:
                with self._lock:
                    self._dirty |= dirty - written

    def _clients(self, destination: str) -> list[StoredClient]:
        known = self._written.get(destination, {})
        found = [
            self._client(identity, known.get(identity))
            for identity in self._memory.subscriptions(destination)
        ]
        self._written[destination] = {each.identity: each for each in found}
        return found

    def _client(
        self, identity: ClientIdentity, known: StoredClient | None
    ) -> StoredClient:
        """Return what is to be stored of a client; `known`: what was at the last time.

        It is the same object while the client is idle: thousands of new ones with each
        flush would have the garbage collector stop everything again and again.
        """
        cursor = self._memory.cursor(identity)
        # Batches change with every get: once in a period they would tell nothing.
        periodic = self._writing is Writing.PERIODIC
        batches = {} if periodic else self._memory.batches(identity)
        places = self._memory.places(identity)
        if (
            known is not None
            and known.identity is identity  # others with another filter are equal
            and known.cursor is cursor
            and not (batches or known.batches or places or known.places)
        ):
            return known
        return StoredClient(identity, cursor, batches, places=places)

    def _load(self, destination: str) -> None:
        if destination in self._loaded:  # for ever, so no lock is needed to see it
            return
        with self._using_place:
            if destination in self._loaded:
                return
            for client in self.place.read(destination):
                self._memory.restore(
                    client.identity, client.cursor, client.last_batch_id, client.places
                )
            with self._lock:
                if self.place.must_write(destination):
                    self._dirty.add(destination)
                # Last, so that no one sees a destination that is half loaded.
                self._loaded.add(destination)

    def _mark_batches(self, destination: str) -> None:
        if self._writing is not Writing.PERIODIC:
            self._mark(destination, urgent=False)

    def _mark(self, destination: str, *, urgent: bool) -> None:
        with self._lock:
            self._dirty.add(destination)
        if self._writing is Writing.AT_ONCE:
            self.flush()
        else:
            self._flusher.changed(urgent=urgent)
