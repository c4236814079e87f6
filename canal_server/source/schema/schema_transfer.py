"""The tables of one server's history, as they were at a position of another server.

A session continues where another server was left: by a GTID set, which means the same
on both, or by a time. This module finds the statements of the history that had been
executed there, and the additional ones; `history_segments` makes the segment from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import BinlogPurged
from canal_server.model.moments import time_text
from canal_server.source.read.gtid_sets import contains, parsed, subtract
from canal_server.source.read.start_position import StartPosition
from canal_server.source.schema.source_traits import records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.source.read.ddl_scan import DdlScanner
    from canal_server.source.read.gtid_sets import Gtids
    from canal_server.tablemeta.history.tsdb import TableMetaTsdb
    from canal_server.tablemeta.storage.history_storage import BinlogSegment, DdlRecord
    from canal_server.tablemeta.tables.schemas import FrozenTables

    _Executed = Callable[[DdlRecord], bool]

_SHOWN: Final = 200  # characters of a GTID set in a message


@dataclass(frozen=True, slots=True)
class NotCarried:
    """Why the history of one server does not yield the tables at another's position."""

    why: str

    def __str__(self) -> str:
        return self.why


class SchemaTransfer:
    """Transfers the history of other servers to the server of this session."""

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
        position: StartPosition,
        coming: Callable[[], list[DdlStatement]],
    ) -> FrozenTables | NotCarried:
        """Return the tables at a position, or why they cannot be known.

        `coming` reads the statements of this server from there on.
        """
        if segment.traits.mariadb != self._info.is_mariadb:
            flavour = "MariaDB" if segment.traits.mariadb else "MySQL"
            return NotCarried(f"that server was a {flavour}")
        records = self._tsdb.statements(segment)
        more: list[DdlStatement] | NotCarried = []
        executed: _Executed | NotCarried
        if position.timestamp_ms:
            executed = _executed_by_time(segment, position.timestamp_ms, coming)
        elif position.gtids is not None:
            executed = self._executed_by_gtid(segment, position.gtids, records)
            if not isinstance(executed, NotCarried):
                more = self._more_executed(segment, position.gtids, records)
        else:
            return NotCarried("the start position has neither GTID set nor time")
        for each in (executed, more):
            if isinstance(each, NotCarried):
                return each
        assert not isinstance(executed, NotCarried)
        assert not isinstance(more, NotCarried)
        for record in records:
            if record.contained and not executed(record):
                return NotCarried(
                    f"it starts after the statement at {record.position}, which"
                    " follows the start position"
                )
        return self._tsdb.at_executed(
            segment, executed, records_of(more, self._collations)
        )

    def _executed_by_gtid(
        self, segment: BinlogSegment, target: Gtids, records: list[DdlRecord]
    ) -> _Executed | NotCarried:
        """Return a test for statements in a GTID set, or why there is none.

        There is none when the segment starts after the set, or has statements without
        GTID.
        """
        first = parsed(segment.first.gtid, self._info)
        if first is None:
            return NotCarried(f"the GTID set at its start, {segment.first}, is unknown")
        if not contains(target, first):
            return NotCarried(
                f"it starts at GTID set {_shown(first)}, of which the start position,"
                f" {_shown(target)}, lacks {_shown(subtract(first, target))}"
            )
        for record in records:
            if not record.position.gtid:
                return NotCarried(f"the statement at {record.position} has no GTID")
        return lambda record: self._is_in(target, record.position.gtid)

    def _more_executed(
        self, segment: BinlogSegment, target: Gtids, records: list[DdlRecord]
    ) -> list[DdlStatement] | NotCarried:
        """Return the statements that the history lacks, read from this server.

        Or why they are unavailable: they are unknown, or purged.
        """
        known = parsed(segment.last.gtid, self._info)
        if known is None:
            return NotCarried(f"the GTID set at its end, {segment.last}, is unknown")
        if contains(known, target):
            return []
        start = StartPosition("", 0, known, by_gtid=True).dump_start()
        end = _shown(known)  # before reading extends it
        try:
            events = self._scanner.between_sets(start, known, target)
        except BinlogPurged as error:
            return NotCarried(
                f"what this server executed between its end, GTID set {end}, and"
                f" {_shown(target)} is purged: {error}"
            )
        # The set of the end is that of the last transaction which passed: statements
        # after it are known, too.
        known_gtids = {each.position.gtid for each in records}
        return [
            each
            for each in events
            if self._is_in(target, each.position.gtid)
            and each.position.gtid not in known_gtids
        ]

    def _is_in(self, target: Gtids, text: str | None) -> bool:
        gtid = parsed(text, self._info)
        return gtid is not None and contains(target, gtid)


def _shown(gtids: Gtids) -> str:
    return repr(str(gtids)[:_SHOWN])


def _executed_by_time(
    segment: BinlogSegment, timestamp_ms: int, coming: Callable[[], list[DdlStatement]]
) -> _Executed | NotCarried:
    """Return a test for statements before a position, or why there is none.

    The position lies after the last transaction before the first one that is not older
    than the time. A long-running statement is older than what precedes it, so it may be
    after the position.
    """
    first_ms, last_ms = segment.first.timestamp or 0, segment.last.timestamp or 0
    if not first_ms or not first_ms < timestamp_ms <= last_ms:
        return NotCarried(
            f"it covers {time_text(first_ms) or 'an unknown time'} to"
            f" {time_text(last_ms) or 'an unknown time'}, and reading starts at"
            f" {time_text(timestamp_ms)}"
        )
    later = {(each.position.timestamp, each.schema, each.ddl) for each in coming()}

    def executed(record: DdlRecord) -> bool:
        record_ms = record.position.timestamp or 0
        return record_ms < timestamp_ms and (
            (record_ms, record.schema, record.ddl) not in later
        )

    return executed
