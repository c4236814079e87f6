"""What the filters of an instance omit from the changes of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.filters.column_filters import ColumnFilter
from canal_server.filters.table_filters import TableFilter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.config.schema import FilterConfig

_KEY: Final = "canal.instance.filter."
# Except `query.dml`, which many set because MariaDB adds the statement text to its
# rows. What a session logs without rows is then lost; see docs/explanation/mirror.md.
_CHANGES: Final = {
    "rows": ("all rows", "rows"),
    "dml_insert": ("inserts", "dml.insert"),
    "dml_update": ("updates", "dml.update"),
    "dml_delete": ("deletes", "dml.delete"),
    "query_ddl": ("DDL", "query.ddl"),
    "table_error": ("rows with unknown columns", "table.error"),
}


def left_out(
    filters: FilterConfig, schema: str, table: str, columns: Sequence[str]
) -> str:
    """Return what is omitted, with the settings that cause it; empty for nothing.

    An invalid expression omits nothing here; readers get its error.
    """
    return ", ".join(_left_out(filters, schema, table, columns))


def _left_out(
    filters: FilterConfig, schema: str, table: str, columns: Sequence[str]
) -> Iterator[str]:
    try:
        black = TableFilter("", filters.black_regex)
    except ValueError:
        black = TableFilter("", "")
    if not black.accepts(((schema, table),)):
        yield f"everything ({_KEY}black.regex)"
    listed = ColumnFilter(filters.field, filters.black_field)
    if listed:
        kept = listed.emitted(schema, table, columns)
        missing = [
            name for name, is_kept in zip(columns, kept, strict=True) if not is_kept
        ]
        if missing:
            yield f"columns {' '.join(missing)} ({_KEY}field or {_KEY}black.field)"
    for name, (what, key) in _CHANGES.items():
        if getattr(filters, name):
            yield f"{what} ({_KEY}{key})"
