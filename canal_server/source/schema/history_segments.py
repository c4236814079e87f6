"""Connects the table history with the position at which a session starts.

The history covers segments of binlog. A session starts at a position: in a segment,
after one, before one, or on another server. The gap is closed here by reading the
statements in it; where that is impossible, a base dump starts a new segment.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.errors import BinlogPurged
from canal_server.messages import history_messages
from canal_server.model.positions import EntryPosition
from canal_server.mysql.binlogs import current_end
from canal_server.source.schema.base_dump import BaseDumper
from canal_server.source.schema.schema_transfer import NotCarried, SchemaTransfer
from canal_server.source.schema.skipped_statements import SkipFinder
from canal_server.source.schema.source_traits import records_of, source_of, traits_of
from canal_server.tablemeta.history.ddl_records import position_after
from canal_server.tablemeta.history.replay import stored_schemas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.model.positions import LogPosition
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.source.read.available_positions import SourceFiles
    from canal_server.source.read.binlog_scan import Scanner
    from canal_server.source.read.ddl_scan import DdlScanner
    from canal_server.source.read.start_position import StartPosition
    from canal_server.tablemeta.history.tsdb import TableMetaTsdb
    from canal_server.tablemeta.storage.history_storage import BinlogSegment, DdlRecord

_log = logging.getLogger(__name__)


class SegmentFinder:
    """Finds or creates the segment in which a session starts; for one session.

    `looks` reads when a binlog file of the source was created: this distinguishes a
    reset binlog, with files of the same names, from the old one.
    """

    def __init__(
        self,
        tsdb: TableMetaTsdb,
        control: ControlConnection,
        info: ServerInfo,
        *,
        destination: str,
        scanner: DdlScanner,
        files: SourceFiles,
        looks: Scanner,
        collations: Mapping[int, str],
    ) -> None:
        self._tsdb = tsdb
        self._control = control
        self._info = info
        self._destination = destination
        self._scanner = scanner
        self._files = files
        self._first_event_ms = looks.first_event_ms
        self._skips = SkipFinder(control, info, scanner, looks)
        self._transfer = SchemaTransfer(tsdb, info, scanner, collations)
        self._collations = collations
        # The Java server identifies servers by their number only.
        self._names = (source_of(info), str(info.server_id))
        # Where an event begins at the position, which may itself lie after that.
        self._event = EntryPosition()

    def find(
        self, position: StartPosition, stored: LogPosition | None
    ) -> tuple[EntryPosition, BinlogSegment, StartPosition]:
        """Return the position as file and offset, its segment, and what to read.

        What to read is the position, or by GTID one that omits no statements. Raises
        SourceError, BinlogPurged when what follows the position is purged.
        """
        own = self._own_segment()
        at, position = self._position_in_binlog(position, stored, own)
        segment = own and self._reaching(own, at)
        if segment is None:
            segment = self._followed(position, at) or self._based(position, at)
        elif segment.last.order() < at.order():
            at = segment.last  # no statement lies in between
        return at, self._recorded(segment, at), position

    # --- the position ---------------------------------------------------------------

    def _position_in_binlog(
        self,
        start_position: StartPosition,
        stored: LogPosition | None,
        own: BinlogSegment | None,
    ) -> tuple[EntryPosition, StartPosition]:
        """Return file and offset before which all statements have been executed.

        Also returns a start position from which all later statements are sent.
        """
        if start_position.file and not start_position.by_gtid:
            gtids = (
                start_position.tracked
                if start_position.gtids is None
                else start_position.gtids
            )
            gtid = None if gtids is None else str(gtids)
            self._event = EntryPosition(
                start_position.file,
                start_position.position,
                start_position.timestamp_ms or None,
                gtid=gtid,
            )
            return self._event, start_position
        position = None if stored is None else stored.position
        if position is not None and self._is_position_of(position, start_position, own):
            # Its last transaction was executed and is not sent again.
            self._event = position
            return position_after(position), start_position
        # Before the query: what is written meanwhile lies after it.
        end = self._end_of_binlog()
        found = self._scanner.first_position(start_position.dump_start()) or end
        if start_position.gtids is not None:
            known = (
                each.position
                for segment in self._tsdb.segments()
                for each in self._tsdb.statements(segment)
            )
            start_position = replace(
                start_position,
                gtids=self._skips.asking_again(start_position.gtids, found, known),
            )
        self._event = replace(found, gtid=str(start_position.gtids))
        return self._event, start_position

    def _end_of_binlog(self) -> EntryPosition:
        end = current_end(self._control, self._info)
        return EntryPosition(end.file, end.position)

    def _is_position_of(
        self,
        position: EntryPosition,
        start_position: StartPosition,
        own: BinlogSegment | None,
    ) -> bool:
        """Return whether a stored file and offset are this server's, and match the set.

        They do when no other server was read since.
        """
        return (
            own is not None
            and own == self._tsdb.segments()[-1]
            and bool(position.journal_name)
            and position.gtid == str(start_position.gtids)
            and position.order() >= own.first.order()
            and self._files.had(position.journal_name, position.position)
        )

    # --- a segment of this server -----------------------------------------------------

    def _own_segment(self) -> BinlogSegment | None:
        """Return the newest segment of the source's current binlog."""
        source = source_of(self._info)
        for segment in reversed(self._tsdb.segments()):
            if segment.source not in self._names:
                continue
            if not self._is_of_this_binlog(segment):
                return None
            if segment.source == source:
                return segment
            return self._tsdb.identify(
                segment, source, traits_of(self._control, self._info)
            )
        return None

    def _is_of_this_binlog(self, segment: BinlogSegment) -> bool:
        last, traits = segment.last, segment.traits
        if not self._files.had(last.journal_name, last.position):
            return False
        listed = {each.name for each in self._files.files}
        if not traits.file or (listed and traits.file not in listed):
            return True  # it was purged or never recorded: nothing contradicts it
        try:
            began_ms = self._first_event_ms(traits.file)
        except BinlogPurged:
            return True
        if began_ms == traits.file_began_ms:
            return True
        history_messages.BINLOG_RESET.log(_log, self._destination, traits.file)
        return False

    def _recorded(self, segment: BinlogSegment, at: EntryPosition) -> BinlogSegment:
        """Record the file in which reading starts, so that it is recognized later.

        Also record the server's current traits: it may have been upgraded.
        """
        file, known = at.journal_name or "", segment.traits
        traits = replace(
            traits_of(self._control, self._info),
            file=file,
            file_began_ms=known.file_began_ms
            if known.file == file
            else self._first_event_ms(file),
        )
        return self._tsdb.identify(segment, segment.source, traits)

    def _reaching(
        self, segment: BinlogSegment, at: EntryPosition
    ) -> BinlogSegment | None:
        """Return the segment extended to a position, None if that is impossible."""
        try:
            if at.order() < segment.first.order():
                events = self._between(at, segment.first)
                records = self._records(events, contained=True)
                first = _with_time(at, events[:1], segment.first)
                return self._tsdb.extend(segment, records, first=first)
            if at.order() > segment.last.order():
                begin = self._tsdb.end_event(segment)
                events = _from(self._scanner.between(begin, at), segment.last)
                last = _with_time(self._end(at, events), events[-1:], segment.last)
                return self._tsdb.extend(segment, self._records(events), last=last)
        except BinlogPurged as error:
            history_messages.HISTORY_PURGED.log(
                _log, self._destination, segment.first, segment.last, at
            )
            _log.debug("%s", error)
            return None
        return segment

    def _end(self, at: EntryPosition, events: list[DdlStatement]) -> EntryPosition:
        """Return the end of what is known as a position to continue reading from.

        After an event that is not a statement, the start of the next event is unknown.
        """
        if any(each.position.order() == self._event.order() for each in events):
            return at
        return self._event

    def _between(self, at: EntryPosition, stop: EntryPosition) -> list[DdlStatement]:
        """Return the statements between the session's position and another one."""
        return _from(self._scanner.between(self._event, stop), at)

    def _records(
        self, events: list[DdlStatement], *, contained: bool = False
    ) -> list[DdlRecord]:
        return records_of(events, self._collations, contained=contained)

    # --- from the history of another server -------------------------------------------

    def _followed(
        self, position: StartPosition, at: EntryPosition
    ) -> BinlogSegment | None:
        """Start a segment from the history of another server, None if unknown.

        By GTID, which means the same on every server, or by time.
        """
        for segment in self._tsdb.segments()[-1:]:
            # The history of this server does not cover its current binlog: the binlog
            # was reset, and its earlier GTIDs may mean something else; or a part is
            # purged.
            if segment.source in self._names:
                continue
            image = self._transfer.image(
                segment, position, lambda: self._between(at, self._end_of_binlog())
            )
            if isinstance(image, NotCarried):
                history_messages.HISTORY_NOT_TRANSFERRED.log(
                    _log, self._destination, segment.source, at, self._names[0], image
                )
                continue
            _log.info(
                "destination %s: continuing the table history at %s from the history"
                " of server %s",
                self._destination,
                at,
                segment.source,
            )
            return self._tsdb.begin(
                source_of(self._info),
                traits_of(self._control, self._info),
                at,
                stored_schemas(image),
            )
        return None

    # --- from a base dump -----------------------------------------------------------

    def _based(self, position: StartPosition, at: EntryPosition) -> BinlogSegment:
        """Start a segment with a base dump of now, which may lie after the position."""
        now = self._end_of_binlog()
        # Before the dump, which takes time: report purged statements at once.
        events = self._between(at, now)
        dump = BaseDumper(self._control, self._info, self._scanner).take()
        # Without text: nothing was executed yet, or the server has no GTIDs.
        has_set = bool(dump.gtids) or self._info.has_gtids
        base = replace(dump.position, gtid=dump.gtids if has_set else None)
        if at.order() < base.order():
            events += _from(self._scanner.between(now, base), at)
        segment = self._tsdb.begin(
            source_of(self._info),
            traits_of(self._control, self._info),
            base,
            dump.schemas,
        )
        if at.order() >= base.order():
            last = _with_time(at, [], base)
            return self._tsdb.extend(segment, (), last=last)
        if events:
            history_messages.HISTORY_STARTS_LATE.log(
                _log, self._destination, base, position, len(events)
            )
        first = _with_time(at, events[:1], base)
        return self._tsdb.extend(
            segment, self._records(events, contained=True), first=first
        )


def _from(events: list[DdlStatement], start: EntryPosition) -> list[DdlStatement]:
    return [each for each in events if each.position.order() >= start.order()]


def _with_time(
    position: EntryPosition, events: list[DdlStatement], end: EntryPosition
) -> EntryPosition:
    """Return a position with a time: its own, else a statement's, else the end's.

    These times lie inside what is known, so the segment claims no more than it has.
    """
    times = (each.timestamp for each in (position, *(e.position for e in events), end))
    return replace(position, timestamp=next(filter(None, times), None))
