"""A database in the shared MySQL for histories of tables, as the original has them.

Test modules make fixtures of what is here: `location` and `history`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fix_tablemeta_storage import (
    JAVAS,
    mysql_database,
)

from canal_server.tablemeta.storage.mysql_storage import MysqlHistoryStorage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server

    from canal_server.model.positions import EntryPosition
    from canal_server.mysql.source_settings import Access

HISTORY_COLUMNS = (
    "destination, binlog_file, binlog_offest, binlog_master_id, binlog_timestamp,"
    " use_schema, sql_schema, sql_table, sql_text, sql_type, extra"
)
SNAPSHOT_COLUMNS = (
    "destination, binlog_file, binlog_offest, binlog_master_id, binlog_timestamp,"
    " data, extra"
)


class MysqlLocation:
    """A database for histories, with all rights to look into it."""

    def __init__(self, server: Server, access: Access, name: str) -> None:
        self.server = server
        self.access = access
        self.name = name

    def storage(
        self, destination: str = "example", **changed: object
    ) -> MysqlHistoryStorage:
        """Return a storage that is not open."""
        access = replace(self.access, **changed)  # type: ignore[arg-type]
        return MysqlHistoryStorage(access, self.name, destination)

    def rows(self, columns: str, table: str) -> list[tuple[object, ...]]:
        """Return a table's rows in the order in which they arrived."""
        found = self.server.execute(
            f"SELECT {columns} FROM {self.name}.{table} ORDER BY id"
        )
        return [tuple(row) for row in found]

    def add(self, table: str, columns: str, *values: object) -> None:
        """Add a row as the original does."""
        with self.server.connect(database=self.name) as connection:
            marks = ", ".join(["%s"] * len(values))
            connection.cursor().execute(
                f"INSERT INTO {table} (gmt_create, gmt_modified, {columns})"
                f" VALUES (NOW(), NOW(), {marks})",
                values,
            )

    def add_statement(self, position: EntryPosition, text: str | None) -> None:
        """Add a statement of the original."""
        key = (position.journal_name, position.position, str(position.server_id))
        change: tuple[str | None, ...] = ("shop", "shop", "order", text, "ALTER", None)
        if text is None:
            change = ("shop", None, None, None, None, None)
        self.add(
            "meta_history",
            HISTORY_COLUMNS,
            *("example", *key, position.timestamp, *change),
        )

    def add_snapshot(self, *key: object, data: str = JAVAS) -> None:
        """Add a snapshot of the original: file, offset, server id and time."""
        self.add("meta_snapshot", SNAPSHOT_COLUMNS, "example", *key, data, None)


def fresh_location(mysql_server: Server) -> Iterator[MysqlLocation]:
    """Give a fresh database whose tables are there, as of the original."""
    with mysql_database(mysql_server) as (access, name):
        location = MysqlLocation(mysql_server, access, name)
        storage = location.storage("nobody")
        storage.open()
        storage.close()
        yield location


def open_history(location: MysqlLocation) -> Iterator[MysqlHistoryStorage]:
    """Give an open storage without content."""
    storage = location.storage()
    storage.open()
    yield storage
    storage.close()
