"""The tables of a server as SHOW CREATE TABLE prints them, all or one.

Each table is read by itself and without locks; a caller that reads all of them must
find out what was altered meanwhile (`canal_server.source.schema.base_dump`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConnectionLost, SourceError
from canal_server.mysql.flavour import parse_version
from canal_server.mysql.server_answers import answer_about

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.login_session import Row

_log = logging.getLogger(__name__)

TableName = tuple[str, str]  # schema, table

# The binary log never contains rows of these.
_VIRTUAL_SCHEMAS: Final = ("information_schema", "performance_schema", "sys")
_NOT_VIRTUAL: Final = f"TABLE_SCHEMA NOT IN {_VIRTUAL_SCHEMAS}"
_GENERATED_KEYS_SINCE: Final = (8, 0, 30)  # MySQL
# Before MySQL 8.0, and in every MariaDB, a table has no name for a moment when a
# statement that copied it puts the copy into its place. With slow disks that took up to
# 80 ms; who lists the tables again after this time finds it.
_LIST_AGAIN: Final = "SELECT SLEEP(0.25)"
_NAMES_KEPT_SINCE: Final = (8, 0, 0)  # MySQL
_MISSING: Final = frozenset((1049, 1146))  # unknown database, no such table

# The format of SHOW CREATE TABLE: complete, names in backquotes.
_SETTINGS: Final = "SET SESSION sql_mode = '', sql_quote_show_create = 1"
_SHOW_GENERATED_KEYS: Final = (
    "SET SESSION show_gipk_in_create_table_and_information_schema = ON"
)


@dataclass(slots=True)
class DumpedSchema:
    """A schema: its default collation, CREATE TABLE texts by name, views."""

    collation: str = ""
    tables: dict[str, str] = field(default_factory=dict)
    views: set[str] = field(default_factory=set)


@dataclass(slots=True)
class DumpedTables:
    """All schemas by name, and what could not be read: one sentence each."""

    schemas: dict[str, DumpedSchema] = field(default_factory=dict)
    problems: dict[TableName, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of tables."""
        return sum(len(schema.tables) for schema in self.schemas.values())


class SchemaReader:
    """Reads definitions over a control connection; for one thread."""

    def __init__(self, connection: ControlConnection) -> None:
        """Use a connection that its owner opens and reopens."""
        self._connection = connection
        self._prepared_for = 0  # connection id
        self._names_are_kept = False  # while statements replace tables

    def show_create(self, schema: str, table: str) -> str | None:
        """Return a table's CREATE TABLE text; None when it is dropped or a view.

        Raises SourceError, also when the account must not see it.
        """
        self._prepare()
        try:
            rows = self._connection.query(
                f"SHOW CREATE TABLE {_quoted(schema)}.{_quoted(table)}"
            )
        except SourceError as error:
            if error.errno in _MISSING:
                return None
            raise
        with answer_about(f"table {schema}.{table}", self._connection.access.address):
            # A view returns four columns, the second being CREATE VIEW.
            text = str(rows[0][1])
            return None if len(rows[0]) > 2 else text  # noqa: PLR2004

    def read_all(self, progress: Callable[[int, int], None]) -> DumpedTables:
        """Return all tables except those of virtual schemas.

        `progress` receives how many of how many tables were read. Tables without
        privileges, or broken ones, are problems. Raises SourceError when the server
        cannot be queried.
        """
        self._prepare()
        found = DumpedTables()
        rows = self._connection.query(
            "SELECT SCHEMA_NAME, DEFAULT_COLLATION_NAME FROM"
            " information_schema.SCHEMATA"
        )
        with answer_about("its schemas", self._connection.access.address):
            for schema, collation in rows:
                if str(schema).lower() not in _VIRTUAL_SCHEMAS:
                    found.schemas[str(schema)] = DumpedSchema(str(collation))
        names = self._list(found)
        for number, name in enumerate(names, 1):
            self.read_into(found, [name])
            progress(number, len(names))
        return found

    def read_into(self, found: DumpedTables, names: Iterable[TableName]) -> None:
        """Read tables, again or for the first time; dropped ones are removed."""
        for schema, table in names:
            known = found.schemas.setdefault(schema, DumpedSchema())
            known.tables.pop(table, None)
            known.views.discard(table)
            found.problems.pop((schema, table), None)
            try:
                text = self.show_create(schema, table)
            except ConnectionLost:
                raise
            except SourceError as error:
                found.problems[schema, table] = str(error)
                continue
            if text is not None:
                known.tables[table] = text

    def refresh_schemas(self, found: DumpedTables, schemas: Iterable[str]) -> None:
        """Read schemas again with their tables; dropped ones are removed."""
        for schema in schemas:
            found.schemas.pop(schema, None)
            rows = self._connection.query(
                "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA"
                " WHERE SCHEMA_NAME = %s",
                (schema,),
            )
            if rows:
                found.schemas[schema] = DumpedSchema(str(rows[0][0]))
                self.read_into(found, self._list(found, schema))

    def _list(self, found: DumpedTables, schema: str | None = None) -> list[TableName]:
        """Return the names of tables, and record those of views."""
        rows = self._listed(schema)
        if not self._names_are_kept:
            self._connection.query(_LIST_AGAIN)
            rows = list(dict.fromkeys([*rows, *self._listed(schema)]))
        names = []
        with answer_about("its tables", self._connection.access.address):
            for owner, table, kind in rows:
                known = found.schemas.get(str(owner))
                if known is None:
                    continue
                if str(kind).upper().endswith("VIEW"):
                    known.views.add(str(table))
                else:
                    names.append((str(owner), str(table)))
        return names

    def _listed(self, schema: str | None) -> list[Row]:
        sql = (
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES"
        )
        if schema is None:
            # They have hundreds of tables, which every start of a destination received.
            return self._connection.query(f"{sql} WHERE {_NOT_VIRTUAL}")
        return self._connection.query(f"{sql} WHERE TABLE_SCHEMA = %s", (schema,))

    def _prepare(self) -> None:
        """Prepare the session, once per connection."""
        connection = self._connection
        if connection.is_open and self._prepared_for == connection.connection_id:
            return
        connection.open()
        connection.query(_SETTINGS)
        with answer_about("its version", connection.access.address):
            version = parse_version(connection.server_version)
        is_mysql = not connection.is_mariadb
        self._names_are_kept = is_mysql and version >= _NAMES_KEPT_SINCE
        if is_mysql and version >= _GENERATED_KEYS_SINCE:
            connection.query(_SHOW_GENERATED_KEYS)
        self._prepared_for = connection.connection_id


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
