"""Table columns as the server has them now, cached until the next DDL statement."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from canal_server.errors import ConnectionLost
from canal_server.mysql.server_columns import TableColumns

if TYPE_CHECKING:
    from canal_server.model.columns_known import TableMeta
    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.model.positions import EntryPosition
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.server_columns import TableName

TABLES_MAX = 10_000


class CachedColumns:
    """The port `TableSchemas` on a control connection; for one thread, the pump's.

    Also caches that a table does not exist. Beyond `tables_max`, the least recently
    used table is evicted.
    """

    def __init__(
        self, connection: ControlConnection, tables_max: int = TABLES_MAX
    ) -> None:
        """Use a connection, open or not; it is opened when needed."""
        assert tables_max > 0
        self._connection = connection
        self._columns = TableColumns(connection)
        self._tables_max = tables_max
        self._known: OrderedDict[TableName, TableMeta | None] = OrderedDict()

    def find(
        self, schema: str, table: str, position: EntryPosition | None = None
    ) -> TableMeta | None:
        """Return the columns, None when the server does not know the table.

        Raises SourceError when the server cannot be queried.
        """
        del position
        name = (schema, table)
        if name in self._known:
            self._known.move_to_end(name)
            return self._known[name]
        return self.refresh(schema, table)

    def refresh(
        self, schema: str, table: str, position: EntryPosition | None = None
    ) -> TableMeta | None:
        """Query the server, bypassing the cache; else as `find`."""
        del position
        name = (schema, table)
        # Not valid any longer, even if the query fails.
        self._known.pop(name, None)
        self._known[name] = found = self._fetch(schema, table)
        if len(self._known) > self._tables_max:
            self._known.popitem(last=False)
        return found

    def apply(self, statement: DdlStatement) -> None:
        """Clear the cache: a statement may also name tables of other schemas."""
        del statement
        self._known.clear()

    def passed(self, position: EntryPosition) -> None:
        """Keep no history."""

    def close(self) -> None:
        """Close the connection and clear the cache."""
        self._known.clear()
        self._connection.close()

    def __len__(self) -> int:
        return len(self._known)

    def _fetch(self, schema: str, table: str) -> TableMeta | None:
        """Query the server; retry once over a new connection when the first is lost."""
        if self._connection.is_open:
            try:
                return self._columns.fetch(schema, table)
            except ConnectionLost:
                # Most likely it was idle for longer than the server allows.
                self._connection.close()
        self._connection.open()
        return self._columns.fetch(schema, table)
