"""The tables of a server as of one position in its binlog, read without locks.

Each table is read between two queries of the binlog's end; tables that a statement in
between names are read again, until none is left.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import TableMetaError
from canal_server.messages import history_messages
from canal_server.model.positions import EntryPosition
from canal_server.mysql.binlogs import current_end, server_time_s
from canal_server.mysql.schema_dump import SchemaReader
from canal_server.tablemeta.storage.history_storage import StoredSchema

if TYPE_CHECKING:
    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.schema_dump import DumpedTables
    from canal_server.source.read.ddl_scan import DdlScanner

_log = logging.getLogger(__name__)

_LOG_INTERVAL_S: Final = 5.0
_PROBLEMS_LOGGED_MAX: Final = 20
_ROUNDS_MAX: Final = 50  # for a server that alters its tables continuously


@dataclass(frozen=True, slots=True)
class BaseDump:
    """All tables as they are at a position.

    `unread` are those that the server did not return, `problems` a sentence for each.
    """

    position: EntryPosition
    gtids: str  # executed up to there, "" when the server has none
    schemas: tuple[StoredSchema, ...]
    problems: tuple[str, ...]
    unread: frozenset[tuple[str, str]] = frozenset()


class BaseDumper:
    """Reads base dumps of one server; for one thread."""

    def __init__(
        self, connection: ControlConnection, info: ServerInfo, scanner: DdlScanner
    ) -> None:
        self._connection = connection
        self._info = info
        self._scanner = scanner
        self._logged_at_s = 0.0

    def take(self) -> BaseDump:
        """Read all tables.

        Raises SourceError, TableMetaError when the tables keep changing.
        """
        started_s = self._logged_at_s = time.monotonic()
        reader = SchemaReader(self._connection)
        start = self._end()
        found = reader.read_all(self._progress)
        for _ in range(_ROUNDS_MAX):
            stop = self._end()
            events = self._scanner.between(start[0], stop[0])
            if not self._read_again(reader, found, events):
                break
            start = stop
        else:
            raise TableMetaError(
                f"{self._connection.access.address}: tables are altered faster than"
                " they can be read; the next attempt may succeed"
            )
        _log.info(
            "read the definitions of %d tables in %.1f s, as of %s",
            found.count,
            time.monotonic() - started_s,
            stop[0],
        )
        problems = tuple(
            f"table {schema}.{table}: {problem}"
            for (schema, table), problem in found.problems.items()
        )
        for problem in problems[:_PROBLEMS_LOGGED_MAX]:
            history_messages.TABLE_LEFT_OUT_OF_HISTORY.log(_log, problem)
        if len(problems) > _PROBLEMS_LOGGED_MAX:
            history_messages.TABLES_LEFT_OUT_OF_HISTORY.log(
                _log, len(problems) - _PROBLEMS_LOGGED_MAX
            )
        return BaseDump(*stop, _stored(found), problems, frozenset(found.problems))

    def _end(self) -> tuple[EntryPosition, str]:
        end = current_end(self._connection, self._info)
        now_s = server_time_s(self._connection)
        position = EntryPosition(
            end.file, end.position, now_s * 1000, self._info.server_id
        )
        return position, end.gtids

    def _read_again(
        self, reader: SchemaReader, found: DumpedTables, events: list[DdlStatement]
    ) -> bool:
        """Read what statements may have changed; false when there was nothing."""
        tables: set[tuple[str, str]] = set()
        schemas: set[str] = set()
        for event in events:
            stale = event.examined.stale
            schemas.update(stale.schemas, stale.defaults)
            tables.update(
                (schema or event.schema, table) for schema, table in stale.tables
            )
            if stale.everything:
                schemas.update(found.schemas)
        if self._info.lower_case_table_names:
            schemas, tables = _as_stored(found, schemas, tables)
        reader.refresh_schemas(found, schemas)
        reader.read_into(
            found,
            [name for name in tables if name[0] and name[0] not in schemas],
        )
        return bool(schemas or tables)

    def _progress(self, done: int, total: int) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_at_s >= _LOG_INTERVAL_S:
            self._logged_at_s = now_s
            _log.info("read the definitions of %d of %d tables", done, total)


def _as_stored(
    found: DumpedTables, schemas: set[str], tables: set[tuple[str, str]]
) -> tuple[set[str], set[tuple[str, str]]]:
    """Write names as the server stores them, where it ignores their case."""
    owners = {each.lower(): each for each in found.schemas}
    known = {
        (owner.lower(), table.lower()): (owner, table)
        for owner, schema in found.schemas.items()
        for table in schema.tables
    }
    return (
        {owners.get(each.lower(), each) for each in schemas},
        {
            known.get((owner.lower(), table.lower()), (owner.lower(), table.lower()))
            for owner, table in tables
        },
    )


def _stored(found: DumpedTables) -> tuple[StoredSchema, ...]:
    return tuple(
        StoredSchema(
            name, schema.collation, tuple(schema.tables.items()), tuple(schema.views)
        )
        for name, schema in found.schemas.items()
    )
