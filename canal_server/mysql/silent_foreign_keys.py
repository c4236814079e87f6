"""Foreign keys whose changes to rows are not in the binlog.

InnoDB applies ON DELETE and ON UPDATE to the rows of a child (CASCADE, SET NULL, SET
DEFAULT) and writes no binlog: each replica's own InnoDB repeats it. This holds for
MariaDB and for MySQL before 9.6. Since then the SQL layer of MySQL does it and logs
these rows like any others, unless innodb_native_foreign_keys = ON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import SourceRefused
from canal_server.mysql.server_answers import reads_answers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from canal_server.mysql.control_connection import ControlConnection

Name = tuple[str, str]  # schema, table

CHANGING: Final = ("CASCADE", "SET NULL", "SET DEFAULT")
_SETTING: Final = ("SET NULL", "SET DEFAULT")
NOTHING: Final = "RESTRICT"
_NATIVE: Final = "SHOW VARIABLES LIKE 'innodb_native_foreign_keys'"
# Per schema, and without joins: otherwise MariaDB opens all tables of the server.
_COLUMNS: Final = """SELECT CONSTRAINT_NAME, TABLE_NAME, COLUMN_NAME,
    REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME
  FROM information_schema.KEY_COLUMN_USAGE
  WHERE TABLE_SCHEMA = %s AND REFERENCED_TABLE_NAME IS NOT NULL
  ORDER BY TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION"""
_RULES: Final = """SELECT CONSTRAINT_NAME, TABLE_NAME, DELETE_RULE, UPDATE_RULE
  FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = %s"""
_CLAUSE: Final = re.compile(
    r"^\s*CONSTRAINT `((?:[^`]|``)+)` FOREIGN KEY (.*?),?$", re.MULTILINE
)
_ACTION: Final = re.compile(
    r"\bON (DELETE|UPDATE) (CASCADE|SET NULL|SET DEFAULT|RESTRICT|NO ACTION)"
)
_QUOTED: Final = re.compile(r"`(?:[^`]|``)*`")


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key of a table, the child; `columns` refer to `referenced`."""

    name: str
    child: Name
    parent: Name
    columns: tuple[str, ...]
    referenced: tuple[str, ...]
    on_delete: str = NOTHING
    on_update: str = NOTHING

    @property
    def is_changing(self) -> bool:
        """Whether it changes rows of the child when those of the parent change."""
        return self.on_delete in CHANGING or self.on_update in CHANGING

    def follows(self, upper: ForeignKey) -> bool:
        """Return whether `upper` changing the parent's rows may trigger this key."""
        if upper.child != self.parent:
            return False
        if upper.on_delete == "CASCADE" and self.on_delete in CHANGING:
            return True
        changes = upper.on_update in CHANGING or upper.on_delete in _SETTING
        own = {name.lower() for name in upper.columns}
        named = {name.lower() for name in self.referenced}
        return changes and self.on_update in CHANGING and bool(own & named)

    def __str__(self) -> str:
        actions = [
            f"ON {event} {action}"
            for event, action in (
                ("DELETE", self.on_delete),
                ("UPDATE", self.on_update),
            )
            if action in CHANGING
        ]
        return (
            f"foreign key {self.name} ({', '.join(self.columns)}) references "
            f"{'.'.join(self.parent)} ({', '.join(self.referenced)}) "
            f"{' '.join(actions)}"
        )


@reads_answers("its foreign keys")
def are_logged(connection: ControlConnection) -> bool:
    """Return whether the binlog has rows that foreign keys change.

    Raises SourceError.
    """
    if connection.is_mariadb:
        return False
    # No such variable: a MySQL in which InnoDB does it.
    found = connection.query(_NATIVE)
    return bool(found) and str(found[0][1]).upper() in ("OFF", "0")


@reads_answers("its foreign keys")
def hidden_foreign_keys(
    connection: ControlConnection, schemas: Iterable[str]
) -> list[ForeignKey]:
    """Return keys of the schemas' tables whose changes are not in the binlog.

    Only those that the account sees: any privilege on a table is enough. Raises
    SourceError.
    """
    if are_logged(connection):
        return []
    return [
        key
        for schema in sorted(set(schemas))
        for key in _of_schema(connection, schema)
        if key.is_changing
    ]


def _of_schema(connection: ControlConnection, schema: str) -> Iterator[ForeignKey]:
    columns: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for name, table, *rest in connection.query(_COLUMNS, (schema,)):
        columns.setdefault((str(table), str(name)), []).append(tuple(map(str, rest)))
    if not columns:
        return
    rules = {
        (str(table), str(name)): (str(on_delete), str(on_update))
        for name, table, on_delete, on_update in connection.query(_RULES, (schema,))
    }
    # MariaDB shows them to accounts that may write to the table; its DDL, to all.
    for table in sorted({table for table, name in columns.keys() - rules.keys()}):
        rules |= _rules_of(connection, schema, table)
    for (table, name), parts in columns.items():
        on_delete, on_update = rules.get((table, name), (NOTHING, NOTHING))
        yield ForeignKey(
            name,
            (schema, table),
            (parts[0][1], parts[0][2]),
            tuple(part[0] for part in parts),
            tuple(part[3] for part in parts),
            on_delete,
            on_update,
        )


def _rules_of(
    connection: ControlConnection, schema: str, table: str
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the rules of a table's keys from SHOW CREATE TABLE."""
    name = ".".join(f"`{each.replace('`', '``')}`" for each in (schema, table))
    try:
        text = str(connection.query(f"SHOW CREATE TABLE {name}")[0][1])
    except SourceRefused:
        return {}  # dropped, or only some of its columns are visible
    return {(table, key): actions for key, actions in rules_in(text).items()}


def rules_in(text: str) -> dict[str, tuple[str, str]]:
    """Return ON DELETE and ON UPDATE of each foreign key in a table's DDL."""
    found = {}
    for clause in _CLAUSE.finditer(text):
        # A column may be named "ON DELETE CASCADE".
        actions = dict(_ACTION.findall(_QUOTED.sub("``", clause[2])))
        found[clause[1].replace("``", "`")] = (
            actions.get("DELETE", NOTHING),
            actions.get("UPDATE", NOTHING),
        )
    return found
