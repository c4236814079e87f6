"""Tables that are known of one server, as they were at a place of another one.

A session goes on where another server was left: by a GTID set, which means the same on
both, or by a time. Which statements of the history had been executed there, and which
more, is told here; the stretch that begins with it is made by `segments`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import BinlogPurged
from canal_server.model.moments import time_text
from canal_server.source.read.gtid_sets import contains, parsed, subtract
from canal_server.source.read.start_position import Place
from canal_server.source.schema.source_traits import records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.source.read.ddl_scan import DdlScanner
    from canal_server.source.read.gtid_sets import Gtids
    from canal_server.tablemeta.history.tsdb import TableMetaTsdb
    from canal_server.tablemeta.storage.history_storage import BinlogSegment, DdlRecord
    from canal_server.tablemeta.tables.schemas import Image

    _Executed = Callable[[DdlRecord], bool]

_SHOWN: Final = 200  # characters of a GTID set in a message


@dataclass(frozen=True, slots=True)
class NotCarried:
    """Why a history of one server does not tell the tables of a place of another."""

    why: str

    def __str__(self) -> str:
        return self.why


class SchemaTransfer:
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
        self,
        segment: BinlogSegment,
        place: Place,
        coming: Callable[[], list[DdlStatement]],
    ) -> Image | NotCarried:
        """Return the tables of a place, or why they cannot be told.

        `coming` reads the statements of this server from there on.
        """
        if segment.traits.mariadb != self._info.is_mariadb:
            flavour = "MariaDB" if segment.traits.mariadb else "MySQL"
            return NotCarried(f"that server was a {flavour}")
        records = self._tsdb.statements(segment)
        more: list[DdlStatement] | NotCarried = []
        executed: _Executed | NotCarried
        if place.timestamp_ms:
            executed = _executed_by_time(segment, place.timestamp_ms, coming)
        elif place.gtids is not None:
            executed = self._executed_by_gtid(segment, place.gtids, records)
            if not isinstance(executed, NotCarried):
                more = self._more_executed(segment, place.gtids, records)
        else:
            return NotCarried("the place to begin has neither GTID set nor time")
        for each in (executed, more):
            if isinstance(each, NotCarried):
                return each
        assert not isinstance(executed, NotCarried)
        assert not isinstance(more, NotCarried)
        for record in records:
            if record.contained and not executed(record):
                return NotCarried(
                    f"it begins after the statement at {record.position}, which"
                    " comes only after the place to begin"
                )
        return self._tsdb.at_executed(
            segment, executed, records_of(more, self._collations)
        )

    def _executed_by_gtid(
        self, segment: BinlogSegment, wanted: Gtids, records: list[DdlRecord]
    ) -> _Executed | NotCarried:
        """Return what tells statements of a GTID set, or why nothing does.

        So it is when the stretch begins behind the set, or has statements without.
        """
        first = parsed(segment.first.gtid, self._info)
        if first is None:
            return NotCarried(f"no GTID set is known of its beginning, {segment.first}")
        if not contains(wanted, first):
            return NotCarried(
                f"it begins at GTID set {_shown(first)}, of which the place to begin,"
                f" {_shown(wanted)}, lacks {_shown(subtract(first, wanted))}"
            )
        for record in records:
            if not record.position.gtid:
                return NotCarried(f"the statement at {record.position} has no GTID")
        return lambda record: self._is_in(wanted, record.position.gtid)

    def _more_executed(
        self, segment: BinlogSegment, wanted: Gtids, records: list[DdlRecord]
    ) -> list[DdlStatement] | NotCarried:
        """Return the wanted statements that the history lacks, read from this server.

        Or why they cannot be had: that cannot be told, or they are purged.
        """
        known = parsed(segment.last.gtid, self._info)
        if known is None:
            return NotCarried(f"no GTID set is known of its end, {segment.last}")
        if contains(known, wanted):
            return []
        start = Place("", 0, known, by_gtid=True).dump_start()
        end = _shown(known)  # before reading goes on with it
        try:
            events = self._scanner.between_sets(start, known, wanted)
        except BinlogPurged as error:
            return NotCarried(
                f"what this server executed between its end, GTID set {end}, and"
                f" {_shown(wanted)} is purged: {error}"
            )
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


def _shown(gtids: Gtids) -> str:
    return repr(str(gtids)[:_SHOWN])


def _executed_by_time(
    segment: BinlogSegment, timestamp_ms: int, coming: Callable[[], list[DdlStatement]]
) -> _Executed | NotCarried:
    """Return what tells statements in front of a place, or why nothing does.

    The place lies behind the last transaction in front of the first that is not
    older than the time. A statement that took long is older than what stands in
    front of it, so it may be behind the place.
    """
    first_ms, last_ms = segment.first.timestamp or 0, segment.last.timestamp or 0
    if not first_ms or not first_ms < timestamp_ms <= last_ms:
        return NotCarried(
            f"it reaches from {time_text(first_ms) or 'an unknown time'} to"
            f" {time_text(last_ms) or 'an unknown time'}, and reading begins at"
            f" {time_text(timestamp_ms)}"
        )
    behind = {(each.position.timestamp, each.schema, each.ddl) for each in coming()}

    def executed(record: DdlRecord) -> bool:
        told_ms = record.position.timestamp or 0
        return told_ms < timestamp_ms and (
            (told_ms, record.schema, record.ddl) not in behind
        )

    return executed
