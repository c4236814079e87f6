"""Writes marks into the index of boundaries while a binlog is read in order.

Works per chunk, on sums from compiled code; there is no work per transaction.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from canal_server.source.begin.boundary_index import FIRST_EVENT, FileKey, Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.core.blocks import Block
    from canal_server.ports import Span
    from canal_server.source.begin.boundary_index import BoundaryIndex
    from canal_server.source.read.binlog_reader import Reader
    from canal_server.source.read.start_position import StartPosition

MARK_BYTES: Final = 1 << 20  # minimum of binlog between two marks
MARKS_HELD: Final = 64  # before they are written
HELD_S: Final = 5.0
# A longer set is stored with every 16th mark only: reading continues from there.
GTIDS_MAX: Final = 1024
LONG_SET_INTERVAL: Final = 16


class IndexWriter:
    """Follows one session's reading; for its thread.

    `began_s` returns when a file was created, None when that was not seen: the file is
    then left out. `exact_from`: number of the first file from which nothing is missing
    in what is read, and the sets in entries are exactly what was executed before; None:
    no file so far. A dump by GTID omits what is in the set, wherever it lies. `uses`:
    the destination reads from this server, it does not only search it. `boundary`: file
    and offset where reading starts, if that is between two transactions.
    """

    def __init__(
        self,
        index: BoundaryIndex,
        source: str,
        began_s: Callable[[str], int | None],
        *,
        exact_from: Callable[[], int | None] = lambda: 0,
        counts_rows: bool = True,
        uses: bool = False,
        boundary: tuple[str, int] | None = None,
        mark_bytes: int = MARK_BYTES,
    ) -> None:
        self._index = index
        self._source = source
        self._began_s = began_s
        self._exact_from = exact_from
        self._counts_rows = counts_rows
        self._uses = uses
        self._boundary = boundary
        self._mark_bytes = mark_bytes
        self._key: FileKey | None = None
        self._file = ""
        self._known: list[Mark] = []  # of this file, after the current offset
        self._start = -1  # of the range in progress; -1: no boundary seen
        self._last: Mark | None = None  # that range, up to the last boundary
        self._sums = [0, 0, 0]  # its transactions, rows, youngest time
        self._open = [0, 0, 0]  # the same, after the last boundary
        self._held: list[Mark] = []
        self._held_since_s = 0.0
        self._without_set = 0  # consecutive marks

    def note(self, spans: list[Span]) -> None:
        """Process records, the next ones of the binlog."""
        for block, first, stop in spans:
            if block.file != self._file:
                self._enter(block)
            if self._key is not None and self._is_exact(block):
                self._add(block, first, stop)
        if self._held and (
            len(self._held) >= MARKS_HELD
            or time.monotonic() - self._held_since_s >= HELD_S
        ):
            self._write()

    def flush(self) -> None:
        """Write everything held, up to the last boundary that was seen."""
        self._cut()
        self._write()

    def _enter(self, block: Block) -> None:
        self.flush()
        start = (
            FIRST_EVENT if self._file else -1
        )  # it continues from the previous block
        if not self._file and self._boundary and self._boundary[0] == block.file:
            start = self._boundary[1]
        self._file = block.file
        self._open_file(block.file, start)

    def _open_file(self, file: str, start: int) -> None:
        began_s = self._began_s(file)
        self._key = None if began_s is None else FileKey(self._source, file, began_s)
        self._start = start
        self._last = None
        self._sums, self._open = [0, 0, 0], [0, 0, 0]
        self._known = []
        if self._key is not None:
            if self._uses:
                self._index.use(self._key)
            self._known = self._index.marks(self._key, max(start, 0))

    def _add(self, block: Block, first: int, stop: int) -> None:
        if self._start < 0:
            index = block.first_boundary(first, stop)
            if index < 0:
                return
            self._start = _end_of(block, index)
            first = index + 1
        while (known := self._ahead()) is not None:
            # Known ranges are not written again: reading may move back.
            into = block.first_after(first, stop, known.start - 1, 0)
            if into == stop:
                break
            self._sum_up(block, first, into)
            self._cut()
            first = block.first_after(first, stop, known.stop - 1, 0)
            if first == stop:
                return
            self._known.pop(0)
            self._start = known.stop
            self._sums, self._open = [0, 0, 0], [0, 0, 0]
        self._sum_up(block, first, stop)

    def _is_exact(self, block: Block) -> bool:
        exact_from = self._exact_from()
        return exact_from is not None and block.file_number >= exact_from

    def _ahead(self) -> Mark | None:
        """Return the next known mark, unless it is already passed."""
        while self._known and self._known[0].stop <= self._start:
            self._known.pop(0)
        return self._known[0] if self._known else None

    def _sum_up(self, block: Block, first: int, stop: int) -> None:
        index = block.last_boundary(first, stop)
        if index < 0:
            _add(self._open, block.totals(first, stop))
            return
        _add(self._open, block.totals(first, index + 1))
        _add(self._sums, self._open)
        self._open = [0, 0, 0]
        _add(self._open, block.totals(index + 1, stop))
        record = block.record(index)
        end = record["offset"] + record["event_length"]
        transactions, rows, youngest_s = self._sums
        is_due = end - self._start >= self._mark_bytes
        self._last = Mark(
            self._start,
            record["offset"],
            end,
            record["time"],
            youngest_s,
            transactions,
            rows if self._counts_rows else None,
            self._gtids_at(block, index),
        )
        if is_due:
            self._cut()

    def _gtids_at(self, block: Block, index: int) -> str:
        """Return the set at a boundary, empty outside GTID mode or when too long."""
        text = block.position(index)[4]
        if len(text) > GTIDS_MAX and self._without_set < LONG_SET_INTERVAL:
            return ""
        return text

    def _cut(self) -> None:
        """End the range at its last boundary, if it has one."""
        last, self._last = self._last, None
        if last is None or last.stop <= last.start:
            return
        if not self._held:
            self._held_since_s = time.monotonic()
        self._held.append(last)
        self._without_set = 0 if last.gtids else self._without_set + 1
        self._start = last.stop
        self._sums = [0, 0, 0]

    def _write(self) -> None:
        held, self._held = self._held, []
        if held and self._key is not None:
            self._index.add(self._key, held)


def _add(sums: list[int], more: list[int] | tuple[int, int, int]) -> None:
    """Add transactions and rows, and keep the younger time."""
    sums[0] += more[0]
    sums[1] += more[1]
    sums[2] = max(sums[2], more[2])


def _end_of(block: Block, index: int) -> int:
    record = block.record(index)
    return record["offset"] + record["event_length"]


def session_writer(
    index: BoundaryIndex | None,
    server: str,
    reader: Reader,
    position: StartPosition,
    listed: Sequence[str],
) -> IndexWriter | None:
    """Return the writer that indexes what a session reads, None without an index.

    The session is one of the destination's pump. Files of the server that are no longer
    `listed` are deleted; an empty list: unknown.
    """
    if index is None:
        return None
    if listed:
        index.expire(server, listed)
    if not position.by_gtid:
        reader.sets.exact_from = 0
    return IndexWriter(
        index,
        server,
        reader.decoder.began_s.get,
        exact_from=lambda: reader.sets.exact_from,
        uses=True,
        boundary=position.boundary,
    )
