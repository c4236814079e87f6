"""A meta manager that answers from memory and writes to a storage.

The storage is a folder of files (`file_meta`) or nodes of ZooKeeper (`zookeeper_meta`).
Leaves out the thread that writes (`flusher`).
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

    Of open batches, only the last id is read back: their sequences mean nothing in
    another process.
    """

    identity: ClientIdentity
    cursor: LogPosition | None
    batches: Mapping[int, PositionRange] = field(default_factory=dict)
    last_batch_id: int = 0
    source_positions: Mapping[int, LogPosition] = field(
        default_factory=dict
    )  # in a group


class MetaStorage(Protocol):
    """Where clients are stored; every method raises MetaStoreError.

    All but `open` are called by one thread at a time.
    """

    def open(self, destinations: Sequence[str], stop: Stop) -> None:
        """Prepare; may wait until a stop is requested, which then raises."""

    def close(self) -> None:
        """Release what `open` acquired."""

    def read(self, destination: str) -> list[StoredClient]:
        """Return the clients of a destination."""

    def must_write(self, destination: str) -> bool:
        """Return whether what was read was damaged and must be written again."""

    def write(self, destination: str, clients: list[StoredClient]) -> None:
        """Store these clients, and no others, for a destination."""

    @property
    def silence(self) -> str:
        """Return the text of an error for a storage that does not answer."""


class StoredMetaManager:
    """Subscriptions, cursors and batches in memory and a storage; a `MetaManager`.

    `start` reads the clients of `destinations`; those of others are read at the first
    request, so that any call may raise MetaStoreError. Subscriptions are written at
    once, and so is the first cursor of a client: without it, a start after a crash
    would begin at the end of the binlog. Cursors that move are written as `writing`
    says. Except with `Writing.AT_ONCE` a thread writes, so that no client waits for the
    storage. Failed writes are retried.
    """

    def __init__(
        self,
        storage: MetaStorage,
        *,
        destinations: Sequence[str] = (),
        writing: Writing = Writing.PERIODIC,
        flush_period_s: float = 1.0,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self.storage = storage
        self._destinations = tuple(destinations)
        self._writing = writing
        self._memory = MemoryMetaManager()
        self._lock = threading.Lock()  # guards the next two
        self._loaded: set[str] = set()
        self._dirty: set[str] = set()
        # What was last written, by destination. Used by one writer at a time.
        self._written: dict[str, dict[ClientIdentity, StoredClient]] = {}
        self._using_storage = threading.Lock()  # one reader or writer at a time
        self._stop = Stop()  # ends a waiting start
        self._flusher = Flusher(
            self.flush,
            what=f"cursors of {', '.join(self._destinations)}",
            period_s=flush_period_s if writing is Writing.PERIODIC else 0.0,
            stop_timeout_s=stop_timeout_s,
        )

    def start(self) -> None:
        """Load what is stored, and write changes from now on. Raises MetaStoreError."""
        self.storage.open(self._destinations, self._stop)
        try:
            for destination in self._destinations:
                self._load(destination)
        except MetaStoreError:
            self.storage.close()
            raise
        self._flusher.start()

    def request_stop(self) -> None:
        """Make a start fail that waits for the storage."""
        self._stop.request()

    def stop(self) -> None:
        """Write pending changes; may be called again.

        Raises MetaStoreError when they cannot be written, or not in time: a storage
        that hangs must not keep the process from ending.
        """
        try:
            self._flusher.stop(
                self.storage.silence,
                "; changes acked since the last write are delivered again",
            )
        finally:
            self.storage.close()

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
        """Return whether the client is subscribed."""
        self._load(identity.destination)
        return self._memory.has_subscribed(identity)

    def subscriptions(self, destination: str) -> list[ClientIdentity]:
        """Return all clients of a destination, by client id."""
        self._load(destination)
        return self._memory.subscriptions(destination)

    def cursor(self, identity: ClientIdentity) -> LogPosition | None:
        """Return the position up to which the client has acked."""
        self._load(identity.destination)
        return self._memory.cursor(identity)

    def update_cursor(self, identity: ClientIdentity, position: LogPosition) -> None:
        """Move the client's cursor."""
        self._load(identity.destination)
        is_first = self._memory.cursor(identity) is None
        self._memory.update_cursor(identity, position)
        self._mark(identity.destination, urgent=is_first)

    def source_positions(self, identity: ClientIdentity) -> dict[int, LogPosition]:
        """Return the client's acked position in each source of a group."""
        self._load(identity.destination)
        return self._memory.source_positions(identity)

    def update_source_positions(
        self, identity: ClientIdentity, positions: Mapping[int, LogPosition]
    ) -> None:
        """Move these positions of the client."""
        self._load(identity.destination)
        has_first = (
            not self._memory.source_positions(identity).keys() >= positions.keys()
        )
        self._memory.update_source_positions(identity, positions)
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
        """Write pending changes. Raises MetaStoreError."""
        with self._using_storage:
            with self._lock:
                # Reset before the content is read: later changes are written by the
                # next flush.
                dirty, self._dirty = self._dirty, set()
            written: set[str] = set()
            try:
                for destination in sorted(dirty):
                    self.storage.write(destination, self._clients(destination))
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
        """Return what to store of a client; `known` is what was last written.

        It is the same object while the client is idle: thousands of new objects with
        each flush would make the garbage collector stop everything repeatedly.
        """
        cursor = self._memory.cursor(identity)
        # Batches change with every get: one snapshot in a period would say nothing.
        periodic = self._writing is Writing.PERIODIC
        batches = {} if periodic else self._memory.batches(identity)
        positions = self._memory.source_positions(identity)
        if (
            known is not None
            and known.identity is identity  # others with another filter are equal
            and known.cursor is cursor
            and not (batches or known.batches or positions or known.source_positions)
        ):
            return known
        return StoredClient(identity, cursor, batches, source_positions=positions)

    def _load(self, destination: str) -> None:
        if destination in self._loaded:  # never removed, so this needs no lock
            return
        with self._using_storage:
            if destination in self._loaded:
                return
            for client in self.storage.read(destination):
                self._memory.restore(
                    client.identity,
                    client.cursor,
                    client.last_batch_id,
                    client.source_positions,
                )
            with self._lock:
                if self.storage.must_write(destination):
                    self._dirty.add(destination)
                # Last, so that no other thread sees a destination that is half loaded.
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
