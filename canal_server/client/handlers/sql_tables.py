"""The tables of a target database, which may be created. Needs SQLAlchemy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn

from canal_server.client.handlers.handler import Rejected
from canal_server.client.handlers.sql_columns import type_of
from canal_server.client.handlers.sql_table import SqlTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.client.change_reader import Change
    from canal_server.client.handlers.table_names import TableNames


class SqlTables:
    """Finds the table of a change."""

    def __init__(
        self, names: TableNames, *, create: bool, ignores_missing: bool
    ) -> None:
        self._names = names
        self._creates = create
        self._ignores_missing = ignores_missing
        self._found: dict[tuple[str, str], SqlTable] = {}

    def forget(self) -> None:
        """Read tables again, as they may have been altered."""
        self._found.clear()

    def truncated(self, change: Change, connection: sa.Connection) -> SqlTable | None:
        """Return the table of a TRUNCATE; None: its first row will create it.

        Raises Rejected if the table is missing and not created.
        """
        source = change.schema, change.table
        if source not in self._found and self._creates:
            read = _read(connection, *self._names.target(*source))
            if read is None:
                return None
        return self.table_of(change, {}, connection)

    def table_of(
        self, change: Change, key: Mapping[str, object], connection: sa.Connection
    ) -> SqlTable:
        """Return the table of a row, with its columns, or of a TRUNCATE.

        `key` is that of the change. Raises Rejected if the table or a column is
        missing, and errors of SQLAlchemy.
        """
        source = change.schema, change.table
        table = self._found.get(source)
        if table is None:
            schema, name = self._names.target(*source)
            read = _read(connection, schema, name)
            if read is None:
                read = self._create(change, key, connection, schema, name)
            table = SqlTable(read, connection.dialect.name)
            self._found[source] = table
        values = change.after or change.before or {}
        missing = table.missing(values)
        if not missing:
            return self._with_key(table, key)
        if self._creates:
            del self._found[source]
            schema, name = self._names.target(*source)
            _add_columns(change, connection, schema, name, missing)
            return self.table_of(change, key, connection)
        if not self._ignores_missing:
            raise _rejected(table, missing)
        table.ignore(missing)
        return self._with_key(table, key)

    @staticmethod
    def _with_key(table: SqlTable, key: Mapping[str, object]) -> SqlTable:
        """Return the table if it has the columns of the key. Raises Rejected.

        Without one of them, another row might be deleted.
        """
        missing = [name for name in key if not table.has(name)]
        if missing:
            raise _rejected(table, missing)
        return table

    def _create(
        self,
        change: Change,
        key: Mapping[str, object],
        connection: sa.Connection,
        schema: str | None,
        name: str,
    ) -> sa.Table:
        shown = f"{schema}.{name}" if schema else name
        values = change.after or change.before
        if not self._creates or values is None:
            raise Rejected(
                f"table {shown} for {change.schema}.{change.table} does not exist;"
                " create it, or set create = true"
            )
        types = change.mysql_types
        columns = [_column(types, each, in_key=each in key) for each in values]
        sa.Table(name, sa.MetaData(), *columns, schema=schema).create(connection)
        # As the database has it: types may differ from those that were asked for.
        found = _read(connection, schema, name)
        assert found is not None, "it was created"
        return found


def _rejected(table: SqlTable, missing: list[str]) -> Rejected:
    return Rejected(
        f"table {table.name} has no column {', '.join(missing)}; add it, or set"
        " create = true or missing_columns = ignore"
    )


def _read(connection: sa.Connection, schema: str | None, name: str) -> sa.Table | None:
    try:
        return sa.Table(name, sa.MetaData(), schema=schema, autoload_with=connection)
    except sa.exc.NoSuchTableError:
        return None


def _column(
    mysql_types: Mapping[str, str], name: str, *, in_key: bool
) -> sa.Column[Any]:
    kind = type_of(mysql_types[name], in_key=in_key)
    return sa.Column(
        name, kind, primary_key=in_key, nullable=not in_key, autoincrement=False
    )


def _add_columns(
    change: Change,
    connection: sa.Connection,
    schema: str | None,
    name: str,
    columns: list[str],
) -> None:
    """Add columns, which are NULL in the rows that exist."""
    dialect, types = connection.dialect, change.mysql_types
    table = sa.Table(name, sa.MetaData(), schema=schema)
    for each in columns:
        column = _column(types, each, in_key=False)
        table.append_column(column)
        definition = CreateColumn(column).compile(dialect=dialect)
        shown = dialect.identifier_preparer.format_table(table)
        statement = f"ALTER TABLE {shown} ADD COLUMN {definition}"
        escaped = statement.replace("%", "%%")  # names are part of a format
        ddl: Any = sa.DDL  # is not typed
        connection.execute(ddl(escaped))
