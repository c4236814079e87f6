"""The effect of a statement's text on one table, beyond its columns before and after.

Leaves out what follows from it for the lake (`evolve`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from canal_server.doors.sqltext import SqlTextError
from canal_server.mirror.settings.table_values import TableName
from canal_server.tablemeta.model.operations import (
    AddColumn,
    AlterTable,
    ChangeColumn,
    ConvertTo,
    CreateLike,
    CreateTable,
    DropColumn,
    DropDatabase,
    DropTables,
    Options,
    RenameColumn,
    RenameTables,
    RenameTo,
    Unknown,
)
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.sql.resolve import resolve
from canal_server.tablemeta.sql.row_moves import move_of, word_and_move
from canal_server.tablemeta.sql.statement_classes import classify

if TYPE_CHECKING:
    from canal_server.tablemeta.model.operations import (
        ColumnSpec,
        Item,
        Name,
        Operation,
    )

_ROWS: Final = frozenset(("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH"))
_ENGINES_WITHOUT_ROWS: Final = ("blackhole",)


@dataclass(slots=True)
class StatementEffect:
    """What a statement does to one table, as far as its text shows.

    `problem`: why rows may differ after it, though the binlog has none of them.
    `origin`: the table that has this one's name after it, unchanged but for that.
    """

    empties: bool = False
    problem: str = ""
    origin: TableName | None = None
    becomes_versioned: bool = False
    dropped: set[str] = field(default_factory=set)  # in lower case, like the others
    renamed: dict[str, str] = field(default_factory=dict)
    added: dict[str, ColumnSpec] = field(default_factory=dict)
    # Definitions of columns by their new names, in lower case.
    defined: dict[str, ColumnSpec] = field(default_factory=dict)
    only_if_missing: set[str] = field(default_factory=set)
    # Columns that are redefined or renamed, and whether all texts are converted.
    redefined: set[str] = field(default_factory=set)
    converts: bool = False
    # Columns that items concern, before and after the statement.
    origins: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    @property
    def repeats(self) -> bool:
        """Whether two items concern one column: the server decides which one counts."""
        return any(
            len(set(names)) < len(names) for names in (self.origins, self.results)
        )


def read_statement(
    sql: str, table: TableName, *, schema: str, exists: bool, mariadb: bool
) -> StatementEffect:
    """Return the effect of a statement on a table; `exists`: it existed before.

    `schema` is the session's default schema. Never raises.
    """
    context = Context(schema=schema, mariadb=mariadb, explicit_timestamp=True)
    effect = StatementEffect()
    try:
        word, move = word_and_move(sql, context.dialect)
    except SqlTextError as error:
        effect.problem = f"the statement cannot be parsed: {error}"
        return effect
    if word == "TRUNCATE":
        effect.empties = True
    elif word == "REPAIR":
        effect.problem = "REPAIR TABLE may remove rows"
    elif word in _ROWS:
        effect.problem = f"its rows were changed by a statement ({word}), not by rows"
    else:
        for operation in resolve(sql, context):
            _add_operation(operation, table, effect, exists=exists)
            if (
                move
                and isinstance(operation, AlterTable)
                and _is(table, operation.name)
            ):
                effect.problem = f"the statement {move}"
        if move and moves_rows_of(sql, table, schema):
            effect.problem = f"the statement {move}"
        if effect.repeats:
            effect.problem = "several of its items concern one column"
    return effect


def moves_rows_of(sql: str, table: TableName, schema: str) -> bool:
    """Check whether a statement on another table moves rows of this one.

    Clients of canal that read this table alone do not get such a statement.
    """
    if not move_of(sql):
        return False
    # Both dialects, as a statement may be valid in only one of them.
    return any(
        _is(table, (each.beside[0] or "", each.beside[1]))
        for mariadb in (True, False)
        for each in classify(sql, schema, mariadb=mariadb)
        if each.beside is not None
    )


def creates_empty(sql: str, table: TableName) -> bool:
    """Check whether a statement certainly creates the table, without rows."""
    # Both dialects have the same statements for that.
    return any(
        isinstance(each, CreateLike | CreateTable)
        and _is(table, each.name)
        and not (each.temporary or each.if_not_exists or each.or_replace)
        and not (isinstance(each, CreateTable) and each.is_open)
        for each in resolve(sql, Context(schema=table.schema))
    )


def ends(sql: str, table: TableName, schema: str) -> bool:
    """Check whether a statement certainly drops or renames the table, if it exists.

    `schema` is the session's default schema.
    """
    return any(
        _ends(each, table)
        for mariadb in (True, False)
        for each in resolve(sql, Context(schema=schema, mariadb=mariadb))
    )


def _ends(operation: Operation, table: TableName) -> bool:
    if isinstance(operation, DropDatabase):
        return operation.schema.lower() == table.schema.lower()
    if isinstance(operation, DropTables):
        is_kept = operation.temporary or operation.only_sequences
        return not is_kept and any(_is(table, name) for name in operation.names)
    if isinstance(operation, AlterTable | RenameTables):
        return any(_is(table, old) for old in _renamed_to(operation).values())
    return False


def _add_operation(
    operation: Operation, table: TableName, effect: StatementEffect, *, exists: bool
) -> None:
    """Add the effect of an operation on the table."""
    if isinstance(operation, AlterTable) and _is(table, operation.name):
        for item in operation.items:
            _add_item(item, effect)
    elif isinstance(operation, AlterTable | RenameTables):
        origin = _renamed_to(operation).get(_folded(table))
        if origin is not None:
            effect.problem = "another table got its name"
            if isinstance(operation, RenameTables) or len(operation.items) == 1:
                effect.origin = TableName(*origin)
    elif isinstance(operation, Unknown):
        if not operation.names or any(_is(table, name) for name in operation.names):
            effect.problem = f"the statement cannot be parsed: {operation.problem}"
    elif isinstance(operation, CreateTable | CreateLike):
        skipped = operation.temporary or (exists and operation.if_not_exists)
        if _is(table, operation.name) and not skipped:
            effect.problem = "the table was recreated"


def _renamed_to(operation: AlterTable | RenameTables) -> dict[Name, Name]:
    """Return the tables that have other names after an operation, by these names."""
    if isinstance(operation, AlterTable):
        return {
            _folded(item.name): operation.name
            for item in operation.items
            if isinstance(item, RenameTo)
        }
    origins: dict[Name, Name] = {}
    for old, new in operation.pairs:  # one after another: names may be exchanged
        origins[_folded(new)] = origins.pop(_folded(old), old)
    return origins


def _folded(name: Name) -> Name:
    return name[0].lower(), name[1].lower()


def _is(table: TableName, name: Name) -> bool:
    return _folded(table) == _folded(name)


def _add_item(item: Item, effect: StatementEffect) -> None:
    if isinstance(item, AddColumn):
        name = item.column.name.lower()
        effect.added[name] = effect.defined[name] = item.column
        effect.results.append(name)
        if item.if_not_exists:
            effect.only_if_missing.add(name)
    elif isinstance(item, ChangeColumn):
        _rename(effect, item.old, item.column.name)
        effect.defined[item.column.name.lower()] = item.column
    elif isinstance(item, RenameColumn):
        _rename(effect, item.old, item.new)
    elif isinstance(item, DropColumn):
        effect.dropped.add(item.name.lower())
        effect.origins.append(item.name.lower())
    elif isinstance(item, Options):
        if item.engine in _ENGINES_WITHOUT_ROWS:
            effect.problem = f"engine {item.engine} stores no rows"
        effect.becomes_versioned = effect.becomes_versioned or bool(item.is_versioned)
    elif isinstance(item, ConvertTo):
        effect.converts = True


def _rename(effect: StatementEffect, old: str, new: str) -> None:
    effect.origins.append(old.lower())
    effect.results.append(new.lower())
    effect.redefined.add(new.lower())
    if old.lower() != new.lower():
        effect.renamed[old.lower()] = new.lower()
