"""A database that follows the source, in one transaction at a time. Needs SQLAlchemy.

Consecutive changes of one kind to one table are executed together, in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from canal_server.client.handlers.handler import Rejected
from canal_server.client.handlers.sql_failures import failures
from canal_server.client.handlers.sql_table import SqlTable, bound
from canal_server.client.handlers.sql_tables import SqlTables
from canal_server.errors import CanalError
from canal_server.runtime.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.client.change_reader import Change
    from canal_server.client.handlers.sql_table import Names, Row
    from canal_server.client.handlers.table_names import TableNames

_ROWS_MAX: Final = 1000  # that are executed together


class SqlTarget:
    """The tables of one database, changed on one connection."""

    def __init__(
        self, url: str, names: TableNames, *, create: bool, ignores_missing: bool
    ) -> None:
        """Raise CanalError for a URL that cannot be used."""
        self._engine = _engine(url)
        self._name = self._engine.url.render_as_string(hide_password=True)
        self._tables = SqlTables(names, create=create, ignores_missing=ignores_missing)
        self._connection: sa.Connection | None = None
        # What is executed together: a statement and its parameters.
        self._statement: Any = None
        self._rows: list[Row] = []

    def connect(self) -> sa.Connection:
        """Return the connection. Raises RetryLater."""
        if self._connection is None:
            with failures(self._name, connecting=True):
                self._connection = self._engine.connect()
        return self._connection

    def apply(self, change: Change) -> None:
        """Execute a change. Raises RetryLater, Rejected, CanalError."""
        match change.kind:
            case "insert":
                table, key = self._keyed(change)
                self._upsert(table, table.row(change.after or {}), tuple(key))
            case "update":
                self._update(change)
            case "delete":
                table, key = self._keyed(change)
                self._add(table.delete(tuple(key)), bound({}, key))
            case "truncate":
                self._truncate(change)
            case "ddl":
                self._tables.forget()
            case "statement":
                raise Rejected(
                    "rows were changed by a logged statement; set binlog_format = ROW"
                    " at the source"
                )

    def commit(self) -> None:
        """Commit what was executed."""
        self._execute_rows()
        if self._connection is not None:
            with failures(self._name):
                self._connection.commit()

    def rollback(self) -> None:
        """Undo what was not committed, and forget the connection and all tables."""
        self._statement = None
        self._rows.clear()
        self._tables.forget()  # also those that were created
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sa.exc.DBAPIError:  # it is lost, and the transaction with it
                connection.invalidate()

    def close(self) -> None:
        """Disconnect, without what was not committed."""
        self.rollback()
        self._engine.dispose()

    # ----------------------------------------------------------------------------
    # Rows
    # ----------------------------------------------------------------------------

    def _truncate(self, change: Change) -> None:
        connection = self.connect()
        with failures(self._name):
            table = self._tables.truncated(change, connection)
        if table is not None:
            self._execute(table.truncate(), {})

    def _update(self, change: Change) -> None:
        before, after = change.before or {}, change.after or {}
        table, key = self._keyed(change)
        row = table.row(after)
        if any(row.get(name, value) != value for name, value in key.items()):
            self._move(table, row, key)
        elif before.keys() == after.keys() and row.keys() >= table.required:
            self._upsert(table, row, tuple(key))
        else:
            # The source logged a part of the columns, which is no row to insert.
            self._update_or_insert(table, row, key)

    def _move(self, table: SqlTable, row: Row, key: Row) -> None:
        """Give a row another key."""
        names = tuple(key)
        new_key = {name: row.get(name, value) for name, value in key.items()}
        if self._execute(table.exists(names), bound({}, key)).first() is None:
            # It was moved when this change was delivered before.
            self._update_or_insert(table, row, new_key)
            return
        self._execute(table.delete(names), bound({}, new_key))
        self._execute(table.update(tuple(row), names), bound(row, key))

    def _upsert(self, table: SqlTable, row: Row, key: Names) -> None:
        statement = table.upsert(tuple(row), key)
        if statement is not None:
            self._add(statement, bound(row))
        else:
            self._update_or_insert(table, row, {name: row[name] for name in key})

    def _update_or_insert(self, table: SqlTable, row: Row, key: Row) -> None:
        names = tuple(row)
        update = table.update(names, tuple(key))
        if not self._execute(update, bound(row, key)).rowcount:
            self._execute(table.insert(names), bound(row))

    def _keyed(self, change: Change) -> tuple[SqlTable, Row]:
        """Return the table and the key of a row. Raises Rejected if it has none."""
        key = change.key
        if not key:
            raise Rejected(
                f"{change.schema}.{change.table} has no primary key, by which its rows"
                " could be found"
            )
        table = self._table_of(change, key)
        return table, table.row(key)

    def _table_of(self, change: Change, key: Mapping[str, object]) -> SqlTable:
        connection = self.connect()
        with failures(self._name):
            return self._tables.table_of(change, key, connection)

    # ----------------------------------------------------------------------------
    # Statements
    # ----------------------------------------------------------------------------

    def _add(self, statement: Any, parameters: Row) -> None:
        """Execute a statement, together with others that are the same."""
        if statement is not self._statement or len(self._rows) >= _ROWS_MAX:
            self._execute_rows()
            self._statement = statement
        self._rows.append(parameters)

    def _execute_rows(self) -> None:
        if self._rows:
            connection = self.connect()
            with failures(self._name):
                connection.execute(self._statement, self._rows)
            self._rows.clear()

    def _execute(self, statement: Any, parameters: Row) -> Any:
        """Execute a statement at once, after those that wait; return the result."""
        self._execute_rows()
        connection = self.connect()
        with failures(self._name):
            return connection.execute(statement, parameters)


def _engine(url: str) -> sa.Engine:
    scheme = url.partition(":")[0]
    try:
        engine = sa.create_engine(url)
    except ModuleNotFoundError as error:
        raise CanalError(
            f"{scheme}:// needs {error.name}, which is not installed; install it, or"
            " name another driver, such as postgresql+psycopg://"
        ) from None
    except sa.exc.NoSuchModuleError:
        raise CanalError(f"SQLAlchemy does not support {scheme}://") from None
    except sa.exc.ArgumentError:
        # The cause would show the password.
        raise CanalError(
            "url: expected database+driver://user:password@host/name"
        ) from None
    if engine.dialect.driver == "pymysql":
        sa.event.listen(engine, "do_connect", _connect_by_pymysql)
    return engine


def _connect_by_pymysql(
    dialect: sa.Dialect, _record: object, arguments: list[Any], options: dict[str, Any]
) -> object | None:
    """Connect so that no password is sent that a stranger could decrypt.

    Without TLS, PyMySQL encrypts it for whatever RSA key the other side sends.
    """
    if options.get("server_public_key") or is_loopback(options.get("host", "")):
        return None  # as usual
    base: Any = dialect.loaded_dbapi.Connection

    class Guarded(base):  # type: ignore[misc]  # known when PyMySQL is loaded
        @property
        def server_public_key(self) -> None:
            """There is none."""

        @server_public_key.setter
        def server_public_key(self, key: bytes | None) -> None:
            if key:
                raise CanalError(
                    f"the server at {self.host}:{self.port} asks for the password, and"
                    " the connection has no TLS; connect with TLS, such as by"
                    " ?ssl_ca=/path/ca.pem at the end of url"
                )

    return Guarded(*arguments, **options)
