"""Statements on a table in the middle of its copy: which of them its rows may not show.

Chunks are cut and read by the columns of the copy's beginning, one after the other. A
statement in between comes again from the binlog, and what the lake has is brought
behind it by the columns' definitions (`evolve`). That is right of a row which was read
behind the statement, too, if it was read as before:

* not of a column with another name: another one may have had the name;
* not of an ENUM or SET: they are read by numbers, which mean others by then;
* not of a text: its bytes come in another character set, and another collation puts
  keys into another order, so that chunks overlap and leave gaps. Columns do not tell
  their collation, so each definition that is written anew may have another one.

Numbers and times are told as before, or as what their old type cannot be. A column that
is added is not read, and one that is gone has no rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.mirror.follow.table_statements import Said
    from canal_server.model.columns_known import ColumnMeta

_READ_AS_BEFORE: Final = frozenset(
    ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double",
     "bit", "year", "date", "datetime", "timestamp")
)  # fmt: skip
_BASE: Final = re.compile(r"\s*([a-z0-9_]+)", re.IGNORECASE)


def unsure_amid_copy(
    said: Said, columns: Iterable[tuple[ColumnMeta, ColumnMeta]]
) -> str:
    """Return why rows that were read around a statement may be wrong, "" for sure.

    `columns` are those that the table had before and has behind it, as both. Also one
    that the lake has not may be of the key by which chunks are cut.
    """
    if said.converts:
        return "the character set of its texts changed while the table was copied"
    for before, after in columns:
        if before.name != after.name:
            return "a column got another name while the table was copied"
        is_same = (before.mysql_type, before.charset) == (
            after.mysql_type,
            after.charset,
        )
        if is_same and after.name.lower() not in said.redefined:
            continue
        if not {_base(before), _base(after)} <= _READ_AS_BEFORE:
            return (
                f"column {after.name} was defined anew while the table was copied, and "
                "its values may have been read by the old definition"
            )
    return ""


def _base(column: ColumnMeta) -> str:
    found = _BASE.match(column.mysql_type)
    return found[1].lower() if found else ""
