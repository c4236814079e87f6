"""The statements that a private server has written to its binlog since the last look.

Reads the files themselves, as they grow; leaves out rows, and binlogs that are
compressed or encrypted.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from canal_server.source.read.python_events import Query, parse_query

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAGIC: Final = b"\xfebin"
_HEADER: Final = struct.Struct("<IBIIIH")  # time, type, server, size, end, flags
_QUERY: Final = 2
_ROTATE: Final = 4
_FORMAT: Final = 15
_CHECKSUM_BYTES: Final = 4


class BinlogTail:
    """Follows the binlog in a folder from where it ends now."""

    def __init__(self, folder: Path, base: str = "binlog") -> None:
        self._folder = folder
        self._base = base
        self._file = self._newest()
        self._at = len(_MAGIC)
        self._checksum = 0  # bytes at the end of each event
        self.statements()

    def statements(self) -> list[Query]:
        """Return the statements that arrived since the last call, in order."""
        found: list[Query] = []
        while True:
            following = self._read(found)
            if not following.exists():
                return found
            self._file, self._at = following, len(_MAGIC)

    def _read(self, found: list[Query]) -> Path:
        """Read the file to its end; returns the path of the one that may follow."""
        following = self._next()
        with self._file.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        for kind, body in self._events(data):
            if kind == _QUERY:
                found.append(parse_query(body))
            elif kind == _ROTATE:
                following = self._folder / body[8:].decode()
        return following

    def _events(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Give type and body of the whole events, and note how far they reach."""
        at = 0
        while at + _HEADER.size <= len(data):
            _, kind, _, size, _, _ = _HEADER.unpack_from(data, at)
            if size < _HEADER.size or at + size > len(data):
                break
            event = data[at : at + size]
            if kind == _FORMAT:
                self._checksum = _CHECKSUM_BYTES if event[-5] else 0
            elif self._checksum:
                event = event[:-_CHECKSUM_BYTES]
            yield kind, event[_HEADER.size :]
            at += size
        self._at += at

    def _newest(self) -> Path:
        # MariaDB since 11.4 has an index of GTIDs beside each file, with a suffix.
        return max(self._folder.glob(f"{self._base}.[0-9]*[0-9]"))

    def _next(self) -> Path:
        number = self._file.suffix[1:]
        return self._file.with_suffix(f".{int(number) + 1:0{len(number)}}")
