"""Table images that follow the statements of a stretch of binlog.

A base may have been taken behind statements that come yet: it contains their effect,
they must not be applied to it, and until they have passed, the columns of the tables
they name may be others than the base's. Leaves out where statements come from.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from canal_server.tablemeta.ddl import examine
from canal_server.tablemeta.memory import Applied, MemoryTableMeta
from canal_server.tablemeta.storage import StoredSchema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.tablemeta.image import Table
    from canal_server.tablemeta.schemas import Image
    from canal_server.tablemeta.statement import Stale
    from canal_server.tablemeta.storage import DdlRecord, SourceTraits

TableName = tuple[str, str]

# First words of statements whose result does not depend on what a table was.
_INDEPENDENT = ("CREATE", "DROP")


class Replay:
    """A live image that begins with a snapshot; for one thread."""

    def __init__(self, traits: SourceTraits, schemas: Iterable[StoredSchema]) -> None:
        self.model = MemoryTableMeta(
            mariadb=traits.mariadb,
            lower_case_table_names=traits.lower_case_table_names,
            server_collation=traits.collation or None,
            server_version=traits.version,
        )
        load_schemas(self.model, schemas)
        self._base: Image | None = None
        # Contained statements that come yet, by the tables they name.
        self._tables: Counter[TableName] = Counter()
        self._schemas: Counter[str] = Counter()
        self._ahead = 0

    @property
    def at_rest(self) -> bool:
        """Whether all statements that the base contains have passed."""
        return not self._ahead

    def expect(self, records: Iterable[DdlRecord]) -> None:
        """Take note of contained statements that come yet, all at once."""
        assert self._base is None
        for record in records:
            stale = self._stale(record)
            self._tables.update(self._names(stale, record))
            self._schemas.update(stale.schemas)
            self._ahead += 1
        if not self._ahead:
            return
        self._base = self.model.freeze()
        for name in self._base_names():
            if self._is_ahead(name):
                self.model.mark_uncertain(*name)

    def apply(self, record: DdlRecord) -> Applied:
        """Follow one statement; for the contained ones, those that were expected."""
        if not record.contained or not self._ahead:
            return self.model.apply(
                record.position, record.schema, record.ddl, record.context
            )
        assert self._base is not None
        stale = self._stale(record)
        names = set(self._names(stale, record))
        applied = Applied()
        if self._can_follow(record, names):
            applied = self.model.apply(
                record.position, record.schema, record.ddl, record.context
            )
        self._tables.subtract(self._names(stale, record))
        self._schemas.subtract(stale.schemas)
        self._ahead -= 1
        passed = {name for name in names if not self._is_ahead(name)}
        passed.update(
            name
            for name in self._base_names()
            if name[0] in stale.schemas and not self._is_ahead(name)
        )
        for schema, table in passed:
            self._restore(schema, table)
        if not self._ahead:
            self._base = None
        return Applied(changed=applied.changed | passed)

    def find(self, schema: str, table: str) -> Table | None:
        """Return a table's image, None when there is none."""
        return self.model.find(schema, table)

    def _can_follow(self, record: DdlRecord, names: set[TableName]) -> bool:
        """Tell whether a contained statement says enough to be applied."""
        first = record.ddl.lstrip()[:6].upper()
        return first.startswith(_INDEPENDENT) or not any(
            self.model.is_uncertain(*name) for name in names
        )

    def _restore(self, schema: str, table: str) -> None:
        """Take a table as the base has it: no statement of it comes any more."""
        assert self._base is not None
        text = self._base.text(schema, table)
        if text is None:
            self.model.forget(schema, table)
        else:
            self.model.load(schema, text, table)

    def _is_ahead(self, name: TableName) -> bool:
        return self._tables[name] > 0 or self._schemas[name[0]] > 0

    def _base_names(self) -> list[TableName]:
        assert self._base is not None
        return [
            (schema, table)
            for schema in self._base.schemas()
            for table in self._base.tables(schema)
        ]

    def _stale(self, record: DdlRecord) -> Stale:
        return examine(record.ddl, record.schema, record.context.dialect).stale

    def _names(self, stale: Stale, record: DdlRecord) -> list[TableName]:
        return [(schema or record.schema, table) for schema, table in stale.tables]


def load_schemas(model: MemoryTableMeta, schemas: Iterable[StoredSchema]) -> None:
    """Fill an image with stored texts, which are read when they are needed."""
    for schema in schemas:
        model.load_database(schema.name, schema.collation or None)
        for table, text in schema.tables:
            model.load(schema.name, text, table)
        for view in schema.views:
            model.load_view(schema.name, view)
        for table in schema.uncertain:
            model.mark_uncertain(schema.name, table)


def stored_schemas(image: Image) -> list[StoredSchema]:
    """Return an image as text, for a snapshot."""
    return [
        StoredSchema(
            schema,
            image.collation(schema) or "",
            tuple((table, image.text(schema, table) or "") for table in tables),
            tuple(image.views(schema)),
            tuple(table for table in tables if image.is_uncertain(schema, table)),
        )
        for schema in image.schemas()
        for tables in (list(image.tables(schema)),)
    ]
