"""The effects of the text of a statement on tables.

Statements are parsed only on demand: loading sqlglot takes half of the start time of a
worker, and few workers encounter a DDL.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.model.ddl_statement import names_of
from canal_server.model.entry import DDL_TYPES, EventType
from canal_server.spark.options.source_options import TableName

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.arrow.arrow_batches import Statement

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


class SilentChange(NamedTuple):
    """A change of rows without row events in the binlog, and the remedy."""

    what: str
    remedy: str


_EMPTIED: Final = SilentChange("was emptied", "empty the target as well")
_CHANGED: Final = SilentChange(
    "was changed by a statement",
    "set binlog_format = ROW on the source and in its sessions, and reload the table",
)


def silent_change(
    statement: Statement, table: TableName, is_ours: IsOurs
) -> SilentChange | None:
    """Return how a statement changes rows of a table without row events, if it does.

    `is_ours` returns whether a name in the statement means the table.
    """
    first = TableName(statement.schema, statement.table)
    if not statement.is_ddl and statement.event_type in _CHANGES:
        concerns = is_ours(first) if first.table else may_concern(statement.sql, table)
        return _CHANGED if concerns else None
    schema = dropped_schema(statement.sql)
    if schema is not None and is_ours(TableName(schema, table.table)):
        return _EMPTIED
    return _silent_change_of_ddl(statement) if is_about(statement, is_ours) else None


def _silent_change_of_ddl(statement: Statement) -> SilentChange | None:
    from canal_server.tablemeta.sql.row_moves import move_of  # noqa: PLC0415

    if statement.event_type in (EventType.TRUNCATE, EventType.ERASE):
        return _EMPTIED
    if _REPLACES_TABLE.match(statement.sql):
        return SilentChange("was created again", "empty the target as well")
    move = move_of(statement.sql)
    if not move:
        return None
    return SilentChange(f"has different rows ({move})", "do the same in the target")


def is_about(statement: Statement, is_ours: IsOurs) -> bool:
    """Return whether a DDL names a table, by its new name or its old one."""
    first = TableName(statement.schema, statement.table)
    found = named_tables(statement.sql, first, statement.default_schema)
    return any(is_ours(each) for each in found)


def renames_away(statement: Statement, is_ours: IsOurs) -> bool:
    """Return whether a table has a different name after a statement."""
    from canal_server.tablemeta.sql.statement_classes import classify  # noqa: PLC0415

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

    MariaDB's CREATE OR REPLACE drops it as well.
    """
    found = _DROPS_SCHEMA.match(sql)
    if found is None:
        return None
    return found[1].replace("``", "`") if found[1] else found[2]


def named_tables(
    sql: str, first: TableName, default_schema: str
) -> tuple[TableName, ...]:
    """Return the tables that a DDL affects, and those whose rows it moves.

    Old names are included. `first` is the one that the server found, which parses the
    dialect of its source; it is included. Never raises.
    """
    from canal_server.tablemeta.sql.statement_classes import classify  # noqa: PLC0415

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
    selects: Callable[[str], bool],
) -> tuple[TableName, ...]:
    """Return the tables that a DDL is reported for, each once.

    A table without a name stands for all tables that the text may affect.
    """
    if event_type not in DDL_TYPES or not first.table:
        return (first,)
    found = named_tables(sql, first, default_schema)
    return tuple(each for each in found if selects(str(each))) or (first,)


def may_concern(sql: str, table: TableName) -> bool:
    """Return whether a statement may affect a table; false only if it does not.

    It names each table that it affects, except those of a schema that it drops.
    """
    dropped = dropped_schema(sql)
    if dropped is not None and dropped.lower() == table.schema.lower():
        return True
    text, name = sql.lower(), table.table.lower()
    # Quotes in a quoted name are doubled; an unquoted name contains none.
    names = {name, name.replace("`", "``"), name.replace('"', '""')}
    return any(_stands_alone(each, text) for each in names)


def _stands_alone(name: str, text: str) -> bool:
    """Return whether a name is in a text, not only as part of another one."""
    at = text.find(name)
    while at >= 0:
        around = text[at - 1 : at] + text[at + len(name) : at + len(name) + 1]
        if not _OF_NAMES.search(around):
            return True
        at = text.find(name, at + 1)
    return False
