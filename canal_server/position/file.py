"""A meta manager whose subscriptions and cursors are in files, one a destination.

`<data dir>/<destination>/meta.dat` has the content of `metafile` and is written by
`durable`. Open batches are in memory only.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from canal_server.errors import MetaStoreError
from canal_server.position import metafile
from canal_server.position.durable import Disk, replace_content
from canal_server.position.memory import MemoryMetaManager

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogPosition, PositionRange

logger = logging.getLogger(__name__)

FILE_NAME: Final = "meta.dat"
BACKUP_NAME: Final = "meta.dat.bak"
STOP_TIMEOUT_S: Final = 5.0  # half of what the process has for its end


class FileMetaManager:
    """Subscriptions and cursors in files; a `ports.MetaManager`.

    The files of `destinations` are read by `start`, those of others when they are
    asked for first; any call may therefore raise MetaStoreError. A changed cursor is
    written within `flush_period_s`, a changed subscription at once; both by a
    thread of its own, so that no client waits for the disk. What could not be
    written is logged and tried again.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        destinations: Sequence[str] = (),
        flush_period_s: float = 1.0,
        disk: Disk | None = None,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self._data_dir = data_dir
        self._destinations = tuple(destinations)
        self._flush_period_s = flush_period_s
        self._stop_timeout_s = stop_timeout_s
        self._disk = disk or Disk()
        self._memory = MemoryMetaManager()
        self._changed = threading.Condition()  # guards the five that follow
        self._loaded: set[str] = set()
        self._dirty: set[str] = set()
        self._restored: set[str] = set()  # their backup is better than their file
        self._urgent = False
        self._stopping = False
        self._writing = threading.Lock()  # one writer of files at a time
        self._thread = threading.Thread(
            target=self._flush_until_stopped,
            name=" ".join((*self._destinations, "meta flush")),
            daemon=True,
        )

    def start(self) -> None:
        """Load the files and begin to write. Raises MetaStoreError."""
        for destination in self._destinations:
            self._load(destination)
        self._thread.start()

    def stop(self) -> None:
        """Write what is not written yet and end the thread; may be called again.

        Raises MetaStoreError when it cannot be written, or not in time: a disk that
        hangs must not keep the process from ending.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(self._stop_timeout_s)
            if self._thread.is_alive():
                raise MetaStoreError(
                    f"cannot write the cursors of {', '.join(self._destinations)}: the"
                    f" disk of {self._data_dir} did not answer for"
                    f" {self._stop_timeout_s:g} s; clients receive again what they"
                    " acked since the last write"
                )
        # Of a thread that ended, only what it could not write is left.
        self.flush()

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
        self._memory.update_cursor(identity, position)
        self._mark(identity.destination, urgent=False)

    def add_batch(self, identity: ClientIdentity, positions: PositionRange) -> int:
        """Register a batch; returns its id: 1, 2, 3 … per client."""
        return self._memory.add_batch(identity, positions)

    def remove_batch(
        self, identity: ClientIdentity, batch_id: int
    ) -> PositionRange | None:
        """Remove an open batch; None when the id is unknown.

        Raises ClientError when it is not the smallest open id.
        """
        return self._memory.remove_batch(identity, batch_id)

    def batches(self, identity: ClientIdentity) -> dict[int, PositionRange]:
        """Return the open batches, smallest id first."""
        return self._memory.batches(identity)

    def clear_batches(self, identity: ClientIdentity) -> None:
        """Forget all open batches; their ids are not used again."""
        self._memory.clear_batches(identity)

    def flush(self) -> None:
        """Write what is not written yet. Raises MetaStoreError."""
        with self._writing:
            with self._changed:
                dirty = sorted(self._dirty)
                # Taken before the content is: what changes meanwhile is written by
                # the next flush.
                self._dirty.clear()
                self._urgent = False
            try:
                while dirty:
                    self._write(dirty[-1])
                    dirty.pop()
            except OSError as error:
                raise MetaStoreError(
                    f"cannot write the cursors of {dirty[-1]}: {error},"
                    f" make room or rights in {self._path(dirty[-1]).parent}"
                ) from error
            finally:
                with self._changed:
                    self._dirty.update(dirty)

    def _load(self, destination: str) -> None:
        # Under the lock, so that no one sees a destination that is half loaded.
        with self._changed:
            if destination in self._loaded:
                return
            for identity, cursor in self._read(destination):
                self._memory.subscribe(identity)
                if cursor is not None:
                    self._memory.update_cursor(identity, cursor)
            self._loaded.add(destination)

    def _read(self, destination: str) -> metafile.Clients:
        """Read a destination's file, or its backup when the file is damaged."""
        path = self._path(destination)
        backup = path.with_name(BACKUP_NAME)
        try:
            return metafile.decode(destination, self._disk.read(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise MetaStoreError(f"cannot read {path}: {error}") from error
        except ValueError as error:
            damage = error
        try:
            clients = metafile.decode(destination, self._disk.read(backup))
        except (OSError, ValueError) as error:
            raise MetaStoreError(
                f"{path} is damaged ({damage}) and {backup.name} is of no use either"
                f" ({error}), put one of them right; without both files clients"
                " begin anew"
            ) from damage
        logger.error(
            "%s is damaged (%s), took the cursors of %s, which are older:"
            " clients receive again what they acked since",
            path,
            damage,
            backup.name,
        )
        self._restored.add(destination)
        self._dirty.add(destination)
        return clients

    def _write(self, destination: str) -> None:
        path = self._path(destination)
        clients: metafile.Clients = [
            (identity, self._memory.cursor(identity))
            for identity in self._memory.subscriptions(destination)
        ]
        # A damaged file must not take the place of the backup it was restored from.
        keep = destination not in self._restored
        replace_content(
            self._disk,
            path,
            metafile.encode(destination, clients),
            backup=path.with_name(BACKUP_NAME) if keep else None,
        )
        self._restored.discard(destination)

    def _path(self, destination: str) -> Path:
        if destination in ("", ".", "..") or "/" in destination or "\0" in destination:
            raise MetaStoreError(
                f"destination {destination!r} cannot be the name of a folder"
            )
        return self._data_dir / destination / FILE_NAME

    def _mark(self, destination: str, *, urgent: bool) -> None:
        with self._changed:
            self._dirty.add(destination)
            if urgent and not self._urgent:
                self._urgent = True
                self._changed.notify()

    def _flush_until_stopped(self) -> None:
        failed = False
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopping or self._urgent, self._flush_period_s
                )
                stopping = self._stopping
            try:
                self.flush()
            except Exception:  # the outermost frame of this thread
                # Once, not with every period; the last failure is told by `stop`,
                # which tries once more.
                if not failed and not stopping:
                    logger.exception("cursors are not written for now, trying again")
                failed = True
            else:
                if failed:
                    logger.warning("cursors are written again")
                failed = False
            if stopping:
                return
