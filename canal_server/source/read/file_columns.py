"""Columns of tables from a JSON file, for binlogs whose server cannot be reached.

The file is a list of tables::

    [{"schema": "shop", "table": "book", "columns": [
        {"name": "id", "type": "bigint unsigned", "key": true},
        {"name": "title", "type": "varchar(50)", "charset": "utf8mb4"}]}]

`type` is the server's COLUMN_TYPE, `key` marks the columns of the primary key.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from canal_server.errors import ConfigError
from canal_server.model.columns_known import ColumnMeta, TableMeta

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.model.positions import EntryPosition


class FileColumns:
    """The port TableSchemas with columns that never change."""

    def __init__(self, tables: Iterable[TableMeta]) -> None:
        self._tables = {(meta.schema, meta.table): meta for meta in tables}

    def find(
        self, schema: str, table: str, position: EntryPosition | None = None
    ) -> TableMeta | None:
        """Return the columns, None when the file has no such table."""
        del position
        return self._tables.get((schema, table))

    refresh = find

    def apply(self, statement: DdlStatement) -> None:
        """Change nothing: the file describes the tables once and for all."""

    def passed(self, position: EntryPosition) -> None:
        """Keep no history."""


def load_columns(path: Path) -> FileColumns:
    """Read a file of columns. Raises ConfigError when it cannot be used."""
    try:
        tables = json.loads(path.read_text("utf-8"))
        return FileColumns([_table(table) for table in tables])
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = (
            f"{path}: not a list of tables, each with schema, table and columns, each "
            f"column with name and type: {type(error).__name__} {error}"
        )
        raise ConfigError([problem]) from error


def _table(table: dict[str, Any]) -> TableMeta:
    columns = tuple(
        ColumnMeta(
            str(column["name"]),
            str(column["type"]),
            column.get("charset"),
            bool(column.get("key", False)),
            bool(column.get("nullable", True)),
        )
        for column in table["columns"]
    )
    return TableMeta(str(table["schema"]), str(table["table"]), columns)
