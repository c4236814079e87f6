"""Tables that are known of one server, as they were at a place of another one.

A session goes on where another server was left: by a GTID set, which means the same on
both, or by a time. Which statements of the history had been executed there, and which
more, is told here; the stretch that begins with it is made by `stretches`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.dump.gtid_sets import contains, parsed
from canal_server.dump.source_traits import records_of
from canal_server.dump.start import Place
from canal_server.errors import BinlogPurged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.dump.ddl_scan import DdlScanner
    from canal_server.dump.side_dump import DdlEvent
    from canal_server.dump.start import Gtids
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.tablemeta.schemas import Image
    from canal_server.tablemeta.storage import DdlRecord, Stretch
    from canal_server.tablemeta.tsdb import TableMetaTsdb


class TakeOver:
    """Carries what is known of other servers to the one of this session."""

    def __init__(
        self,
        tsdb: TableMetaTsdb,
        info: ServerInfo,
        scanner: DdlScanner,
        collations: Mapping[int, str],
    ) -> None:
        self._tsdb = tsdb
        self._info = info
        self._scanner = scanner
        self._collations = collations

    def image(
        self, stretch: Stretch, place: Place, coming: Callable[[], list[DdlEvent]]
    ) -> Image | None:
        """Return the tables of a place, None when they cannot be told.

        `coming` reads the statements of this server from there on.
        """
        records = self._tsdb.statements(stretch)
        if place.timestamp_ms:
            executed = _executed_by_time(stretch, place.timestamp_ms, coming)
            more: list[DdlEvent] | None = []
        elif place.gtids is not None:
            executed = self._executed_by_gtid(stretch, place.gtids, records)
            more = self._more_executed(stretch, place.gtids, records)
        else:
            return None
        if executed is None or more is None:
            return None
        # What the base contains and this server has not had comes yet.
        if not all(executed(each) for each in records if each.contained):
            return None
        return self._tsdb.at_executed(
            stretch, executed, records_of(more, self._collations)
        )

    def _executed_by_gtid(
        self, stretch: Stretch, wanted: Gtids, records: list[DdlRecord]
    ) -> Callable[[DdlRecord], bool] | None:
        """Return what tells statements of a GTID set, None if nothing does.

        So it is when the stretch begins behind the set, or has statements without.
        """
        if not self._is_in(wanted, stretch.first.gtid):
            return None
        if not all(each.position.gtid for each in records):
            return None
        return lambda record: self._is_in(wanted, record.position.gtid)

    def _more_executed(
        self, stretch: Stretch, wanted: Gtids, records: list[DdlRecord]
    ) -> list[DdlEvent] | None:
        """Return the wanted statements that the history lacks, read from this server.

        None when that cannot be told, or they are purged.
        """
        known = parsed(stretch.last.gtid, self._info)
        if known is None:
            return None
        if contains(known, wanted):
            return []
        start = Place("", 0, known, by_gtid=True).dump_start()
        try:
            events = self._scanner.between_sets(start, known, wanted)
        except BinlogPurged:
            return None
        # The set of the end is that of the last transaction which passed: statements
        # behind it are known, too.
        told = {each.position.gtid for each in records}
        return [
            each
            for each in events
            if self._is_in(wanted, each.position.gtid)
            and each.position.gtid not in told
        ]

    def _is_in(self, wanted: Gtids, text: str | None) -> bool:
        gtid = parsed(text, self._info)
        return gtid is not None and contains(wanted, gtid)


def _executed_by_time(
    stretch: Stretch, timestamp_ms: int, coming: Callable[[], list[DdlEvent]]
) -> Callable[[DdlRecord], bool] | None:
    """Return what tells statements in front of a place, None if nothing does.

    The place lies behind the last transaction in front of the first that is not
    older than the time. A statement that took long is older than what stands in
    front of it, so it may be behind the place.
    """
    first_ms = stretch.first.timestamp
    if not first_ms or not first_ms < timestamp_ms <= (stretch.last.timestamp or 0):
        return None
    behind = {(each.position.timestamp, each.schema, each.ddl) for each in coming()}

    def executed(record: DdlRecord) -> bool:
        told_ms = record.position.timestamp or 0
        return told_ms < timestamp_ms and (
            (told_ms, record.schema, record.ddl) not in behind
        )

    return executed
