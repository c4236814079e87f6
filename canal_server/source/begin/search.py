"""Searches one server's binlog for positions, by the boundary index and by reading.

What the index knows is not read again; where it ends, reading continues from its last
mark, and what was read is added to it. Leaves out which position is searched for, and
why (`start_finder`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from canal_server.errors import SourceError
from canal_server.mysql.server_errors import is_refusal
from canal_server.source.begin.boundary_index import FileKey
from canal_server.source.begin.index_writer import IndexWriter
from canal_server.source.begin.start_finder import Found
from canal_server.source.read.gtid_sets import contains
from canal_server.source.read.start_position import FIRST_EVENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.model.positions import Executed
    from canal_server.source.begin.boundary_index import BoundaryIndex, Mark
    from canal_server.source.read.binlog_scan import Gtids, Scanner, SeenEvent

_log = logging.getLogger(__name__)

FROM_MARK: Final = "reading {} from the index mark at {}"
FROM_FIRST: Final = "reading {} from its beginning"


class BinlogSearch:
    """Implements `start_finder.Search`; for one session and one thread.

    `source` identifies the server in the index.
    """

    def __init__(
        self,
        scanner: Scanner,
        *,
        mariadb: bool,
        source: str = "",
        index: BoundaryIndex | None = None,
    ) -> None:
        self._scanner = scanner
        self._mariadb = mariadb
        self._source = source
        self._index = index
        self._keys: dict[str, FileKey] = {}  # of files whose first event was read

    def event_at(self, file: str, offset: int) -> SeenEvent | None:
        """Return the event at an offset, None at the file's end."""
        return self._scanner.event_at(file, offset)

    def boundary_before(self, files: Sequence[str], timestamp_ms: int) -> Found | None:
        """Return the end of the last transaction older than a time, in these files.

        A file's first event dates the file; everything in the files before it is older.
        So only a few files need to be read.
        """
        low, high = 0, len(files)
        while low < high:
            middle = (low + high) // 2
            if self._key(files[middle]).began_s * 1000 < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return None
        file = files[low - 1]
        mark = None
        if self._index is not None:
            mark = self._verified(
                file, self._index.at_time(self._key(file), timestamp_ms)
            )
        start = FIRST_EVENT if mark is None else mark.event
        writer = self._writer(file, whole=mark is None)
        offset = self._scanner.boundary_before(
            file, timestamp_ms, start, None if writer is None else writer.note
        )
        if writer is not None:
            writer.flush()
        return Found(file, offset or FIRST_EVENT, _means(file, mark))

    def transaction_start(self, file: str, offset: int) -> Found:
        """Return the end of the last transaction that ends at or before an offset."""
        mark = self._mark_before(file, offset)
        start = FIRST_EVENT if mark is None else mark.event
        found = self._scanner.boundary_at(file, offset, start)
        return Found(file, found, _means(file, mark))

    def executed_at(
        self, file: str, offset: int, since: Executed | None = None
    ) -> tuple[Found, Gtids]:
        """Return the last boundary at or before an offset, and the set executed there.

        `since`: a set of the same file to continue from.
        """
        if since is not None:
            offset_found, gtids = self._scanner.executed_at(
                file,
                offset,
                mariadb=self._mariadb,
                start=since.event,
                known=since.gtids,
            )
            return Found(file, offset_found, "a stored set"), gtids
        mark = self._mark_before(file, offset, with_gtids=True)
        found, gtids = self._scanner.executed_at(
            file,
            offset,
            mariadb=self._mariadb,
            start=0 if mark is None else mark.event,
            known="" if mark is None else mark.gtids,
        )
        return Found(file, found, _means(file, mark)), gtids

    def head_of(self, file: str) -> Gtids:
        """Return the set that was executed before a file."""
        return self._scanner.head_of(file, mariadb=self._mariadb)

    def covers(self, gtids: Gtids, file: str, offset: int) -> bool:
        """Return whether a set has everything this server executed up to an offset.

        Including the transaction that ends in the event there. False when that is
        unknown: no event begins there, or it is purged.
        """
        try:
            found, executed = self.executed_at(file, offset)
        except SourceError as error:
            if not is_refusal(error):
                raise
            return False
        return found.offset == offset and contains(gtids, executed)

    def _writer(self, file: str, *, whole: bool) -> IndexWriter | None:
        """Return the writer that indexes what is read; rows are not counted."""
        if self._index is None:
            return None
        key = self._key(file)
        return IndexWriter(
            self._index,
            self._source,
            lambda name: key.began_s if name == file else None,
            counts_rows=False,
            boundary=(file, FIRST_EVENT) if whole else None,
        )

    def _mark_before(
        self, file: str, offset: int, *, with_gtids: bool = False
    ) -> Mark | None:
        if self._index is None:
            return None
        # A position to start reading from: the target itself may be the mark's end.
        found = self._index.before(self._key(file), offset, with_gtids=with_gtids)
        return self._verified(file, found)

    def _verified(self, file: str, mark: Mark | None) -> Mark | None:
        """Return a mark if its event is really there, None otherwise.

        A file recreated within one second has the same key.
        """
        if mark is None or self._index is None:
            return None
        try:
            seen = self._scanner.event_at(file, mark.event)
        except SourceError as error:
            if not is_refusal(error):
                raise
            seen = None
        if seen is not None and mark.time_s in seen.times:
            return mark
        _log.info("dropped the index of %s: it is a different file now", file)
        self._index.forget(self._key(file))
        return None

    def _key(self, file: str) -> FileKey:
        """Return the key of a file, from its first event."""
        if file not in self._keys:
            began_s = self._scanner.first_event_ms(file) // 1000
            self._keys[file] = FileKey(self._source, file, began_s)
        return self._keys[file]


def _means(file: str, mark: Mark | None) -> str:
    if mark is None:
        return FROM_FIRST.format(file)
    return FROM_MARK.format(file, mark.stop)
