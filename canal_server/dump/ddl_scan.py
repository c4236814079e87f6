"""Reads only the statements that may change tables, from one place to another.

This closes the gaps of the table history. Rows are stepped over, not decoded.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.config.schema import FilterConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.subjects import Subjects
from canal_server.dump.reader import Reader, StreamEnd
from canal_server.errors import ConnectionLost
from canal_server.model.positions import EntryPosition, binlog_file_number
from canal_server.mysql.dump import DumpOptions, DumpStream
from canal_server.mysql.failures import error_of_packet
from canal_server.mysql.replication import FileStart, replica_id
from canal_server.sink.columns import ColumnFilter

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig
    from canal_server.core.gtid import GtidSet
    from canal_server.core.maria_gtid import MariaGtidSet
    from canal_server.lifecycle import Stop
    from canal_server.model.table import TableMeta
    from canal_server.mysql.replication import DumpStart
    from canal_server.mysql.settings import Access
    from canal_server.ports import Span

    _Take = Callable[[list[Span]], bool]

_log = logging.getLogger(__name__)

_SCANNER_REPLICA = 2


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """A statement as the port `TableImages` is told it."""

    position: EntryPosition
    schema: str
    ddl: str
    extra: str


class _Collector:
    """The port TableImages of a reader that wants nothing but the statements."""

    def __init__(self) -> None:
        self.events: list[DdlEvent] = []

    def find(self, schema: str, table: str) -> TableMeta | None:
        raise AssertionError(f"{schema}.{table} was asked for, but no table is wanted")

    def refresh(
        self, schema: str, table: str, position: EntryPosition
    ) -> TableMeta | None:
        del position
        return self.find(schema, table)

    def apply(self, position: EntryPosition, schema: str, ddl: str, extra: str) -> None:
        self.events.append(DdlEvent(position, schema, ddl, extra))

    def passed(self, position: EntryPosition) -> None:
        pass


class _BoundedReader(Reader):
    """A reader that ends at a place of the file it began in, or of a later one."""

    end: EntryPosition | None = None

    def start(self, file: str, position: int) -> None:
        super().start(file, position)
        self._bound(file)

    def _on_rotate(self) -> None:
        super()._on_rotate()
        self._bound(self.decoder.file)

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

    def __init__(self, config: InstanceConfig, access: Access, stop: Stop) -> None:
        self._config = config
        self._access = access
        self._stop = stop

    def between(self, start: EntryPosition, stop: EntryPosition) -> list[DdlEvent]:
        """Return the statements that begin at or behind `start` and before `stop`.

        Raises BinlogPurged when the server no longer has them, ConnectionLost when
        they could not all be read.
        """
        if start.order() >= stop.order():
            return []
        _log.info("looking for statements from %s to %s", start, stop)
        collector = _Collector()
        reader = self._reader(collector, None)
        reader.end = stop
        place = FileStart(start.journal_name or "", start.position or 4)
        self._run(reader, place, lambda _spans: True)
        return [
            each for each in collector.events if each.position.order() < stop.order()
        ]

    def between_sets(
        self,
        place: DumpStart,
        executed: GtidSet | MariaGtidSet,
        wanted: GtidSet | MariaGtidSet,
    ) -> list[DdlEvent]:
        """Return statements behind a GTID set until another set was executed.

        `place` asks for what is not in `executed`. Raises as `between`.
        """
        collector = _Collector()
        reader = self._reader(collector, executed)

        def take(_spans: list[Span]) -> bool:
            return not _contains(reader.gtids, wanted)

        if not _contains(executed, wanted):
            self._run(reader, place, take)
        return collector.events

    def first_position(self, place: DumpStart) -> EntryPosition | None:
        """Return where the first thing lies that the server sends from a place.

        None when it has nothing more to send.
        """
        collector = _Collector()
        reader = self._reader(collector, None)
        found: EntryPosition | None = None

        def take(spans: list[Span]) -> bool:
            nonlocal found
            block, first, _ = spans[0]
            record = block.record(first)
            found = EntryPosition(block.file, record["offset"], record["time"] * 1000)
            return False

        self._run(reader, place, take)
        for event in collector.events:
            if found is None or event.position.order() < found.order():
                found = event.position
        return found

    def _reader(
        self, collector: _Collector, gtids: GtidSet | MariaGtidSet | None
    ) -> _BoundedReader:
        address = str(self._access.address)
        return _BoundedReader(
            BlockPool(),
            Subjects(),
            collector,
            wants=lambda _names: False,
            columns=ColumnFilter("", ""),
            filters=FilterConfig(),
            gtids=gtids,
            error_of_packet=lambda body: error_of_packet(body, address=address),
        )

    def _run(self, reader: _BoundedReader, place: DumpStart, take: _Take) -> None:
        source = self._config.source
        stream = DumpStream(
            self._access,
            replica_id(
                self._config.destination, source.slave_id, reader=_SCANNER_REPLICA
            ),
            place,
            self._stop,
            DumpOptions(follow=False),
        )
        try:
            stream.open()
            if isinstance(place, FileStart):
                reader.start(place.file, place.position)
            cut = reader.run(stream, take, _nothing, self._stop)
        except StreamEnd:
            cut = False
        finally:
            stream.close()
        if cut or self._stop.requested():
            why = "stopped" if self._stop.requested() else "the connection broke"
            raise ConnectionLost(
                f"{self._access.address}: {why} while the binlog was looked through "
                "for statements that change tables"
            )


def _contains(
    executed: GtidSet | MariaGtidSet | None, wanted: GtidSet | MariaGtidSet
) -> bool:
    if executed is None:
        return False
    return executed.contains(wanted)  # type: ignore[arg-type]  # both of one kind


def _nothing() -> None:
    return None
