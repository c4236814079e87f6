"""Reads only the statements that may change tables, between two positions.

This closes the gaps of the table history. Rows are skipped, not decoded.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.model.positions import EntryPosition, binlog_file_number
from canal_server.mysql.replication import FileStart
from canal_server.source.read.binlog_reader import Reader
from canal_server.source.read.gtid_sets import contains
from canal_server.source.read.temporary_dump import (
    StatementCollector,
    TemporaryDump,
)

if TYPE_CHECKING:
    from canal_server.config.schema import InstanceConfig
    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.mysql.replication import DumpStart
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import Span
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.read.gtid_sets import Gtids

_log = logging.getLogger(__name__)

_SCANNER_REPLICA = 2


class BoundedReader(Reader):
    """A reader that ends at a position in its first file, or in a later one."""

    end: EntryPosition | None = None

    def start(self, file: str, position: int) -> None:
        """Set the position of the source's first byte."""
        super().start(file, position)
        self._bound(file)

    def _on_rotate(self) -> None:
        super()._on_rotate()
        self._bound(self.decoder.file)

    def _on_no_table_map(self) -> None:
        """Skip rows: reading may start between a table map and its rows."""
        self.decoder.skip()

    def _bound(self, file: str) -> None:
        if self.end is None or not file:
            return
        last = binlog_file_number(self.end.journal_name or "")
        if binlog_file_number(file) == last:
            self.decoder.set_limit(self.end.position or 0)
        elif binlog_file_number(file) > last:
            self.decoder.set_limit(0)


class DdlScanner:
    """Reads statements of one server; for one thread."""

    def __init__(
        self,
        config: InstanceConfig,
        access: Access,
        stop: Stop,
        *,
        replica: int = _SCANNER_REPLICA,
    ) -> None:
        self._dump = TemporaryDump(config, access, stop, replica=replica)

    def between(self, start: EntryPosition, stop: EntryPosition) -> list[DdlStatement]:
        """Return the statements that begin at or after `start` and before `stop`.

        Raises BinlogPurged when the server has purged them, ConnectionLost when they
        could not all be read.
        """
        if start.order() >= stop.order():
            return []
        _log.info("looking for statements from %s to %s", start, stop)
        collector = StatementCollector()
        reader = self._dump.reader(collector, BoundedReader)
        assert isinstance(reader, BoundedReader)
        reader.end = stop
        position = FileStart(start.journal_name or "", start.position or 4)
        self._dump.run(reader, position)
        return [
            each for each in collector.events if each.position.order() < stop.order()
        ]

    def between_sets(
        self,
        position: DumpStart,
        executed: Gtids,
        target: Gtids,
    ) -> list[DdlStatement]:
        """Return the statements after a GTID set until another set was executed.

        There may be a few more. `position` asks for what is not in `executed`, which
        grows with what is read. Raises as `between`.
        """
        collector = StatementCollector()
        reader = self._dump.reader(collector, gtids=executed)

        is_reached = False

        def take(_spans: list[Span]) -> bool:
            nonlocal is_reached
            # The set may have been completed by a statement that is reported next.
            was_reached = is_reached
            is_reached = _have_reached(reader.sets.gtids, target)
            return not was_reached

        if not contains(executed, target):
            self._dump.run(reader, position, take)
        return collector.events

    def first_position(self, position: DumpStart) -> EntryPosition | None:
        """Return the position of the first event that the server sends from a position.

        None when it has nothing to send.
        """
        collector = StatementCollector()
        # Whole: a TRUNCATE, for example, changes no table, and ends no transaction.
        reader = self._dump.reader(collector, whole=True)
        found: EntryPosition | None = None

        def take(spans: list[Span]) -> bool:
            nonlocal found
            block, first, _ = spans[0]
            record = block.record(first)
            found = EntryPosition(block.file, record["offset"], record["time"] * 1000)
            return False

        self._dump.run(reader, position, take)
        for event in collector.events:
            if found is None or event.position.order() < found.order():
                found = event.position
        return found


def _have_reached(executed: Gtids | None, target: Gtids) -> bool:
    return executed is not None and contains(executed, target)
