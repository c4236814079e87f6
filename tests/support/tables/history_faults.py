"""Opens and writes a table history on a disk that is full or read-only.

A program, since disks and rights are those of a process: `open PATH` prints whether it
can be opened, `room FOLDER SEED` writes to a small disk that is full now and then.
"""

from __future__ import annotations

import random
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from history_writer import WRITES, content, write

from canal_server.errors import TableMetaStoreError
from canal_server.tablemeta.storage.sqlite_storage import SqliteHistoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable

OPENED = "opened"
ROUNDS = 4
PAGE = 4096
LEFT_PAGES_MAX = 40  # about as much as one write needs


class SmallDisk:
    """A folder on a disk of its own, which can be filled."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._filler = folder / "filler"
        self._rng = rng

    def fill(self) -> None:
        """Leave nothing, or less than is needed by most."""
        with self._filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(PAGE))
            except OSError:
                pass
            left = self._rng.choice((0, self._rng.randrange(LEFT_PAGES_MAX)))
            file.truncate(max(0, file.tell() - left * PAGE))

    def empty(self) -> None:
        """Make room."""
        self._filler.unlink()

    def refuses(self, call: Callable[[], object]) -> bool:
        """Call with a full disk; returns whether that was rightly refused."""
        self.fill()
        try:
            call()
        except TableMetaStoreError as error:
            if "room" not in str(error):
                raise
            return True
        else:
            return False


def write_without_room(folder: Path, rng: random.Random) -> dict[int, int]:
    """Try each write without room and repeat it with room; returns the refusals."""
    disk = SmallDisk(folder, rng)
    refusals: dict[int, int] = {}
    path = folder / "data" / "tablemeta.sqlite"
    storage = SqliteHistoryStorage(path)
    with tempfile.TemporaryDirectory() as other, closing(storage):
        model = SqliteHistoryStorage(Path(other, "model.sqlite"))
        model.open()
        disk.refuses(storage.open)
        disk.empty()
        for number in range(ROUNDS * WRITES):
            storage.open()
            # What can be moved from the log into the file is, after every write.
            connection = storage._database._open_connection()
            connection.execute("PRAGMA wal_autocheckpoint = 1")
            before = content(model)
            was_refused = disk.refuses(lambda number=number: write(storage, number))  # type: ignore[misc]
            write(model, number)
            if was_refused:
                refusals[number % WRITES] = refusals.get(number % WRITES, 0) + 1
                disk.empty()
                assert content(storage) == before
                write(storage, number)
                disk.fill()
            assert content(storage) == content(model)
            if number % 5 == 0:
                storage.close()
                disk.empty()
                disk.refuses(storage.open)
            disk.empty()
        storage.close()
        storage.open()
        assert content(storage) == content(model)
        model.close()
    return refusals


def main(action: str, position: str, seed: str = "0") -> None:
    """Do what a test asks for and print the result of it."""
    if action == "room":
        refusals = write_without_room(Path(position), random.Random(int(seed)))
        print(*sorted(refusals))
        return
    storage = SqliteHistoryStorage(Path(position))
    try:
        storage.open()
    except TableMetaStoreError as error:
        print(error)
    else:
        storage.close()
        print(OPENED)


if __name__ == "__main__":
    main(*sys.argv[1:])
