"""The tables of a server as the DDL of its binlog defines them, usable alone.

Storing DDL is left to `canal_server.tablemeta.history`, and asking the server for what
the text does not determine to `source.schema`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from canal_server.tablemeta.model.charset_widths import charset_of
from canal_server.tablemeta.model.operations import (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateLike,
    CreateSequence,
    CreateTable,
    CreateView,
    DropDatabase,
    DropTables,
    DropViews,
    PartitionToTable,
    RenameTables,
    RenameTo,
    TableToPartition,
    Unknown,
)
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.model.table_schema import Kind
from canal_server.tablemeta.sql.resolve import resolve
from canal_server.tablemeta.tables.schemas import (
    DEFAULT_CHARSETS,
    FrozenTables,
    LazyTable,
    Schema,
    table_of,
)
from canal_server.tablemeta.tables.table_changes import (
    CannotApplyError,
    Defaults,
    alike,
    altered,
    created,
    sequence,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.model.positions import EntryPosition
    from canal_server.tablemeta.model.operations import Name, Operation
    from canal_server.tablemeta.model.table_schema import Table


__all__ = ["Applied", "FrozenTables", "MemoryTableMeta"]


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect of a statement.

    `changed` are tables whose structure may have changed, or that were created or
    dropped; `uncertain` those whose structure the text does not determine;
    `everything`: not even the changed tables are known. `problem` is the reason.
    """

    changed: frozenset[Name] = frozenset()
    uncertain: frozenset[Name] = frozenset()
    everything: bool = False
    problem: str = ""


class MemoryTableMeta:
    """The tables of one server, after the last applied statement.

    For one thread; the result of `freeze` is for all. `lower_case_table_names` is that
    of the server: 0 case-sensitive, 1 stored in lower case, 2 compared in lower case.
    """

    def __init__(
        self,
        *,
        mariadb: bool = False,
        lower_case_table_names: int = 0,
        server_collation: str | None = None,
        server_version: int = 0,
    ) -> None:
        self._mariadb = mariadb
        self._folding = lower_case_table_names
        self._server_collation = server_collation
        self._context = Context(
            mariadb=mariadb,
            server_version=server_version,
            collation_server=server_collation,
            explicit_timestamp=True,
        )
        self._fold: Callable[[str], str] = str.lower if self._folding else str
        self._schemas: dict[str, Schema] = {}
        self._shared: set[str] = (
            set()
        )  # keys of schemas that are shared with frozen ones
        # Temporary tables whose creation was in the binlog, by session.
        self._temporary: frozenset[tuple[int, Name]] = frozenset()

    # Queries

    def find(self, schema: str, table: str) -> Table | None:
        """Return a table; None if it is unknown, and for views."""
        found = self._schemas.get(self._fold(schema))
        return None if found is None else table_of(found.tables.get(self._fold(table)))

    def is_uncertain(self, schema: str, table: str) -> bool:
        """Return whether the structure of a table may differ from `find`.

        It stays so until `load`, CREATE or DROP replaces the table.
        """
        return self._view().is_uncertain(schema, table)

    def schemas(self) -> list[str]:
        """Return the names of all schemas."""
        return self._view().schemas()

    def tables(self, schema: str) -> list[str]:
        """Return the names of the tables of a schema, without views."""
        return self._view().tables(schema)

    def views(self, schema: str) -> list[str]:
        """Return the names of the views of a schema."""
        return self._view().views(schema)

    def summary(self) -> tuple[int, tuple[Name, ...]]:
        """Return how many tables there are, and the uncertain ones."""
        schemas = list(self._schemas.values())
        uncertain = ((s.name, table) for s in schemas for table in s.uncertain.values())
        return sum(len(each.tables) for each in schemas), tuple(uncertain)

    def _view(self) -> FrozenTables:
        return FrozenTables(self._schemas, self._temporary, self._fold)

    # Replacements

    def load(
        self, schema: str, create_table_text: str, table: str | None = None
    ) -> None:
        """Load a table from an answer to SHOW CREATE TABLE.

        With its name in `table`, the text is only stored, and parsed on demand; a text
        that cannot be parsed makes an uncertain table without columns. Without a name,
        it is parsed at once. Raises ValueError if it is not a CREATE TABLE.
        """
        context = replace(self._context, schema=schema)
        if table is None:
            operations = resolve(create_table_text, context, shown=True)
            if not operations or not isinstance(
                operations[0], CreateTable | CreateSequence
            ):
                raise ValueError("the text is not a CREATE TABLE")
            table = operations[0].name[1]
        table = self._stored(table)
        entry = LazyTable((self._stored(schema), table), create_table_text, context)
        into = self._schema(schema)
        key = self._fold(table)
        into.tables[key] = entry
        into.uncertain.pop(key, None)
        into.views.pop(key, None)

    def load_view(self, schema: str, view: str) -> None:
        """Record that a name is that of a view."""
        into = self._schema(schema)
        into.views[self._fold(view)] = self._stored(view)
        into.tables.pop(self._fold(view), None)

    def load_database(self, schema: str, collation: str | None = None) -> None:
        """Load a schema with the default collation or charset of its tables.

        None: unknown, the default of the server applies.
        """
        self._schema(schema).collation = collation

    def mark_uncertain(self, schema: str, table: str) -> None:
        """Record that the structure of a table may have changed."""
        self._schema(schema).uncertain[self._fold(table)] = self._stored(table)

    def drop_schema(self, schema: str) -> None:
        """Remove a schema and its content."""
        key = self._fold(schema)
        self._schemas.pop(key, None)
        self._shared.discard(key)

    def forget(self, schema: str, table: str) -> None:
        """Remove a table or view."""
        self._forget((schema, table))

    def freeze(self) -> FrozenTables:
        """Return the current tables as an immutable value for any thread."""
        self._shared = set(self._schemas)
        return FrozenTables(dict(self._schemas), self._temporary, self._fold)

    def copy(self) -> MemoryTableMeta:
        """Return a separate model with the same tables."""
        found = copy.copy(self)
        found.restore(self.freeze())
        return found

    def restore(self, frozen: FrozenTables) -> None:
        """Restore the tables that a model with the same settings has frozen."""
        self._schemas = dict(frozen.schemas_by_key)
        self._shared = set(self._schemas)
        self._temporary = frozen.temporary

    # Statements

    def apply(
        self,
        position: EntryPosition | None,  # noqa: ARG002  # for models that store it
        schema: str,
        ddl: str,
        extra: Context | None = None,
    ) -> Applied:
        """Apply a statement; `schema` is the default schema of the session.

        Never raises for statements that cannot be parsed or applied, but reports them.
        An uncertain table keeps its last structure.
        """
        context = extra or Context(
            mariadb=self._mariadb,
            server_version=self._context.server_version,
            collation_server=self._server_collation,
        )
        if context.schema != schema:
            context = replace(context, schema=schema)
        if context.restarted:
            self._temporary = frozenset()
        changing = _Changing()
        for operation in resolve(ddl, context):
            self._APPLIERS[type(operation)](self, operation, context, changing)
        return changing.applied()

    def _creates(
        self,
        operation: CreateTable | CreateLike | CreateSequence,
        context: Context,
        changing: _Changing,
    ) -> bool:
        """Return whether a CREATE creates a permanent table."""
        name = operation.name
        if operation.temporary:
            self._temporary |= {(context.thread_id, self._key(name))}
            return False
        if operation.if_not_exists and self._exists(name):
            return False
        if context.error:
            # The old table may be dropped nevertheless.
            if operation.or_replace and self._forget(name):
                changing.changed.add(name)
            return False
        return True

    def _create_table(
        self, operation: CreateTable, context: Context, changing: _Changing
    ) -> None:
        if not self._creates(operation, context, changing):
            return
        name = operation.name
        if operation.is_open:
            changing.doubt(self, name, "the text does not contain all columns")
            return
        charset = self._charset_for(name[0], context)
        self._put(created(operation, charset, mariadb=self._mariadb), changing)
        if operation.lacks_options:
            changing.doubt(self, name, "the server omitted the character set")

    def _create_like(
        self, operation: CreateLike, context: Context, changing: _Changing
    ) -> None:
        if not self._creates(operation, context, changing):
            return
        name = operation.name
        model = self.find(*operation.like)
        if model is None or self.is_uncertain(*operation.like):
            self._forget(name)
            if model is not None:
                self._put(model.renamed(*name), changing)
            changing.doubt(self, name, "it is like an unknown table")
            return
        self._put(alike(model, name, mariadb=self._mariadb), changing)

    def _create_sequence(
        self, operation: CreateSequence, context: Context, changing: _Changing
    ) -> None:
        if self._creates(operation, context, changing):
            self._put(sequence(operation), changing)

    def _alter_table(
        self, operation: AlterTable, context: Context, changing: _Changing
    ) -> None:
        name = operation.name
        new_names = [i.name for i in operation.items if isinstance(i, RenameTo)]
        if self._is_temporary(name, context):
            if new_names:
                self._temporary -= {(context.thread_id, self._key(name))}
                self._temporary |= {(context.thread_id, self._key(new_names[-1]))}
            return
        if not operation.items or (operation.if_exists and not self._exists(name)):
            return
        if context.error:
            changing.doubt(
                self, name, f"the statement ended with error {context.error}"
            )
            return
        if len(new_names) < len(operation.items) and not self._is_view(name):
            self._alter_structure(operation, context, changing)
        self._partitions(operation, changing)
        if new_names:
            # Of several, the last one counts.
            self._move(name, new_names[-1], changing)

    def _alter_structure(
        self, operation: AlterTable, context: Context, changing: _Changing
    ) -> None:
        name = operation.name
        table = self.find(*name)
        if table is None:
            changing.doubt(self, name, "the table is unknown")
            return
        try:
            new = altered(table, operation.items, self._defaults(name[0], context))
        except CannotApplyError as error:
            changing.doubt(self, name, str(error))
        else:
            self._replace(new, changing)

    def _partitions(self, operation: AlterTable, changing: _Changing) -> None:
        for item in operation.items:
            if isinstance(item, PartitionToTable):
                table = self.find(*operation.name)
                if table is None:
                    changing.doubt(self, item.name, "the table is unknown")
                else:
                    self._put(table.renamed(*item.name), changing)
            elif isinstance(item, TableToPartition) and self._forget(item.name):
                changing.changed.add(item.name)

    def _rename_tables(
        self, operation: RenameTables, context: Context, changing: _Changing
    ) -> None:
        if context.error:
            for pair in operation.pairs:
                for name in pair:
                    changing.doubt(
                        self, name, f"the statement ended with error {context.error}"
                    )
            return
        renamed_again = _renamed_again(operation.pairs)
        for (old, new), is_again in zip(operation.pairs, renamed_again, strict=True):
            if is_again:
                # The first one was a temporary table, which row format does not log.
                continue
            if self._is_temporary(old, context):
                self._temporary -= {(context.thread_id, self._key(old))}
                self._temporary |= {(context.thread_id, self._key(new))}
            elif self._exists(old) or not operation.if_exists:
                self._move(old, new, changing)

    def _drop_tables(
        self, operation: DropTables, context: Context, changing: _Changing
    ) -> None:
        for name in operation.names:
            if self._is_temporary(name, context) and not (
                operation.generated and not operation.temporary
            ):
                self._temporary -= {(context.thread_id, self._key(name))}
            elif operation.temporary or self._stays(name, operation):
                continue
            elif self._forget(name):
                changing.changed.add(name)

    def _stays(self, name: Name, operation: DropTables) -> bool:
        table = self.find(*name) if operation.only_sequences else None
        return table is not None and table.kind is not Kind.SEQUENCE

    def _create_view(
        self, operation: CreateView, _context: Context, _changing: _Changing
    ) -> None:
        schema, name = operation.name
        if not (operation.if_not_exists and self._exists(operation.name)):
            self._schema(schema).views[self._fold(name)] = self._stored(name)

    def _drop_views(
        self, operation: DropViews, _context: Context, _changing: _Changing
    ) -> None:
        for schema, name in operation.names:
            if self._is_view((schema, name)):
                self._schema(schema).views.pop(self._fold(name))

    def _create_database(
        self, operation: CreateDatabase, context: Context, changing: _Changing
    ) -> None:
        known = self._fold(operation.schema) in self._schemas
        if known and operation.if_not_exists:
            return
        if known:
            self._drop_database(DropDatabase(operation.schema), context, changing)
        charset = operation.charset or self._server_charset(context)
        self._schema(operation.schema).collation = charset

    def _alter_database(
        self, operation: AlterDatabase, context: Context, changing: _Changing
    ) -> None:
        if operation.charset is not None:
            charset = operation.charset or self._server_charset(context)
            self._schema(operation.schema).collation = charset
        if operation.renamed_to:
            old = self._schemas.get(self._fold(operation.schema))
            for name in [*old.tables, *old.views] if old else ():
                moved = (operation.renamed_to, name)
                self._move((operation.schema, name), moved, changing)
            self.drop_schema(operation.schema)

    def _drop_database(
        self, operation: DropDatabase, _context: Context, changing: _Changing
    ) -> None:
        found = self._schemas.get(self._fold(operation.schema))
        if found is not None:
            changing.changed.update(
                (operation.schema, entry.name) for entry in found.tables.values()
            )
            self.drop_schema(operation.schema)

    def _unknown(
        self, operation: Unknown, context: Context, changing: _Changing
    ) -> None:
        if not operation.names:
            changing.everything = True
            changing.problem = operation.problem
        for name in operation.names:
            if not self._is_temporary(name, context):
                changing.doubt(self, name, operation.problem)

    # Helpers

    def _stored(self, name: str) -> str:
        return name.lower() if self._folding == 1 else name

    def _key(self, name: Name) -> Name:
        return self._fold(name[0]), self._fold(name[1])

    def _schema(self, name: str) -> Schema:
        """Return a schema to modify, created if it is unknown."""
        key = self._fold(name)
        found = self._schemas.get(key)
        if found is None:
            found = self._schemas[key] = Schema(self._stored(name))
        elif key in self._shared:
            found = self._schemas[key] = found.copy()
        self._shared.discard(key)
        return found

    def _put(self, table: Table, changing: _Changing) -> None:
        """Add a new table."""
        schema = self._schema(table.schema)
        if self._folding == 1:
            table = table.renamed(table.schema.lower(), table.name.lower())
        key = self._fold(table.name)
        schema.tables[key] = table
        schema.uncertain.pop(key, None)
        changing.changed.add((table.schema, table.name))

    def _replace(self, table: Table, changing: _Changing) -> None:
        """Replace the structure of a table."""
        self._schema(table.schema).tables[self._fold(table.name)] = table
        changing.changed.add((table.schema, table.name))

    def _forget(self, name: Name) -> bool:
        """Remove a table or view; returns whether it was known."""
        key = self._fold(name[1])
        known = self._schemas.get(self._fold(name[0]))
        if known is None or not (
            key in known.tables or key in known.uncertain or key in known.views
        ):
            return False
        schema = self._schema(name[0])
        schema.uncertain.pop(key, None)
        schema.views.pop(key, None)
        schema.tables.pop(key, None)
        return True

    def _move(self, old: Name, new: Name, changing: _Changing) -> None:
        """Rename a table or view."""
        if self._is_view(old):
            self._schema(old[0]).views.pop(self._fold(old[1]))
            self._schema(new[0]).views[self._fold(new[1])] = self._stored(new[1])
            return
        uncertain = self.is_uncertain(*old)
        table = self.find(*old)
        known = self._forget(old)
        if known:
            changing.changed.add(old)
        if table is not None:
            self._put(table.renamed(*new), changing)
            if uncertain:
                self.mark_uncertain(*new)
        else:
            changing.doubt(self, new, "its previous name is unknown")

    def _exists(self, name: Name) -> bool:
        known = self._schemas.get(self._fold(name[0]))
        key = self._fold(name[1])
        return known is not None and (key in known.tables or key in known.views)

    def _is_view(self, name: Name) -> bool:
        known = self._schemas.get(self._fold(name[0]))
        return known is not None and self._fold(name[1]) in known.views

    def _is_temporary(self, name: Name, context: Context) -> bool:
        return (context.thread_id, self._key(name)) in self._temporary

    def _charset_for(self, schema: str, context: Context) -> str:
        """Return the default character set of new tables in a schema."""
        known = self._schemas.get(self._fold(schema))
        if known is not None and known.charset:
            return known.charset
        if context.collation_database and schema == context.schema:
            charset = charset_of(context.collation_database)
            if charset:
                return charset
        return self._server_charset(context)

    def _defaults(self, schema: str, context: Context) -> Defaults:
        """Return the character sets that a statement does not specify."""
        session = charset_of(context.collation_database or "")
        return Defaults(
            self._charset_for(schema, context),
            session or self._charset_for(context.schema, context),
            self._mariadb,
        )

    def _server_charset(self, context: Context) -> str:
        collation = context.collation_server or self._server_collation or ""
        return charset_of(collation) or DEFAULT_CHARSETS[self._mariadb]

    _APPLIERS: ClassVar[dict[type[Operation], Callable[..., None]]] = {
        CreateTable: _create_table,
        CreateLike: _create_like,
        CreateSequence: _create_sequence,
        AlterTable: _alter_table,
        RenameTables: _rename_tables,
        DropTables: _drop_tables,
        CreateView: _create_view,
        DropViews: _drop_views,
        CreateDatabase: _create_database,
        AlterDatabase: _alter_database,
        DropDatabase: _drop_database,
        Unknown: _unknown,
    }


def _renamed_again(pairs: Sequence[tuple[Name, Name]]) -> list[bool]:
    """Return for each pair whether its table is renamed later, and none becomes it."""
    found = []
    # By name, whether the next pair with it renames it; else that pair creates it.
    renames: dict[Name, bool] = {}
    for old, new in reversed(pairs):
        found.append(renames.get(old, False))
        renames[new] = False
        renames[old] = True
    return found[::-1]


class _Changing:
    """Collects the effects of a statement."""

    def __init__(self) -> None:
        self.changed: set[Name] = set()
        self.uncertain: set[Name] = set()
        self.everything = False
        self.problem = ""

    def doubt(self, model: MemoryTableMeta, name: Name, problem: str) -> None:
        """Record that the structure of a table is unknown."""
        model.mark_uncertain(*name)
        self.uncertain.add(name)
        self.problem = self.problem or f"{problem} ({name[0]}.{name[1]})"

    def applied(self) -> Applied:
        """Return the result."""
        return Applied(
            frozenset(self.changed),
            frozenset(self.uncertain),
            self.everything,
            self.problem,
        )
