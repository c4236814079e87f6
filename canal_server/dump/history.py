"""Table images from the table history: how it meets the place where a session begins.

The history knows stretches of binlog. A session begins at a place: in a stretch,
behind one, before one, or on another server. Here the gap between the two is closed
by reading the statements that lie in it, and where that cannot be, a base dump begins
a new stretch.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.core.gtid import GtidSet
from canal_server.core.maria_gtid import MariaGtidSet
from canal_server.decoder.charset_names import charset_of_collation
from canal_server.dump.base_dump import BaseDumper
from canal_server.errors import BinlogPurged, ConnectionLost, SourceError
from canal_server.model.positions import EntryPosition
from canal_server.mysql.binlogs import current_end
from canal_server.mysql.collations import collation_names
from canal_server.mysql.schema_dump import SchemaReader
from canal_server.tablemeta.context import Context
from canal_server.tablemeta.ddl import examine
from canal_server.tablemeta.replay import stored_schemas
from canal_server.tablemeta.storage import SourceTraits
from canal_server.tablemeta.tsdb import made_record, place_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from canal_server.dump.ddl_scan import DdlEvent, DdlScanner
    from canal_server.dump.places import SourceFiles
    from canal_server.dump.start import Gtids, Place
    from canal_server.model.positions import LogPosition
    from canal_server.model.table import TableMeta
    from canal_server.mysql.connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.tablemeta.schemas import Image
    from canal_server.tablemeta.storage import DdlRecord, Stretch
    from canal_server.tablemeta.tsdb import TableMetaTsdb

_log = logging.getLogger(__name__)


class HistoryImages:
    """The port `TableImages` on a table history, for one session of the pump."""

    def __init__(
        self,
        tsdb: TableMetaTsdb,
        control: ControlConnection,
        info: ServerInfo,
        *,
        destination: str,
        scanner: DdlScanner,
    ) -> None:
        self._tsdb = tsdb
        self._destination = destination
        self._control = control
        self._info = info
        self._scanner = scanner
        self._reader = SchemaReader(control)
        self._collations: dict[int, str] = {}
        self._doubts: set[tuple[str, str]] = set()  # tables told about

    # --- where the session begins ---------------------------------------------------

    def begin(
        self,
        place: Place,
        stored: LogPosition | None,
        files: SourceFiles,
        first_event_ms: Callable[[str], int],
    ) -> None:
        """Put the images to the place. Raises SourceError, TableMetaError."""
        self._collations = collation_names(self._control)
        at = self._place_in_binlog(place, stored)
        own = self._own_stretch(files, first_event_ms)
        stretch = own and self._reaching(own, at)
        if stretch is None:
            stretch = self._followed(place, at) or self._based(place, at)
        self._tsdb.rollback(at, stretch)

    def _place_in_binlog(
        self, place: Place, stored: LogPosition | None
    ) -> EntryPosition:
        """Return file and offset before which all statements have been executed."""
        if place.file and not place.by_gtid:
            return EntryPosition(place.file, place.position, place.timestamp_ms)
        position = None if stored is None else stored.position
        newest = self._tsdb.stretches()[-1:]
        if (
            position is not None
            and position.journal_name
            and position.gtid == str(place.gtids)
            and newest
            and newest[0].source == source_of(self._info)
        ):
            # What it ends with was executed, and does not come again.
            return place_behind(position)
        found = self._scanner.first_position(place.dump_start())
        if found is not None:
            return found
        end = current_end(self._control, self._info)
        return EntryPosition(end.file, end.position)

    def _own_stretch(
        self, files: SourceFiles, first_event_ms: Callable[[str], int]
    ) -> Stretch | None:
        """Return the newest stretch if it is of the binlog that the source has now."""
        stretches = self._tsdb.stretches()
        if not stretches or stretches[-1].source != source_of(self._info):
            return None
        stretch = stretches[-1]
        file = stretch.last.journal_name
        known = {each.name: each.size for each in files.files}
        if file is None or not files.had(file, stretch.last.position):
            return None
        if file in known and stretch.last.timestamp:
            # A binlog that was begun anew has files of the same names, but younger.
            began_ms = first_event_ms(file)
            if began_ms > stretch.last.timestamp:
                _log.warning(
                    "destination %s: %s is another file than the one the table history"
                    " knows: the binlog was begun anew",
                    self._destination,
                    file,
                )
                return None
        return stretch

    def _reaching(self, stretch: Stretch, at: EntryPosition) -> Stretch | None:
        """Return the stretch made long enough for a place, None if it cannot be."""
        try:
            if at.order() < stretch.first.order():
                events = self._scanner.between(at, stretch.first)
                records = records_of(events, self._collations, contained=True)
                return self._tsdb.extend(stretch, records, first=at)
            if at.order() > stretch.last.order():
                events = self._scanner.between(stretch.last, at)
                return self._tsdb.extend(
                    stretch, records_of(events, self._collations), last=at
                )
        except BinlogPurged as error:
            _log.warning(
                "destination %s: the table history reaches from %s to %s, and what"
                " lies between it and %s is purged: %s",
                self._destination,
                stretch.first,
                stretch.last,
                at,
                error,
            )
            return None
        return stretch

    def _followed(self, place: Place, at: EntryPosition) -> Stretch | None:
        """Begin a stretch with what was known of another server, None if unknown.

        By GTID, which means the same on every server, or by time.
        """
        for stretch in self._tsdb.stretches()[-1:]:
            if stretch.traits.mariadb != self._info.is_mariadb:
                continue
            image = self._image_executed(stretch, place)
            if image is not None:
                _log.info(
                    "destination %s: the table history goes on at %s from what was"
                    " known of server %s",
                    self._destination,
                    at,
                    stretch.source,
                )
                return self._tsdb.begin(
                    source_of(self._info),
                    traits_of(self._control, self._info),
                    at,
                    stored_schemas(image),
                )
        return None

    def _image_executed(self, stretch: Stretch, place: Place) -> Image | None:
        if place.timestamp_ms:
            # The place lies behind the last transaction older than this.
            if (stretch.last.timestamp or 0) < place.timestamp_ms:
                return None
            return self._tsdb.at_executed(
                stretch,
                lambda record: (record.position.timestamp or 0) < place.timestamp_ms,
            )
        wanted = place.gtids
        known = self._gtids_of(stretch.last.gtid)
        if wanted is None or known is None:
            return None
        if not known.contains(wanted):  # type: ignore[arg-type]  # both of one kind
            return None
        return self._tsdb.at_executed(
            stretch, lambda record: self._is_in(wanted, record)
        )

    def _is_in(self, wanted: Gtids, record: DdlRecord) -> bool:
        gtid = self._gtids_of(record.position.gtid)
        return gtid is not None and wanted.contains(gtid)  # type: ignore[arg-type]

    def _gtids_of(self, text: str | None) -> Gtids | None:
        if not text:
            return None
        try:
            if self._info.is_mariadb:
                return MariaGtidSet.parse(text)
            return GtidSet.parse(text)
        except ValueError:
            return None

    def _based(self, place: Place, at: EntryPosition) -> Stretch:
        """Begin a stretch with a base dump of now, which may lie behind the place."""
        dump = BaseDumper(self._control, self._info, self._scanner).take()
        base = dump.position
        stretch = self._tsdb.begin(
            source_of(self._info),
            traits_of(self._control, self._info),
            base,
            dump.schemas,
        )
        if at.order() >= base.order():
            return self._tsdb.extend(stretch, (), last=at)
        events = self._scanner.between(at, base)
        if events:
            _log.warning(
                "destination %s: the table history begins at %s, and %d statements lie"
                " between there and %s, where reading begins: until they have passed,"
                " the tables they name may have had other columns, and are checked"
                " against the binlog",
                self._destination,
                base,
                len(events),
                place,
            )
        records = records_of(events, self._collations, contained=True)
        return self._tsdb.extend(stretch, records, first=at)

    # --- the port -------------------------------------------------------------------

    def find(self, schema: str, table: str) -> TableMeta | None:
        """Return the columns as of where the pump reads."""
        found = self._tsdb.find(schema, table)
        if found is None:
            return None
        if self._tsdb.is_uncertain(schema, table):
            self._tell_doubt(schema, table)
        return found.meta

    def refresh(
        self, schema: str, table: str, position: EntryPosition
    ) -> TableMeta | None:
        """Ask the server what a table is now, since the history cannot be right.

        Its answer is taken for good only when no statement between the place and now
        names the table; else only as long as it fits.
        """
        text = self._show_create(schema, table)
        if text is None:
            return None
        found = self._tsdb.parsed(schema, table, text)
        if found is None:
            return None
        if self._named_between(schema, table, position):
            self._tell_doubt(schema, table)
        else:
            self._tsdb.load(position, schema, text)
        return found.meta

    def apply(self, position: EntryPosition, schema: str, ddl: str, extra: str) -> None:
        """Follow a statement; durable when this returns."""
        self._tsdb.apply(position, schema, ddl, with_names(extra, self._collations))

    def passed(self, position: EntryPosition) -> None:
        """Note that all before a place was read."""
        self._tsdb.passed(position)

    def _show_create(self, schema: str, table: str) -> str | None:
        """Ask the server; once more over a new connection when the first is lost."""
        try:
            return self._reader.show_create(schema, table)
        except ConnectionLost:
            self._control.close()
        except SourceError as error:
            _log.warning("table %s.%s cannot be asked for: %s", schema, table, error)
            return None
        self._control.open()
        return self._reader.show_create(schema, table)

    def _named_between(self, schema: str, table: str, start: EntryPosition) -> bool:
        """Tell whether a statement from a place to the end names a table."""
        end = current_end(self._control, self._info)
        stop = EntryPosition(end.file, end.position)
        for event in self._scanner.between(start, stop):
            dialect = Context.from_json(event.extra).dialect
            stale = examine(event.ddl, event.schema, dialect).stale
            named = {(owner or event.schema, name) for owner, name in stale.tables}
            if stale.everything or schema in stale.schemas or (schema, table) in named:
                return True
        return False

    def _tell_doubt(self, schema: str, table: str) -> None:
        if (schema, table) not in self._doubts:
            self._doubts.add((schema, table))
            _log.warning(
                "destination %s: what columns table %s.%s had at this place is not"
                " certain; rows are read with those that are known as long as the"
                " binlog does not contradict them",
                self._destination,
                schema,
                table,
            )


def source_of(info: ServerInfo) -> str:
    """Return what tells a server's binlog from those of others."""
    return info.server_uuid or str(info.server_id)


def traits_of(control: ControlConnection, info: ServerInfo) -> SourceTraits:
    """Ask a server for what decides how its statements are read."""
    major, minor, patch = info.version
    rows = control.query("SELECT @@global.collation_server")
    return SourceTraits(
        info.is_mariadb,
        major * 10000 + minor * 100 + patch,
        info.lower_case_table_names,
        str(rows[0][0]),
    )


def records_of(
    events: Iterable[DdlEvent],
    collations: Mapping[int, str],
    *,
    contained: bool = False,
) -> list[DdlRecord]:
    """Return what is stored of statements; `collations` are the server's."""
    return [
        made_record(
            event.position,
            event.schema,
            event.ddl,
            with_names(event.extra, collations),
            contained=contained,
        )
        for event in events
    ]


def with_names(extra: str, collations: Mapping[int, str]) -> str:
    """Give the collations of a statement's context their names."""

    def named(told: str | None) -> str | None:
        if told is None or not told.isdigit():
            return told
        charset = charset_of_collation(int(told))
        return collations.get(int(told), charset and f"{charset}_general_ci")

    context = Context.from_json(extra)
    return replace(
        context,
        collation_connection=named(context.collation_connection),
        collation_server=named(context.collation_server),
        collation_database=named(context.collation_database),
        collation_utf8mb4=named(context.collation_utf8mb4),
    ).to_json()
