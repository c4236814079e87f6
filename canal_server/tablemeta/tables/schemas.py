"""Schemas with their tables: stored as text until needed, and shared by copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from canal_server.tablemeta.model.charset_widths import charset_of
from canal_server.tablemeta.model.operations import CreateSequence, CreateTable
from canal_server.tablemeta.sql.resolve import resolve
from canal_server.tablemeta.tables.table_changes import created, sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from canal_server.tablemeta.model.operations import Name
    from canal_server.tablemeta.model.session_context import Context
    from canal_server.tablemeta.model.table_schema import Table

DEFAULT_CHARSETS: Final = {True: "latin1", False: "utf8mb4"}  # by mariadb


class LazyTable:
    """A table as text, parsed on first use; shared by copies."""

    __slots__ = ("_context", "_table", "_text", "name", "schema")

    def __init__(self, name: Name, text: str, context: Context) -> None:
        self.schema, self.name = name
        self._text: str | None = text
        self._context = context
        self._table: Table | None = None

    @property
    def table(self) -> Table | None:
        """The table; None if its text cannot be parsed."""
        text = self._text
        if text is None or self._table is not None:
            return self._table
        table = read_table((self.schema, self.name), text, self._context)
        if table is not None:
            self._table = table
            self._text = None
        return table

    @property
    def text(self) -> str:
        """The text, or an equivalent one."""
        text = self._text
        if text is not None:
            return text
        assert self._table is not None  # set before the text is dropped
        return self._table.create_sql()


def read_table(name: Name, text: str, context: Context) -> Table | None:
    """Parse an answer to SHOW CREATE TABLE; None if that is impossible."""
    operations = resolve(text, context, shown=True)
    if len(operations) != 1:
        return None
    operation = operations[0]
    charset = DEFAULT_CHARSETS[context.mariadb]
    if isinstance(operation, CreateSequence):
        return sequence(operation).renamed(*name)
    if not isinstance(operation, CreateTable) or operation.is_open:
        return None
    return created(operation, charset, mariadb=context.mariadb).renamed(*name)


@dataclass(slots=True)
class Schema:
    """A schema; keys are names in the form used to compare them."""

    name: str
    collation: str | None = None  # or only the character set
    tables: dict[str, Table | LazyTable] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    uncertain: dict[str, str] = field(default_factory=dict)

    @property
    def charset(self) -> str | None:
        """The default character set of its tables; None if unknown."""
        return charset_of(self.collation) if self.collation else None

    def copy(self) -> Schema:
        """Return a copy that may be modified."""
        return Schema(
            self.name,
            self.collation,
            dict(self.tables),
            dict(self.views),
            dict(self.uncertain),
        )


class FrozenTables:
    """All tables at one moment; immutable, for any thread."""

    __slots__ = ("_fold", "schemas_by_key", "temporary")

    def __init__(
        self,
        schemas_by_key: Mapping[str, Schema],
        temporary: frozenset[tuple[int, Name]],
        fold: Callable[[str], str],
    ) -> None:
        self.schemas_by_key = schemas_by_key
        self.temporary = temporary
        self._fold = fold

    def find(self, schema: str, table: str) -> Table | None:
        """Return a table; None if it is unknown, and for views."""
        found = self.schemas_by_key.get(self._fold(schema))
        return None if found is None else table_of(found.tables.get(self._fold(table)))

    def schemas(self) -> list[str]:
        """Return the names of all schemas."""
        return [each.name for each in self.schemas_by_key.values()]

    def tables(self, schema: str) -> list[str]:
        """Return the names of the tables of a schema."""
        return [entry.name for entry in self._entries(schema)]

    def views(self, schema: str) -> list[str]:
        """Return the names of the views of a schema."""
        found = self.schemas_by_key.get(self._fold(schema))
        return list(found.views.values()) if found else []

    def collation(self, schema: str) -> str | None:
        """Return the default collation of a schema or, if unknown, its charset."""
        found = self.schemas_by_key.get(self._fold(schema))
        return found.collation if found else None

    def text(self, schema: str, table: str) -> str | None:
        """Return the CREATE TABLE text of a table; None if it is unknown."""
        found = self.schemas_by_key.get(self._fold(schema))
        entry = found.tables.get(self._fold(table)) if found else None
        return None if entry is None else text_of(entry)

    def uncertain(self, schema: str) -> list[str]:
        """Return the names of the tables whose structure is uncertain."""
        found = self.schemas_by_key.get(self._fold(schema))
        return list(found.uncertain.values()) if found else []

    def is_uncertain(self, schema: str, table: str) -> bool:
        """Return whether the structure of a table may differ."""
        found = self.schemas_by_key.get(self._fold(schema))
        return found is not None and self._fold(table) in found.uncertain

    def texts(self) -> Iterator[tuple[str, str, str]]:
        """Yield schema, table and CREATE TABLE text of every table."""
        for schema in self.schemas_by_key.values():
            for entry in schema.tables.values():
                yield schema.name, entry.name, text_of(entry)

    def _entries(self, schema: str) -> Iterable[Table | LazyTable]:
        found = self.schemas_by_key.get(self._fold(schema))
        return () if found is None else found.tables.values()


def text_of(entry: Table | LazyTable) -> str:
    """Return a CREATE TABLE text."""
    return entry.text if isinstance(entry, LazyTable) else entry.create_sql()


def table_of(entry: Table | LazyTable | None) -> Table | None:
    """Return a table, parsed now if it was not yet."""
    return entry.table if isinstance(entry, LazyTable) else entry
