"""Table images that are the server's present columns, kept until a DDL touches them."""

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

    Remembers also that a table is unknown. The table used longest ago is forgotten
    beyond `tables_max`.
    """

    def __init__(
        self, connection: ControlConnection, tables_max: int = TABLES_MAX
    ) -> None:
        """Take a connection, open or not; it is opened when it is needed."""
        assert tables_max > 0
        self._connection = connection
        self._columns = TableColumns(connection)
        self._tables_max = tables_max
        self._known: OrderedDict[TableName, TableMeta | None] = OrderedDict()

    def find(
        self, schema: str, table: str, position: EntryPosition | None = None
    ) -> TableMeta | None:
        """Return the columns, None when the server does not know the table.

        Raises SourceError when the server cannot be asked.
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
        """Ask the server, whatever is remembered; else as `find`."""
        del position
        name = (schema, table)
        # Not to be believed any more, even if asking fails.
        self._known.pop(name, None)
        self._known[name] = found = self._fetch(schema, table)
        if len(self._known) > self._tables_max:
            self._known.popitem(last=False)
        return found

    def apply(self, statement: DdlStatement) -> None:
        """Forget all tables: a statement may name those of other schemas, too."""
        del statement
        self._known.clear()

    def passed(self, position: EntryPosition) -> None:
        """Keep no history."""

    def close(self) -> None:
        """Close the connection and forget everything."""
        self._known.clear()
        self._connection.close()

    def __len__(self) -> int:
        return len(self._known)

    def _fetch(self, schema: str, table: str) -> TableMeta | None:
        """Ask the server; once more over a new connection when the first is lost."""
        if self._connection.is_open:
            try:
                return self._columns.fetch(schema, table)
            except ConnectionLost:
                # Most likely it was idle for longer than the server allows.
                self._connection.close()
        self._connection.open()
        return self._columns.fetch(schema, table)
