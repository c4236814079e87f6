"""Counts the transactions between two positions of a source's binlog.

Reads what lies between, without the rows. Leaves out the limit on that (`source_lag`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.model.positions import EntryPosition
from canal_server.mysql.replication import FIRST_EVENT, FileStart
from canal_server.source.read.ddl_scan import BoundedReader
from canal_server.source.read.temporary_dump import StatementCollector, TemporaryDump

if TYPE_CHECKING:
    from canal_server.config.schema import InstanceConfig
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import Span
    from canal_server.runtime.lifecycle import Stop

_SURVEYOR_REPLICA: Final = 5


@dataclass(frozen=True, slots=True)
class Survey:
    """The transactions that end between two positions; other statements count as one.

    `first_ms` is when the first one ended. `last` is the position after the last one.
    """

    transactions: int = 0
    first_ms: int | None = None
    last: EntryPosition | None = None


class Surveyor:
    """Queries the binlog of one server; for one thread."""

    def __init__(self, config: InstanceConfig, access: Access, stop: Stop) -> None:
        self._dump = TemporaryDump(config, access, stop, replica=_SURVEYOR_REPLICA)

    def between(self, start: EntryPosition, stop: EntryPosition) -> Survey:
        """Return what ends after `start` and at or before `stop`.

        An included position is one to start at; at any other position an event begins
        that a client has received. Raises SourceError, BinlogPurged when `start` is
        purged.
        """
        if not stop.included:
            stop = replace(stop, position=(stop.position or 0) + 1)
        if start.order() >= stop.order():
            return Survey()
        count = _Count(start, stop)
        reader = self._dump.reader(StatementCollector(), BoundedReader, whole=True)
        assert isinstance(reader, BoundedReader)
        reader.end = stop
        position = FileStart(start.journal_name or "", start.position or FIRST_EVENT)
        self._dump.run(reader, position, count.take)
        return count.found

    def boundary_before(self, position: EntryPosition) -> EntryPosition:
        """Return the last boundary of transactions at or before a position.

        Searches only the position's own file, where no transaction continues from an
        earlier file; the start of the file has no time.
        """
        begin = EntryPosition(position.journal_name, FIRST_EVENT, included=True)
        return self.between(begin, replace(position, included=True)).last or begin


class _Count:
    """Consumes the spans of a reader."""

    def __init__(self, start: EntryPosition, stop: EntryPosition) -> None:
        self.found = Survey()
        self._stop = stop
        file, offset = start.order()
        # The record at this offset is the last one that does not count.
        self._last_excluded = file, offset - 1 if start.included else offset

    def take(self, spans: list[Span]) -> bool:
        file_number, excluded = self._last_excluded
        for block, first, stop in spans:
            if block.file_number == file_number:
                # Entries of a compressed transaction share their offset.
                first = block.first_after(first, stop, excluded, 2**32 - 1)  # noqa: PLW2901
            self._count((block, first, stop))
        return True

    def _count(self, span: Span) -> None:
        block, first, stop = span
        last = block.last_boundary(first, stop)
        if (
            last >= 0
            and self._stop.included
            and _position_after(span, last).order() > self._stop.order()
        ):
            # At most one: reading ends with the event that contains the stop.
            last = block.last_boundary(first, last)
        if last < 0:
            return
        number, at = 0, last
        while at >= 0:
            number, earliest = number + 1, at
            at = block.last_boundary(first, at)
        first_ms = self.found.first_ms
        if first_ms is None:
            first_ms = block.position(earliest)[2]
        self.found = Survey(
            self.found.transactions + number,
            first_ms,
            _position_after(span, last),
        )


def _position_after(span: Span, index: int) -> EntryPosition:
    """Return the position after a record of a span's block."""
    block = span[0]
    file, offset, timestamp, server_id = block.position(index)[:4]
    offset += block.record(index)["event_length"]
    return EntryPosition(file, offset, timestamp, server_id, included=True)
