"""Writes cursors until it is killed.

`position_writer.py STORAGE WRITING FROM [between]`. Each number on standard output is
one that was stored for certain. STORAGE is a folder, or servers of ZooKeeper; WRITING
when a manager writes by itself. With `between`, it kills itself when the number FROM
stands beside the cursor and not yet in it.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path

from canal_server.doors.zookeeper import ZooKeeper
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.atomic_file import Disk
from canal_server.position.file_meta import MetaFiles
from canal_server.position.stored_meta import StoredMetaManager, Writing
from canal_server.position.zookeeper_meta import MetaNodes

CLIENT = ClientIdentity("example", 1001)
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
ORIGINALS = ("meta.dat", "cursor")  # what has the abridged ones


def position(offset: int) -> LogPosition:
    """Return a position whose text is longer the further it is; only a tag has more."""
    gtids = f"{UUID}:1-{offset + 1}:blue:1-{offset + 2}"
    return LogPosition(
        LogIdentity("db", 3306),
        EntryPosition("b" * (offset % 5000), offset, 0, 1, gtids),
    )


class DyingDisk(Disk):
    """Kills the process instead of replacing a file of the original's."""

    def replace(self, path: Path, other: Path) -> None:
        """Replace what is ours."""
        _die_at(other.name)
        super().replace(path, other)


class DyingZooKeeper(ZooKeeper):
    """Kills the process instead of writing a node of the original's."""

    def write(
        self, path: str, data: bytes | None, version: int, *, fence: str | None = None
    ) -> int:
        """Write what is ours."""
        _die_at(path.rpartition("/")[2])
        return super().write(path, data, version, fence=fence)


def _die_at(name: str) -> None:
    if name in ORIGINALS:
        os.kill(os.getpid(), signal.SIGKILL)


class Store:
    """One number, stored as a cursor."""

    def __init__(
        self,
        storage: str,
        writing: Writing = Writing.AT_ONCE,
        *,
        dying: bool = False,
    ) -> None:
        folder = Path(storage) if storage.startswith("/") else None
        disk = DyingDisk() if dying else None
        session = DyingZooKeeper if dying else ZooKeeper
        self._meta = StoredMetaManager(
            MetaFiles(folder, disk=disk) if folder else MetaNodes(session(storage)),
            destinations=["example"],
            writing=writing,
            flush_period_s=0.003,
        )
        self._meta.start()

    def put(self, number: int) -> None:
        """Set the number; the manager decides when it is stored."""
        if not self._meta.has_subscribed(CLIENT):
            self._meta.subscribe(CLIENT)
        self._meta.update_cursor(CLIENT, position(number))

    def settle(self) -> None:
        """Return when the last number is stored."""
        self._meta.flush()

    def get(self) -> int:
        """Return the stored number, 0 when none is. Checks that it is whole."""
        found = self._meta.cursor(CLIENT)
        number = found.position.position or 0 if found else 0
        assert not found or found == position(number)
        return number

    def close(self) -> None:
        """Release the storage."""
        self._meta.stop()


def settles_every(writing: Writing) -> int:
    """Return after how many numbers the writer makes sure that they are stored."""
    return 1 if writing is Writing.AT_ONCE else 7


if __name__ == "__main__":
    storage, how, first, *rest = sys.argv[1:]
    store = Store(storage, Writing(how), dying=bool(rest))
    for count in itertools.count(int(first)):
        store.put(count)
        if count % settles_every(Writing(how)) == 0:
            store.settle()
            print(count, flush=True)
