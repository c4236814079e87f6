"""The sizes of a source's binlog files as far as they are known, to count bytes.

Files that have ended do not grow: their sizes are those of the list at the start of the
session. Of files that began later, it is known how far they were read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.model.positions import binlog_file_number

if TYPE_CHECKING:
    from canal_server.model.positions import EntryPosition
    from canal_server.source.read.available_positions import SourceFiles


class ReadFiles:
    """Written by the pump's thread; any thread may ask."""

    def __init__(self) -> None:
        self._bytes: dict[int, int] = {}  # by file number

    def begin(self, files: SourceFiles) -> None:
        """Note the files that the source of a session has."""
        # Replaced, not changed: another server's files may have the same names.
        self._bytes = {binlog_file_number(each.name): each.size for each in files.files}

    def note(self, position: EntryPosition) -> None:
        """Note that a file was read up to a position."""
        number, offset = position.order()
        if offset > self._bytes.get(number, 0):
            self._bytes[number] = offset

    def bytes_between(self, start: EntryPosition, end: EntryPosition) -> int | None:
        """Return about how much binlog is between two positions, 0 if none is.

        None if a file between them is not known.
        """
        (first, begin), (last, stop) = start.order(), end.order()
        if not start.journal_name or not end.journal_name:
            return None
        if last - first > len(self._bytes):
            return None  # a stored position may be of any file
        found = [self._bytes.get(number) for number in range(first, last)]
        if None in found:
            return None
        return max(0, sum(filter(None, found)) + stop - begin)
