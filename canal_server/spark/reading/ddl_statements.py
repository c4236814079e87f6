"""What the text of a statement tells about tables.

Statements are read when there are some: loading sqlglot costs a worker half of its
start, and few of them meet a DDL.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.model.ddl_statement import names_of
from canal_server.model.entry import DDL_TYPES, EventType
from canal_server.spark.options.source_options import TableName

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.spark.reading.arrow_batches import Statement

    IsOurs = Callable[[TableName], bool]

_DROPS_SCHEMA: Final = re.compile(
    r"(?:\s|/\*.*?\*/)*(?:DROP|CREATE\s+OR\s+REPLACE)\s+(?:DATABASE|SCHEMA)\s+"
    r"(?:IF\s+EXISTS\s+)?"
    r"(?:`((?:[^`]|``)+)`|([^\s;`/]+))",
    re.IGNORECASE | re.DOTALL,
)
_REPLACES_TABLE: Final = re.compile(
    r"(?:\s|/\*.*?\*/)*CREATE\s+OR\s+REPLACE\s+TABLE\b", re.IGNORECASE | re.DOTALL
)
_CHANGES: Final = (EventType.INSERT, EventType.UPDATE, EventType.DELETE)
_OF_NAMES: Final = re.compile(r"[\w$]")


class Untold(NamedTuple):
    """What became of rows without the binlog telling of each, and the remedy."""

    what: str
    remedy: str


_EMPTIED: Final = Untold("was emptied", "empty the target as well")
_CHANGED: Final = Untold(
    "was changed by a statement",
    "set binlog_format = ROW on the source, for its sessions, too, and load the table"
    " anew",
)


def untold_by(statement: Statement, table: TableName, is_ours: IsOurs) -> Untold | None:
    """Return what a statement does to rows of a table that no row tells of, if so.

    `is_ours` tells whether a name in the statement means the table.
    """
    first = TableName(statement.schema, statement.table)
    if not statement.is_ddl and statement.event_type in _CHANGES:
        concerns = is_ours(first) if first.table else may_concern(statement.sql, table)
        return _CHANGED if concerns else None
    schema = dropped_schema(statement.sql)
    if schema is not None and is_ours(TableName(schema, table.table)):
        return _EMPTIED
    return _untold_by_ddl(statement) if is_about(statement, is_ours) else None


def _untold_by_ddl(statement: Statement) -> Untold | None:
    from canal_server.tablemeta.sql.row_moves import move_of  # noqa: PLC0415

    if statement.event_type in (EventType.TRUNCATE, EventType.ERASE):
        return _EMPTIED
    if _REPLACES_TABLE.match(statement.sql):
        return Untold("was created anew", "empty the target as well")
    move = move_of(statement.sql)
    if not move:
        return None
    return Untold(f"has other rows (a statement {move})", "do so in the target")


def is_about(statement: Statement, is_ours: IsOurs) -> bool:
    """Tell whether a DDL names a table, by its new name or its old one."""
    first = TableName(statement.schema, statement.table)
    found = named_tables(statement.sql, first, statement.default_schema)
    return any(is_ours(each) for each in found)


def renames_away(statement: Statement, is_ours: IsOurs) -> bool:
    """Tell whether a table has another name behind a statement."""
    from canal_server.tablemeta.sql.ddl import classify  # noqa: PLC0415

    found = False
    schema = statement.default_schema
    for each in classify(statement.sql, schema) if statement.is_ddl else ():
        old, new = each.old_table, each.table
        if old and is_ours(TableName(each.old_schema or schema, old)):
            found = True
        if new and is_ours(TableName(each.schema or schema, new)):
            found = False
    return found


def dropped_schema(sql: str) -> str | None:
    """Return the schema that a statement drops, with all of its tables.

    MariaDB's CREATE OR REPLACE does so as well.
    """
    found = _DROPS_SCHEMA.match(sql)
    if found is None:
        return None
    return found[1].replace("``", "`") if found[1] else found[2]


def named_tables(
    sql: str, first: TableName, default_schema: str
) -> tuple[TableName, ...]:
    """Return the tables that a DDL is about, and those whose rows it moves.

    Old names are included.
    `first` is the one that the server found, which knows the words of its source; it
    is one of them. Never raises.
    """
    from canal_server.tablemeta.sql.ddl import classify  # noqa: PLC0415

    for mariadb in (False, True):
        statements = classify(sql, default_schema, mariadb=mariadb)
        names = dict.fromkeys(names_of(statements))
        names |= dict.fromkeys(each.beside for each in statements if each.beside)
        found = [TableName(schema or "", table) for schema, table in names]
        if first in found:
            return tuple(found)
    return (first,)


def tables_of(
    event_type: int,
    sql: str,
    first: TableName,
    default_schema: str,
    wants: Callable[[str], bool],
) -> tuple[TableName, ...]:
    """Return the tables for which a DDL is told, each once.

    A table without a name stands for all that the text may be about.
    """
    if event_type not in DDL_TYPES or not first.table:
        return (first,)
    found = named_tables(sql, first, default_schema)
    return tuple(each for each in found if wants(str(each))) or (first,)


def may_concern(sql: str, table: TableName) -> bool:
    """Tell whether a statement may be about a table: false only if it is not.

    It names each table that it is about, but those of a schema that it drops.
    """
    dropped = dropped_schema(sql)
    if dropped is not None and dropped.lower() == table.schema.lower():
        return True
    text, name = sql.lower(), table.table.lower()
    # Quotes in a quoted name are doubled; in an unquoted one there are none.
    names = {name, name.replace("`", "``"), name.replace('"', '""')}
    return any(_stands_alone(each, text) for each in names)


def _stands_alone(name: str, text: str) -> bool:
    """Tell whether a name is in a text, not only within another one."""
    at = text.find(name)
    while at >= 0:
        around = text[at - 1 : at] + text[at + len(name) : at + len(name) + 1]
        if not _OF_NAMES.search(around):
            return True
        at = text.find(name, at + 1)
    return False
