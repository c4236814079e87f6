"""The table schemas of a session: from the history, or as the server has them now.

The first session that needs the history opens it, and it is opened again after its
storage failed. How it is searched and completed is in `source.schema`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.model.positions import as_it_is
from canal_server.mysql.cached_columns import CachedColumns
from canal_server.runtime.start_turns import STARTS
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.schema.history_schemas import HistorySchemas
from canal_server.tablemeta.storage.open_storage import (
    history_bytes,
    warn_of_java_history,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.positions import Completing, EntryPosition, LogPosition
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import TablePredicate, TableSchemas
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.begin.session_start import SessionStart
    from canal_server.source.read.start_position import StartPosition
    from canal_server.tablemeta.history.tsdb import KnownTables, Steady, TableMetaTsdb

    SchemasOf = Callable[[ControlConnection, ServerInfo, StartPosition], TableSchemas]


class SessionSchemas:
    """Gives each session its schemas; for the pump's thread unless stated otherwise."""

    def __init__(
        self,
        config: InstanceConfig,
        history: TableMetaTsdb | None,
        schemas_of: SchemasOf | None,
        complete: Completing = as_it_is,
    ) -> None:
        """Use a history, without one the columns of now; `schemas_of` replaces both.

        `complete` adds the executed GTID set to a position of the session.
        """
        self._config = config
        self._history = history
        self._is_open = False
        self._schemas_of = schemas_of
        self._complete = complete
        self._schemas: TableSchemas | None = None  # of this session
        # The last answer about uncertain tables, and for what it is; replaced at once.
        self._uncertain: tuple[
            KnownTables | None, TablePredicate | None, tuple[str, ...]
        ] = (None, None, ())

    @property
    def tables(self) -> KnownTables | None:
        """Return the tables of the history at the position of the pump.

        None: there is no history, or it is not open. From any thread.
        """
        return None if self._history is None else self._history.tables

    def uncertain(self, table_filter: TablePredicate) -> tuple[str, ...]:
        """Return the tables of a filter whose columns are uncertain, in order.

        From any thread.
        """
        tables = self.tables
        if tables is None or not tables.uncertain:
            return ()
        known, asked, found = self._uncertain
        if known is not tables or asked is not table_filter:
            found = tuple(
                sorted(
                    f"{schema}.{table}"
                    for schema, table in tables.uncertain
                    if table_filter(((schema, table),))
                )
            )
            # As filters of many tables take a while.
            self._uncertain = tables, table_filter, found
        return found

    def history_bytes(self) -> int | None:
        """Return the size of the history's file; None: it has none here."""
        return None if self._history is None else history_bytes(self._config)

    @property
    def steady(self) -> Steady | None:
        """Return since when the history has not changed; None without a history.

        From any thread.
        """
        return None if self._history is None else self._history.steady

    def open(self) -> None:
        """Open the history unless it is open. Raises TableMetaStoreError."""
        if self._history is None or self._is_open:
            return
        with STARTS.turn():
            is_known = self._history.init(self._config.destination)
        if not is_known:
            warn_of_java_history(self._config)
        self._is_open = True

    def close(self) -> None:
        """Close the history; `open` opens it again."""
        if self._history is not None:
            self._history.close()
            self._is_open = False

    def sources(self) -> list[str]:
        """Return the uuids or ids of the servers in the history, in order."""
        segments = self._history.segments() if self._history else ()
        return [each.source for each in segments]

    def begin(
        self,
        position: StartPosition,
        control: ControlConnection,
        info: ServerInfo,
        *,
        access: Access,
        stored: LogPosition | None,
        beginning: SessionStart,
        turn: Stop,
    ) -> tuple[TableSchemas, StartPosition]:
        """Return the schemas as of a position, and where to start reading for them.

        Raises CanalError.
        """
        self._schemas = None
        if self._schemas_of is not None:
            self._schemas = self._schemas_of(control, info, position)
            return self._schemas, position
        if self._history is None:
            self._schemas = CachedColumns(control)
            return self._schemas, position
        schemas = HistorySchemas(
            self._history,
            control,
            info,
            destination=self._config.destination,
            scanner=DdlScanner(self._config, access, turn),
            stop=turn,
            complete=self._complete,
        )
        begin = schemas.begin(position, stored, beginning.files, beginning.scanner)
        self._schemas = schemas
        return schemas, begin

    def passed(self, position: EntryPosition) -> None:
        """Note that all before a position is delivered."""
        if self._schemas is not None:
            self._schemas.passed(position)
