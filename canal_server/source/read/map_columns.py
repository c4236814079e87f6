"""Readers that use the columns of table maps, for cases without a server to query.

`canal_server.decoder.rows.table_map_columns` derives the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.decoder.rows.table_map_columns import meta_of
from canal_server.source.read.binlog_reader import Reader

if TYPE_CHECKING:
    from canal_server.decoder.rows.row_layout import TableLayout
    from canal_server.decoder.rows.table_map import TableMap
    from canal_server.model.columns_known import TableMeta
    from canal_server.model.ddl_statement import DdlStatement, FilteredNames
    from canal_server.model.positions import EntryPosition


class NoColumns:
    """The port TableSchemas for a reader without any tables."""

    def find(
        self, schema: str, table: str, position: EntryPosition | None = None
    ) -> TableMeta | None:
        """Find no table."""
        del schema, table, position
        return None

    refresh = find

    def apply(self, statement: DdlStatement) -> None:
        """Do nothing."""

    def passed(self, position: EntryPosition) -> None:
        """Keep no history."""


class MapReader(Reader):
    """A reader whose only source of columns is the table map before the rows."""

    def _image(self, table_map: TableMap, names: FilteredNames) -> TableLayout:
        return self._compiled(table_map, meta_of(table_map), names)
