"""Table schemas that follow the statements of a binlog segment.

A base may have been read after statements that are still to come in the binlog. It
contains their effect already, so they must not be applied again; until they have been
read, the columns of the tables they name may differ from the base. Where statements
come from is left to `tsdb`.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from canal_server.model.entry import EventType
from canal_server.tablemeta.sql.statement_classes import examine
from canal_server.tablemeta.storage.history_storage import StoredSchema
from canal_server.tablemeta.tables.memory_tables import Applied, MemoryTableMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from canal_server.model.ddl_statement import Examined
    from canal_server.tablemeta.model.table_schema import Table
    from canal_server.tablemeta.storage.history_storage import DdlRecord, SourceTraits
    from canal_server.tablemeta.tables.schemas import FrozenTables

TableName = tuple[str, str]

# First words of statements whose result does not depend on the previous table.
_INDEPENDENT = ("CREATE", "DROP")


class Replay:
    """Live table schemas that start with a snapshot; for one thread."""

    def __init__(self, traits: SourceTraits, schemas: Iterable[StoredSchema]) -> None:
        self.model = MemoryTableMeta(
            mariadb=traits.mariadb,
            lower_case_table_names=traits.lower_case_table_names,
            server_collation=traits.collation or None,
            server_version=traits.version,
        )
        load_schemas(self.model, schemas)
        self._fold: Callable[[str], str] = (
            str.lower if traits.lower_case_table_names else str
        )
        self._base: FrozenTables | None = None
        # Contained statements that are still to come, by the tables they name.
        self._tables: Counter[TableName] = Counter()
        self._schemas: Counter[str] = Counter()
        self._everything = 0
        self._ahead = 0

    def copy(self) -> Replay:
        """Return a copy that follows its own statements from here on."""
        found = copy.copy(self)
        found.model = self.model.copy()
        found._tables, found._schemas = Counter(self._tables), Counter(self._schemas)  # noqa: SLF001
        return found

    @property
    def at_rest(self) -> bool:
        """Whether all statements that the base contains have been read."""
        return not self._ahead

    @property
    def has_temporary(self) -> bool:
        """Whether there are temporary tables, which hide others with the same names."""
        return bool(self.model.freeze().temporary)

    def is_ahead(self, schema: str, table: str) -> bool:
        """Return whether contained statements on a table are still to come."""
        return self._is_ahead(self._key(schema, table))

    def expect(self, records: Iterable[DdlRecord]) -> None:
        """Add the contained statements that are still to come, in order, at once."""
        assert self._base is None
        expected = [(record, _examined(record)) for record in records]
        for record, examined in expected:
            self._count(record, examined, 1)
        if not expected:
            return
        self._base = self.model.freeze()
        self._load_former_names(expected)
        for schema, table in _names_of(self._base):
            if self.is_ahead(schema, table):
                self.model.mark_uncertain(schema, table)

    def apply(self, record: DdlRecord) -> Applied:
        """Follow one statement, contained or not; contained ones must be expected."""
        if not record.contained or not self._ahead:
            return self._follow(record)
        assert self._base is not None
        examined = _examined(record)
        names = self._names(record, examined)
        applied = Applied()
        if self._can_follow(record, examined, names):
            applied = self._follow(record)
        self._count(record, examined, -1)
        passed = {name for name in names if not self._is_ahead(name)}
        stale = examined.stale
        if stale.schemas or stale.everything:
            owners = {self._fold(each) for each in stale.schemas}
            passed.update(
                self._key(*name)
                for name in _names_of(self._base)
                if (stale.everything or self._fold(name[0]) in owners)
                and not self.is_ahead(*name)
            )
        for schema, table in passed:
            self._restore(schema, table)
        if not self._ahead:
            self._base = None
        doubts = frozenset(
            name for name in applied.uncertain if self._key(*name) not in passed
        )
        return Applied(
            applied.changed | passed,
            doubts,
            applied.everything,
            applied.problem if doubts or applied.everything else "",
        )

    def find(self, schema: str, table: str) -> Table | None:
        """Return the schema of a table, None if it does not exist."""
        return self.model.find(schema, table)

    def _follow(self, record: DdlRecord) -> Applied:
        applied = self.model.apply(
            record.position, record.schema, record.ddl, record.context
        )
        if not applied.everything:
            return applied
        # The changed tables are unknown: each may have changed.
        names = frozenset(_names_of(self.model.freeze()))
        for schema, table in names:
            self.model.mark_uncertain(schema, table)
        return replace(applied, uncertain=applied.uncertain | names)

    def _can_follow(
        self, record: DdlRecord, examined: Examined, names: Iterable[TableName]
    ) -> bool:
        """Return whether a contained statement has enough details to be applied."""
        if examined.stale.everything:
            return False
        if all(each.event_type is EventType.RENAME for each in examined.statements):
            return True  # an uncertain table stays uncertain under its new name
        first = record.ddl.lstrip()[:6].upper()
        return first.startswith(_INDEPENDENT) or not any(
            self.model.is_uncertain(*name) for name in names
        )

    def _load_former_names(
        self, expected: Sequence[tuple[DdlRecord, Examined]]
    ) -> None:
        """Give tables that pending statements rename the names they have now."""
        assert self._base is not None
        origins: dict[TableName, _Origin | None] = {}
        for record, examined in reversed(expected):
            self._trace(record, examined, origins)
        for (schema, table), origin in origins.items():
            if origin is None or origin.name == (schema, table):
                continue
            text = self._base.text(*origin.name)
            if text is None:
                continue
            self.model.load(schema, text, table)
            if origin.is_altered:
                self.model.mark_uncertain(schema, table)

    def _trace(
        self,
        record: DdlRecord,
        examined: Examined,
        origins: dict[TableName, _Origin | None],
    ) -> None:
        """Step back before a statement: find the name of each table in the base."""
        for statement in reversed(examined.statements):
            if statement.table is None:
                continue
            name = self._key(statement.schema or record.schema, statement.table)
            if statement.event_type is EventType.RENAME and statement.old_table:
                old = self._key(
                    statement.old_schema or record.schema, statement.old_table
                )
                origins[old] = origins.get(name, _Origin(name))
                origins[name] = None
            elif statement.event_type in (EventType.CREATE, EventType.ERASE):
                origins[name] = None  # another table, which is unknown
            elif statement.event_type is not EventType.TRUNCATE:
                origin = origins.get(name, _Origin(name))
                origins[name] = origin and replace(origin, is_altered=True)

    def _restore(self, schema: str, table: str) -> None:
        """Load a table from the base: no contained statement on it is left."""
        assert self._base is not None
        text = self._base.text(schema, table)
        if text is None:
            self.model.forget(schema, table)
            return
        self.model.load(schema, text, table)
        if self._base.is_uncertain(schema, table):
            self.model.mark_uncertain(schema, table)

    def _is_ahead(self, name: TableName) -> bool:
        return (
            self._everything > 0 or self._tables[name] > 0 or self._schemas[name[0]] > 0
        )

    def _count(self, record: DdlRecord, examined: Examined, times: int) -> None:
        stale = examined.stale
        for name in self._names(record, examined):
            self._tables[name] += times
        for schema in stale.schemas:
            self._schemas[self._fold(schema)] += times
        self._everything += times * stale.everything
        self._ahead += times

    def _names(self, record: DdlRecord, examined: Examined) -> set[TableName]:
        return {
            self._key(schema or record.schema, table)
            for schema, table in examined.stale.tables
        }

    def _key(self, schema: str, table: str) -> TableName:
        return self._fold(schema), self._fold(table)


@dataclass(frozen=True, slots=True)
class _Origin:
    """A table of the base that had another name, or other columns, before."""

    name: TableName
    is_altered: bool = False


def _examined(record: DdlRecord) -> Examined:
    return examine(record.ddl, record.schema, record.context.dialect)


def _names_of(tables: FrozenTables) -> Iterable[TableName]:
    return (
        (schema, table)
        for schema in tables.schemas()
        for table in tables.tables(schema)
    )


def load_schemas(model: MemoryTableMeta, schemas: Iterable[StoredSchema]) -> None:
    """Load stored texts, which are parsed on demand."""
    for schema in schemas:
        model.load_database(schema.name, schema.collation or None)
        for table, text in schema.tables:
            model.load(schema.name, text, table)
        for view in schema.views:
            model.load_view(schema.name, view)
        for table in schema.uncertain:
            model.mark_uncertain(schema.name, table)


def stored_schemas(tables: FrozenTables) -> list[StoredSchema]:
    """Return table schemas as text, for a snapshot."""
    return [
        StoredSchema(
            schema,
            tables.collation(schema) or "",
            tuple(
                (table, tables.text(schema, table) or "")
                for table in tables.tables(schema)
            ),
            tuple(tables.views(schema)),
            tuple(tables.uncertain(schema)),
        )
        for schema in tables.schemas()
    ]
