"""The columns that tables have on the server now, from information_schema.

Leaves out the columns at an earlier binlog position (`canal_server.tablemeta`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from canal_server.model.columns_known import ColumnMeta, TableMeta
from canal_server.mysql.flavour import parse_version
from canal_server.mysql.server_answers import answer_about

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from canal_server.mysql.control_connection import ControlConnection

TableName = tuple[str, str]  # schema, table

TABLES_PER_QUERY = 200

# In EXTRA; PERSISTENT in MariaDB before 10.2. DEFAULT_GENERATED is not one.
_GENERATED = re.compile(r"^(VIRTUAL|STORED|PERSISTENT)\b", re.IGNORECASE)

_GENERATED_KEYS_SINCE = (8, 0, 30)  # MySQL
_VERSIONED_TABLES_SINCE = (10, 3, 0)  # MariaDB

# No joins: MariaDB opens only the tables that are named by constants, but for a join
# those of the whole server. In each query, the first two columns are the table's names.
_COLUMNS = """SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE,
    CHARACTER_SET_NAME, IS_NULLABLE, EXTRA
  FROM information_schema.COLUMNS WHERE {which}
  ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"""

_COLUMNS_OF_MARIADB = _COLUMNS.replace("EXTRA", "EXTRA, GENERATION_EXPRESSION")

# COLUMNS.COLUMN_KEY cannot be used for the primary key: it is also PRI for a unique key
# in a table without a primary one.
_INDEXES = """SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, INDEX_NAME, INDEX_TYPE,
    NON_UNIQUE
  FROM information_schema.STATISTICS WHERE {which}"""

_TABLES_OF_MARIADB = """SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE
  FROM information_schema.TABLES WHERE {which}"""


@dataclass(slots=True)
class _Facts:
    """The result of the queries for one table, as rows without the table's names."""

    columns: list[Sequence[str | None]] = field(default_factory=list)
    indexes: list[Sequence[str | int]] = field(default_factory=list)
    table: Sequence[str | None] = ("BASE TABLE", "")  # type, engine


class TableColumns:
    """Reads tables' columns over a control connection; for one thread.

    All columns that row events carry, in their order: generated and invisible ones,
    MySQL's generated primary keys, and last what MariaDB hides even from
    information_schema (`row_start`, `row_end`, `DB_ROW_HASH_n`).
    """

    def __init__(
        self, connection: ControlConnection, tables_per_query: int = TABLES_PER_QUERY
    ) -> None:
        """Use a connection that its owner opens and reopens."""
        self._connection = connection
        self._tables_per_query = tables_per_query
        self._prepared_for = 0  # connection id
        self._folds_case = False  # whether the server folds names of schemas and tables
        self._is_mariadb = False

    def fetch(self, schema: str, table: str) -> TableMeta | None:
        """Return a table's columns; None when the table does not exist.

        A table for which the account has no privilege counts as missing, too:
        information_schema omits it. Raises SourceError.
        """
        return self.fetch_many([(schema, table)]).get((schema, table))

    def fetch_many(self, names: Iterable[TableName]) -> dict[TableName, TableMeta]:
        """Return the columns of the tables that exist, by the requested names."""
        with answer_about("columns of tables", self._connection.access.address):
            return self._fetch_many(names)

    def _fetch_many(self, names: Iterable[TableName]) -> dict[TableName, TableMeta]:
        self._prepare()
        by_schema = defaultdict(list)
        for schema, table in dict.fromkeys(names):
            by_schema[schema].append(table)
        found: dict[TableName, TableMeta] = {}
        for schema, tables in by_schema.items():
            for start in range(0, len(tables), self._tables_per_query):
                part = tables[start : start + self._tables_per_query]
                found.update(self._fetch_part(schema, part))
        return found

    def _prepare(self) -> None:
        """Adapt to the server of the connection, once per connection."""
        connection = self._connection
        if connection.is_open and self._prepared_for == connection.connection_id:
            return
        folding = connection.query("SELECT @@lower_case_table_names")[0][0]
        self._folds_case = int(folding) != 0
        version = parse_version(connection.server_version)
        self._is_mariadb = connection.is_mariadb and version >= _VERSIONED_TABLES_SINCE
        if not connection.is_mariadb and version >= _GENERATED_KEYS_SINCE:
            connection.query(
                "SET SESSION show_gipk_in_create_table_and_information_schema = ON"
            )
        self._prepared_for = connection.connection_id

    def _fetch_part(
        self, schema: str, tables: Sequence[str]
    ) -> Iterator[tuple[TableName, TableMeta]]:
        """Yield those of a schema's tables that exist; few enough for one statement."""
        facts: dict[TableName, _Facts] = defaultdict(_Facts)
        which = f"TABLE_SCHEMA = %s AND TABLE_NAME {_one_of(len(tables))}"
        names = (schema, *tables)

        columns = _COLUMNS_OF_MARIADB if self._is_mariadb else _COLUMNS
        for row in self._connection.query(columns.format(which=which), names):
            facts[row[0], row[1]].columns.append(row[2:])
        for row in self._connection.query(_INDEXES.format(which=which), names):
            facts[row[0], row[1]].indexes.append(row[2:])
        if self._is_mariadb:
            tables_of_mariadb = _TABLES_OF_MARIADB.format(which=which)
            for row in self._connection.query(tables_of_mariadb, names):
                facts[row[0], row[1]].table = row[2:]

        by_folded = {_folded(name): name for name in facts} if self._folds_case else {}
        for table in tables:
            name = (schema, table)
            # The exact name, because a comparison on the server may ignore case and
            # accents; unless the server folds names.
            known = name if name in facts else by_folded.get(_folded(name))
            if known is not None and facts[known].columns:
                yield name, TableMeta(schema, table, tuple(_columns(facts[known])))


def _one_of(count: int) -> str:
    return "= %s" if count == 1 else f"IN ({', '.join(['%s'] * count)})"


def _folded(name: TableName) -> TableName:
    return name[0].lower(), name[1].lower()


def _columns(facts: _Facts) -> Iterator[ColumnMeta]:
    """Yield a table's columns in the order of its row events."""
    keys = {column for column, index, *_ in facts.indexes if index == "PRIMARY"}
    shows_row_time = False
    for name, mysql_type, charset, nullable, extra, *generation in facts.columns:
        row_time = generation[:1] in (["ROW START"], ["ROW END"])
        shows_row_time = shows_row_time or row_time
        # MariaDB adds an explicit row end column to the primary key; for an implicit
        # one, information_schema and SHOW CREATE TABLE do not mention it.
        is_key = name in keys and not row_time
        # MariaDB appends a comment to the temporal types in its old format.
        kind = str(mysql_type).removesuffix(" /* mariadb-5.3 */")
        generated = _GENERATED.search(extra or "") is not None
        yield ColumnMeta(str(name), kind, charset, is_key, nullable == "YES", generated)
    table_kind, engine = facts.table
    if table_kind == "SYSTEM VERSIONED" and not shows_row_time:
        yield ColumnMeta("row_start", "timestamp(6)", nullable=False)
        yield ColumnMeta("row_end", "timestamp(6)", nullable=False)
    # A unique key too long for a B-tree covers a hidden hash column. MEMORY has hash
    # indexes without one.
    hashed = {
        index
        for _, index, index_type, non_unique in facts.indexes
        if index_type == "HASH" and not non_unique and engine not in ("", "MEMORY")
    }
    for number in range(1, len(hashed) + 1):
        yield ColumnMeta(f"DB_ROW_HASH_{number}", "bigint(20) unsigned")
