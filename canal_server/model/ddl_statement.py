"""A statement of a QUERY event, and what its text says: the tables it may change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from canal_server.model.entry import DDL_TYPES, EventType

if TYPE_CHECKING:
    from canal_server.model.positions import EntryPosition

TableName = tuple[str | None, str]  # schema, table
# The same of a table whose rows a statement on another table moves.
BesideName = tuple[str | None, str, Literal[True]]
FilteredName = TableName | BesideName
FilteredNames = tuple[FilteredName, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """One change that a text makes; a text with several tables makes several.

    `old_schema` and `old_table` are the names before a RENAME. A QUERY has no table,
    and a schema only if it creates or drops one. `beside` is another table whose rows
    the statement moves from or to.
    """

    event_type: EventType
    schema: str | None = None
    table: str | None = None
    old_schema: str | None = None
    old_table: str | None = None
    is_dml: bool = False
    beside: TableName | None = None


@dataclass(slots=True)
class Stale:
    """Tables whose columns may have changed and must be looked up again."""

    tables: set[TableName] = field(default_factory=set)
    schemas: set[str] = field(default_factory=set)  # with all their tables
    everything: bool = False  # the changed tables are unknown
    # Not columns, but the meaning of later statements: schemas whose default character
    # set may have changed, and names of views and temporary tables, which hide other
    # tables.
    defaults: set[str] = field(default_factory=set)
    names: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.tables
            or self.schemas
            or self.everything
            or self.defaults
            or self.names
        )


@dataclass(frozen=True, slots=True)
class Examined:
    """The complete result for a text.

    `statements` is empty if clients receive nothing. `problem` is the reason if a text
    could not be parsed; it is then a QUERY.
    """

    statements: list[Statement]
    stale: Stale
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DdlStatement:
    """A statement that may change tables, as the reader of the binlog passes it on.

    It is classified once, by the reader: `examined` is what its text says to the server
    that executed it. `schema` is the session's default one, `extra` what else decides
    the result, as JSON (`canal_server.tablemeta.model.session_context`).
    """

    position: EntryPosition  # where its event begins
    schema: str
    ddl: str
    extra: str
    examined: Examined


def names_of(statements: list[Statement]) -> tuple[TableName, ...]:
    """Return the names of the tables that statements change, including old names."""
    names: dict[TableName, None] = {}
    for each in statements:
        if each.event_type not in DDL_TYPES or each.table is None:
            continue
        names[each.schema, each.table] = None
        if each.old_table is not None:
            names[each.old_schema, each.old_table] = None
    return tuple(names)


def filtered_names_of(statements: list[Statement]) -> FilteredNames:
    """Return the table names that filters evaluate for an entry.

    Without any names, filters let the entry pass. A table beside is marked: filters of
    canal's clients leave it out, as canal's server does.
    """
    names = names_of(statements)
    if not names:
        return ()
    found = [each.beside for each in statements if each.beside is not None]
    beside: list[BesideName] = [
        (schema, table, True)
        for schema, table in dict.fromkeys(found)
        if (schema, table) not in names
    ]
    return (*names, *beside)


def is_beside(name: FilteredName) -> bool:
    """Check whether a statement on another table moves rows from or to this table."""
    return name[2:] == (True,)
