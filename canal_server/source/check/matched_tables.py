"""The tables that a destination delivers, as they are now; for checks of topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import SourceError
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_columns import TableColumns
from canal_server.source.check.source_check import impatient
from canal_server.source.check.table_checks import matching
from canal_server.source.check.visible_tables import OPENED_MAX, visible_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.config.schema import FilterConfig
    from canal_server.model.columns_known import TableMeta
    from canal_server.mysql.source_settings import Access
    from canal_server.source.check.source_facts import Table

TABLES_MAX: Final = 5_000  # whose topics are computed


@dataclass(frozen=True, slots=True)
class MatchedTables:
    """Tables that a filter matches, and columns of the first ones of them.

    `unread` says why columns are not known; empty: they are, if they were asked for.
    """

    names: tuple[Table, ...] = ()
    columns: tuple[TableMeta, ...] = ()
    unread: str = ""


def matched_tables(
    access: Access, filters: FilterConfig, *, with_columns: bool
) -> MatchedTables:
    """Ask a source for its tables, at most `TABLES_MAX`. Raises SourceError."""
    control = ControlConnection(impatient(access))
    control.open()
    with control:
        names = matching(filters, visible_tables(control))[:TABLES_MAX]
        found: Mapping[Table, TableMeta] = {}
        try:
            if with_columns:  # a MariaDB opens each of them, which may take too long
                found = TableColumns(control).fetch_many(names[:OPENED_MAX])
        except SourceError as error:
            return MatchedTables(tuple(names), unread=str(error))
    return MatchedTables(tuple(names), tuple(found.values()))
