"""Positions of pumps that outlive the process: in memory and in a storage.

The storage is a folder of files (`file_meta`) or nodes of ZooKeeper (`zookeeper_meta`).
Leaves out managers that store nothing (`log_positions`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from canal_server.position.flusher import STOP_TIMEOUT_S, Flusher
from canal_server.position.write_behind import Writing
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.model.positions import LogPosition


class PositionStorage(Protocol):
    """Where positions are stored; every method raises MetaStoreError.

    All but `open` are called by one thread at a time.
    """

    def open(self, stop: Stop) -> None:
        """Prepare; may wait until a stop is requested, which then raises."""

    def close(self) -> None:
        """Release what `open` acquired."""

    def read(self, destination: str) -> LogPosition | None:
        """Return what is stored, None when nothing is."""

    def write(self, destination: str, position: LogPosition) -> None:
        """Store a position."""

    @property
    def silence(self) -> str:
        """Return the text of an error for a storage that does not answer."""


class StoredLogPositionManager:
    """Positions in memory and a storage; a `ports.LogPositionManager`.

    A stored position is read at the first request. With `Writing.AT_ONCE`, `persist`
    returns when the position is stored, and raises MetaStoreError.
    """

    def __init__(
        self,
        storage: PositionStorage,
        *,
        destinations: Sequence[str] = (),
        writing: Writing = Writing.PERIODIC,
        flush_period_s: float = 1.0,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self._storage = storage
        self._destinations = tuple(destinations)
        self._writing = writing
        self._lock = threading.Lock()  # guards the next two
        self._positions: dict[str, LogPosition | None] = {}
        self._dirty: dict[str, LogPosition] = {}
        self._using_storage = threading.Lock()  # one reader or writer at a time
        self._stop = Stop()  # ends a waiting start
        self._flusher = Flusher(
            self.flush,
            what=f"position of {', '.join(self._destinations)}",
            name=" ".join((*self._destinations, "position flush")),
            period_s=flush_period_s if writing is Writing.PERIODIC else 0.0,
            stop_timeout_s=stop_timeout_s,
        )

    def start(self) -> None:
        """Open the storage and start the thread. Raises MetaStoreError."""
        self._storage.open(self._stop)
        self._flusher.start()

    def request_stop(self) -> None:
        """Make a start fail that waits for the storage."""
        self._stop.request()

    def stop(self) -> None:
        """Write pending changes and stop the thread; may be called again.

        Raises MetaStoreError when they cannot be written, or not in time.
        """
        try:
            self._flusher.stop(self._storage.silence)
        finally:
            self._storage.close()

    def latest(self, destination: str) -> LogPosition | None:
        """Return the last position, None when none is known or stored.

        Raises MetaStoreError.
        """
        with self._lock:
            if destination in self._positions:
                return self._positions[destination]
        with self._using_storage:
            stored = self._storage.read(destination)
        with self._lock:
            # A position that the pump stored meanwhile is newer.
            return self._positions.setdefault(destination, stored)

    def persist(self, destination: str, position: LogPosition) -> None:
        """Store a position."""
        with self._lock:
            self._positions[destination] = position
            self._dirty[destination] = position
        if self._writing is Writing.AT_ONCE:
            self.flush()
        else:
            self._flusher.changed(urgent=False)

    def flush(self) -> None:
        """Write pending changes. Raises MetaStoreError."""
        with self._using_storage:
            with self._lock:
                dirty, self._dirty = self._dirty, {}
            try:
                while dirty:
                    destination = next(iter(dirty))
                    self._storage.write(destination, dirty[destination])
                    del dirty[destination]
            finally:
                with self._lock:
                    self._dirty = {**dirty, **self._dirty}
