"""Table schemas from the table history: the columns of tables where a pump reads.

Leaves out how the history is extended to a session's start (`history_segments`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConnectionLost, SourceError, SourceRefused
from canal_server.messages import history_messages
from canal_server.model.positions import EntryPosition, as_it_is, binlog_file_number
from canal_server.mysql.binlogs import current_end
from canal_server.mysql.collations import collation_names
from canal_server.mysql.schema_dump import SchemaReader
from canal_server.source.archive.source_binlogs import readable_logs
from canal_server.source.schema.history_segments import SegmentFinder
from canal_server.source.schema.source_traits import record_of

if TYPE_CHECKING:
    from canal_server.model.columns_known import TableMeta
    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.model.positions import Completing, LogPosition
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.read.available_positions import SourceFiles
    from canal_server.source.read.binlog_scan import Scanner
    from canal_server.source.read.ddl_scan import DdlScanner
    from canal_server.source.read.start_position import StartPosition
    from canal_server.tablemeta.history.tsdb import TableMetaTsdb

_log = logging.getLogger(__name__)

TableName = tuple[str, str]

# Of binlog between a position and the end: about ten seconds of reading.
LOOK_BYTES_MAX: Final = 2 << 30


class HistorySchemas:
    """The port `TableSchemas` on a table history, for one session of the pump."""

    def __init__(
        self,
        tsdb: TableMetaTsdb,
        control: ControlConnection,
        info: ServerInfo,
        *,
        destination: str,
        scanner: DdlScanner,
        stop: Stop,
        complete: Completing = as_it_is,
    ) -> None:
        """Store what to use; with `stop` requested no statement is applied.

        `complete` adds the executed GTID set to a position that is to be stored.
        """
        self._tsdb = tsdb
        self._complete = complete
        self._stop = stop
        self._destination = destination
        self._control = control
        self._info = info
        self._scanner = scanner
        self._reader = SchemaReader(control)
        self._collations: dict[int, str] = {}
        self._later = _LaterStatements(control, info, scanner)
        self._asked: set[TableName] = set()  # since the last statement
        self._doubts: set[TableName] = set()  # tables already logged

    def begin(
        self,
        position: StartPosition,
        stored: LogPosition | None,
        files: SourceFiles,
        looks: Scanner,
    ) -> StartPosition:
        """Set the schemas to the position; returns what to read, which may be more.

        Raises SourceError, TableMetaError.
        """
        self._collations = collation_names(self._control)
        finder = SegmentFinder(
            self._tsdb,
            self._control,
            self._info,
            destination=self._destination,
            scanner=self._scanner,
            files=files,
            looks=looks,
            collations=self._collations,
        )
        at, segment, position = finder.find(position, stored)
        self._tsdb.rollback(at, segment)
        return position

    # --- the port -------------------------------------------------------------------

    def find(
        self, schema: str, table: str, position: EntryPosition
    ) -> TableMeta | None:
        """Return the columns as of where the pump reads.

        The server is asked once for a table that a statement made uncertain.
        """
        if self._tsdb.is_uncertain(schema, table):
            settled = self._settled(schema, table, position)
            if settled is not None:
                return settled
            self._log_doubt(schema, table)
        found = self._tsdb.find(schema, table)
        return None if found is None else found.meta

    def refresh(
        self, schema: str, table: str, position: EntryPosition
    ) -> TableMeta | None:
        """Ask the server for the current table, since the history must be wrong.

        Its answer is stored only when no statement between the position and now names
        the table; otherwise it is used as long as it fits.
        """
        is_known = self._tsdb.find(schema, table) is not None
        answer, is_certain = self._asking(schema, table, position)
        if answer is not None and is_certain:
            log_table = self._log_correction if is_known else self._log_unseen
            log_table(schema, table, position)
        elif answer is not None:
            self._log_doubt(schema, table)
        return answer

    def apply(self, statement: DdlStatement) -> None:
        """Apply a statement; durable when this returns.

        Raises ConnectionLost when a stop is requested: received statements of megabytes
        can take a minute in all.
        """
        if self._stop.requested():
            raise ConnectionLost(
                f"stopped before the statement at {statement.position}"
            )
        self._tsdb.apply(record_of(statement, self._collations))
        self._asked.clear()

    def passed(self, position: EntryPosition) -> None:
        """Record that everything before a position was read."""
        self._tsdb.passed(position, self._complete)

    def _settled(
        self, schema: str, table: str, position: EntryPosition
    ) -> TableMeta | None:
        """Use the server's answer if no statement lies between, once; else None."""
        name = (schema, table)
        if name in self._asked or self._tsdb.is_ahead(schema, table):
            return None
        self._asked.add(name)
        answer, is_certain = self._asking(schema, table, position)
        if answer is None or not is_certain:
            return None
        _log.info(
            "destination %s: table %s.%s had its current columns at %s",
            self._destination,
            schema,
            table,
            position,
        )
        return answer

    def _asking(
        self, schema: str, table: str, position: EntryPosition
    ) -> tuple[TableMeta | None, bool]:
        """Ask; retry once over a new connection when the first is lost.

        Most likely it was idle for longer than the server allows.
        """
        if self._control.is_open:
            try:
                return self._answer(schema, table, position)
            except ConnectionLost:
                self._control.close()
        self._control.open()
        return self._answer(schema, table, position)

    def _answer(
        self, schema: str, table: str, position: EntryPosition
    ) -> tuple[TableMeta | None, bool]:
        """Return the current table, and whether it was the same at a position.

        If it was, the history stores it.
        """
        text = self._show_create(schema, table)
        found = None if text is None else self._tsdb.parsed(schema, table, text)
        if text is None or found is None:
            return None, False
        # After the answer: a statement before or after it is seen.
        if self._later.names(schema, table, position):
            return found.meta, False
        self._tsdb.load(position, schema, text)
        return found.meta, True

    def _show_create(self, schema: str, table: str) -> str | None:
        try:
            return self._reader.show_create(schema, table)
        except ConnectionLost:
            raise
        except SourceError as error:
            history_messages.TABLE_UNREADABLE.log(_log, schema, table, error)
            return None

    def _log_correction(self, schema: str, table: str, position: EntryPosition) -> None:
        history_messages.HISTORY_CONTRADICTED.log(
            _log, self._destination, position, schema, table
        )

    def _log_unseen(self, schema: str, table: str, position: EntryPosition) -> None:
        history_messages.TABLE_NOT_IN_HISTORY.log(
            _log, self._destination, schema, table, position
        )

    def _log_doubt(self, schema: str, table: str) -> None:
        if (schema, table) not in self._doubts:
            self._doubts.add((schema, table))
            history_messages.TABLE_SCHEMA_UNCERTAIN.log(
                _log, self._destination, schema, table
            )


class _LaterStatements:
    """The statements between a position and the end of the binlog.

    Remembers what it has read: each check reads only what is new.
    """

    def __init__(
        self, control: ControlConnection, info: ServerInfo, scanner: DdlScanner
    ) -> None:
        self._control = control
        self._info = info
        self._scanner = scanner
        self._events: list[DdlStatement] = []
        self._from: EntryPosition | None = None
        self._to = EntryPosition()

    def names(self, schema: str, table: str, start: EntryPosition) -> bool:
        """Return whether a statement from a position to the end may name a table.

        An event begins at the position; later checks are from there or after. When the
        end is far, the answer is yes: reading all of that would hold up the session.
        """
        if self._is_far(start):
            return True
        self._read(start)
        folded = self._info.lower_case_table_names > 0
        return any(_names(event, schema, table, folded) for event in self._events)

    def _is_far(self, start: EntryPosition) -> bool:
        if self._from is not None and start.order() >= self._from.order():
            start = self._to
        try:
            logs = readable_logs(self._control)
        except SourceRefused:
            return False  # the account lacks the privilege
        number = binlog_file_number(start.journal_name or "")
        ahead = sum(log.size for log in logs if binlog_file_number(log.name) >= number)
        return ahead - (start.position or 0) > LOOK_BYTES_MAX

    def _read(self, start: EntryPosition) -> None:
        end = current_end(self._control, self._info)
        stop = EntryPosition(end.file, end.position)
        if self._from is None or start.order() < self._from.order():
            self._events = []
            self._to = start
        self._events += self._scanner.between(self._to, stop)
        self._events = [
            each for each in self._events if each.position.order() >= start.order()
        ]
        self._from, self._to = start, stop


def _names(event: DdlStatement, schema: str, table: str, folded: bool) -> bool:
    """Return whether a statement may change a table's columns."""
    stale = event.examined.stale
    schemas = set(stale.schemas)
    tables = {(owner or event.schema, name) for owner, name in stale.tables}
    if folded:
        schema, table = schema.lower(), table.lower()
        schemas = {each.lower() for each in schemas}
        tables = {(owner.lower(), name.lower()) for owner, name in tables}
    return stale.everything or schema in schemas or (schema, table) in tables
