"""A file of lines that survives crashes: each line is complete or absent."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Final

from canal_server.client.handlers.file_modes import PRIVATE, open_with_mode
from canal_server.errors import CanalError

if TYPE_CHECKING:
    from pathlib import Path

_BUFFER_BYTES: Final = 1024 * 1024
_BLOCK_BYTES: Final = 64 * 1024


class LineFile:
    """Lines that are appended, and durable from `sync` on; for one writer at a time.

    A line that a crash left incomplete is removed when the file is opened.
    """

    def __init__(self, path: Path, mode: int = PRIVATE) -> None:
        """Open the file, or create it with this mode.

        Raises OSError, and CanalError while another process writes it.
        """
        self.path = path
        self._buffer = bytearray()
        is_new = not path.exists()
        self._fd = open_with_mode(path, os.O_RDWR | os.O_APPEND, mode)
        try:
            self._lock()
            if is_new:
                sync_folder(path.parent)
            self.size = self._complete_bytes()  # that are durable
            os.ftruncate(self._fd, self.size)
        except BaseException:
            os.close(self._fd)
            raise

    def append(self, line: str) -> None:
        """Append a line; its end is added. Raises OSError."""
        # An unpaired surrogate becomes an escape, which JSON has as well.
        self._buffer += line.encode(errors="backslashreplace")
        self._buffer += b"\n"
        if len(self._buffer) >= _BUFFER_BYTES:
            self._write()

    def sync(self) -> None:
        """Return when everything is on the disk. Raises OSError."""
        self._write()
        os.fsync(self._fd)
        self.size = os.fstat(self._fd).st_size

    def rollback(self) -> None:
        """Remove what was appended since the last `sync`."""
        self._buffer.clear()
        os.ftruncate(self._fd, self.size)

    def is_at(self, path: Path) -> bool:
        """Return whether a path leads to this file. Raises OSError."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._fd))

    def close(self) -> None:
        """Close the file, without what was not synced."""
        self.rollback()
        os.close(self._fd)

    def _write(self) -> None:
        while self._buffer:
            del self._buffer[: os.write(self._fd, self._buffer)]

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CanalError(
                f"{self.path} is written by another process; use another file"
            ) from None

    def _complete_bytes(self) -> int:
        """Return the size of the file up to the end of its last complete line."""
        end = os.fstat(self._fd).st_size
        while end > 0:
            start = max(0, end - _BLOCK_BYTES)
            at = os.pread(self._fd, end - start, start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
        return 0


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder are on the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
