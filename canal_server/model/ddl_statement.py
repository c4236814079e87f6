"""A statement of a QUERY event, and what its text says: the tables it may change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from canal_server.model.entry import DDL_TYPES, EventType

if TYPE_CHECKING:
    from canal_server.model.positions import EntryPosition

TableName = tuple[str | None, str]  # schema, table


@dataclass(frozen=True, slots=True)
class Statement:
    """One change that a text makes; a text with several tables makes several.

    `old_schema` and `old_table` are the names before a RENAME. A QUERY has no table,
    and a schema only when it creates or drops that. `beside` is another table whose
    rows the statement takes, or gives rows; filters of clients do not see it.
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
    """Whose columns may no longer be what they were, and must be looked up again."""

    tables: set[TableName] = field(default_factory=set)
    schemas: set[str] = field(default_factory=set)  # with all their tables
    everything: bool = False  # what was changed cannot be told
    # No columns yet, but what later statements mean: schemas whose default character
    # set may be another one, and names of views and of temporary tables, which hide
    # others.
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
    """All that is known of a text.

    `statements` is empty when there is nothing to tell clients. `problem` says why
    a text could not be read; it is a QUERY then.
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
    """Return the table names by which filters judge an entry, old ones included.

    Without any, filters let the entry through.
    """
    names: dict[TableName, None] = {}
    for each in statements:
        if each.event_type not in DDL_TYPES or each.table is None:
            continue
        names[each.schema, each.table] = None
        if each.old_table is not None:
            names[each.old_schema, each.old_table] = None
    return tuple(names)
