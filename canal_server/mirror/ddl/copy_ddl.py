"""DDL during a table's copy: which statements make rows of the copy unreliable.

Chunks are cut and read one after the other, with the columns at the start of the copy.
A later statement appears in the binlog again, and then converts the lake's rows by the
definitions of the columns (`evolve`). That is also right for a row that was read after
the statement, if it was read in the same form as before. It is not right for:

* a column with another name: another column may have had that name;
* an ENUM or SET: they are read as numbers, which have other meanings then;
* a text: its bytes arrive in another character set, and another collation orders keys
  differently, so that chunks overlap and leave gaps. Columns do not show their
  collation, so every new definition may change it.

Numbers and times are read as before, or as a value that the old type does not allow. An
added column is not read, and a dropped one has no rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.mirror.ddl.table_statements import StatementEffect
    from canal_server.model.columns_known import ColumnMeta

_READ_AS_BEFORE: Final = frozenset(
    ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double",
     "bit", "year", "date", "datetime", "timestamp")
)  # fmt: skip
_BASE: Final = re.compile(r"\s*([a-z0-9_]+)", re.IGNORECASE)


def copy_doubt(
    effect: StatementEffect, columns: Iterable[tuple[ColumnMeta, ColumnMeta]]
) -> str:
    """Return why rows read around a statement may be wrong, "" if they are right.

    `columns` are those that the table has both before and after the statement. A column
    that the lake does not have counts too, as it may be part of the key of the chunks.
    """
    if effect.converts:
        return "the character set of its texts changed while the table was copied"
    for before, after in columns:
        if before.name != after.name:
            return "a column was renamed while the table was copied"
        is_same = (before.mysql_type, before.charset) == (
            after.mysql_type,
            after.charset,
        )
        if is_same and after.name.lower() not in effect.redefined:
            continue
        if not {_base(before), _base(after)} <= _READ_AS_BEFORE:
            return (
                f"column {after.name} was redefined while the table was copied, and "
                "its values may have been read with the old definition"
            )
    return ""


def may_read_otherwise(before: ColumnMeta, after: ColumnMeta) -> bool:
    """Check whether expressions may have other values after a new definition.

    A text may have another collation, which columns do not show.
    """
    is_same = (before.mysql_type, before.charset) == (after.mysql_type, after.charset)
    return not (is_same and _base(after) in _READ_AS_BEFORE)


def _base(column: ColumnMeta) -> str:
    found = _BASE.match(column.mysql_type)
    return found[1].lower() if found else ""
