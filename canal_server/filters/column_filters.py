"""Which columns of a table are delivered."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.messages import filter_messages
from canal_server.model.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)


class ColumnFilter:
    """Allow lists and deny lists of columns, for single tables.

    A list has the form `schema.table:column/column,schema.table2:column`; names are
    case-insensitive. A table with an allow list has only those columns, and its deny
    list is ignored; for other tables, the denied columns are omitted.
    """

    def __init__(self, field: str, black_field: str) -> None:
        self._white = _parse(field)
        self._black = _parse(black_field)

    def __bool__(self) -> bool:
        """Return whether any table has a list."""
        return bool(self._white or self._black)

    def emitted(
        self, schema: str, table: str, column_names: Sequence[str]
    ) -> tuple[bool, ...]:
        """Return for each column of a table whether it is delivered."""
        name = f"{schema}.{table}".upper()
        white = self._white.get(name)
        if white is not None:
            return tuple(column.upper() in white for column in column_names)
        black = self._black.get(name, frozenset())
        return tuple(column.upper() not in black for column in column_names)


def _parse(text: str) -> dict[str, frozenset[str]]:
    lists = {}
    for item in text.split(","):
        # A colon at the end is ignored.
        table, *columns = item.rstrip(":").split(":")
        if len(columns) == 1:
            lists[table.upper()] = frozenset(columns[0].upper().split("/"))
        elif item:
            filter_messages.COLUMN_FILTER_IGNORED.log(logger, quoted(item))
    return lists
