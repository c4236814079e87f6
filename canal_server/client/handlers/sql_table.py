"""One table of a target database: its columns, rows as it has them, statements.

Needs SQLAlchemy. Leaves out where tables come from (`sql_tables`), and what executes
statements (`sql_target`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from canal_server.client.handlers.handler import Rejected
from canal_server.client.handlers.sql_columns import converter_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Values by the names of the target's columns.
Row: TypeAlias = dict[str, Any]
Names: TypeAlias = tuple[str, ...]

_ON_CONFLICT: Final[dict[str, Callable[[sa.Table], Any]]] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}
_ON_DUPLICATE_KEY: Final = frozenset({"mysql", "mariadb"})


class SqlTable:
    """A table of the target, as it was when it was read.

    Statements have values by position: `bound` makes their parameters.
    """

    def __init__(self, table: sa.Table, dialect: str) -> None:
        for each in table.columns:
            if isinstance(each.type, sa.JSON):
                each.type.none_as_null = True  # a NULL is not the JSON value null
        self._table = table
        self._dialect = dialect
        self._columns: dict[str, tuple[str, Callable[[Any], Any] | None] | None] = {}
        self._statements: dict[tuple[str, Names, Names], Any] = {}
        # Without them, a row cannot be inserted.
        self.required = frozenset(
            each.name
            for each in table.columns
            if not each.nullable and each.server_default is None
        )

    @property
    def name(self) -> str:
        """The name with its schema, if it is not in the default one."""
        return self._table.fullname

    def missing(self, values: Mapping[str, object]) -> list[str]:
        """Return the columns of the source that the table lacks."""
        if values.keys() <= self._columns.keys():
            return []
        return [
            name
            for name in values
            if name not in self._columns and not self._find(name)
        ]

    def has(self, name: str) -> bool:
        """Return whether the table has a column of the source."""
        return self._columns.get(name) is not None or self._find(name)

    def ignore(self, names: list[str]) -> None:
        """Leave columns of the source out from now on."""
        self._columns.update(dict.fromkeys(names))

    def row(self, values: Mapping[str, object]) -> Row:
        """Return values of a change as the table has them.

        `missing` has to be called before. Raises Rejected for a value that its column
        cannot have.
        """
        found: Row = {}
        for name, value in values.items():
            column = self._columns[name]
            if column is None:
                continue
            target, convert = column
            if convert is not None and value is not None:
                try:
                    value = convert(value)  # noqa: PLW2901  # faster
                except ValueError as error:
                    raise Rejected(f"column {name} of {self.name}: {error}") from error
            found[target] = value
        return found

    def _find(self, name: str) -> bool:
        """Find a column by its name, else by the same in another case."""
        columns = self._table.columns
        target = name if name in columns else None
        if target is None:
            same = [each for each in columns if each.name.lower() == name.lower()]
            if len(same) == 1:
                target = same[0].name
        if target is None:
            return False
        self._columns[name] = target, converter_of(columns[target].type)
        return True

    # ----------------------------------------------------------------------------
    # Statements
    # ----------------------------------------------------------------------------

    def upsert(self, names: Names, key: Names) -> Any | None:
        """Return what inserts or updates a row; None if the database has no such."""
        return self._cached("upsert", names, key, self._make_upsert)

    def insert(self, names: Names) -> Any:
        """Return what inserts a row."""
        return self._cached("insert", names, (), self._make_insert)

    def update(self, names: Names, key: Names) -> Any:
        """Return what updates the row with a key."""
        return self._cached("update", names, key, self._make_update)

    def delete(self, key: Names) -> Any:
        """Return what deletes the row with a key."""
        return self._cached("delete", (), key, self._make_delete)

    def exists(self, key: Names) -> Any:
        """Return what selects 1 if there is a row with a key."""
        return self._cached("exists", (), key, self._make_exists)

    def truncate(self) -> Any:
        """Return what deletes all rows, within the transaction."""
        return sa.delete(self._table)

    def _cached(
        self, what: str, names: Names, key: Names, make: Callable[[Names, Names], Any]
    ) -> Any:
        found = self._statements.get((what, names, key))
        if found is None:
            found = self._statements[what, names, key] = make(names, key)
        return found

    def _make_upsert(self, names: Names, key: Names) -> Any:
        others = [name for name in names if name not in key]
        if self._dialect in _ON_CONFLICT:
            insert = _ON_CONFLICT[self._dialect](self._table).values(_values(names))
            if not others:
                return insert.on_conflict_do_nothing(index_elements=key)
            new = {name: insert.excluded[name] for name in others}
            return insert.on_conflict_do_update(index_elements=key, set_=new)
        if self._dialect in _ON_DUPLICATE_KEY:
            added = mysql.insert(self._table).values(_values(names))
            # Without other columns, something that changes nothing.
            return added.on_duplicate_key_update(
                {name: added.inserted[name] for name in others or key}
            )
        return None

    def _make_insert(self, names: Names, _key: Names) -> Any:
        return sa.insert(self._table).values(_values(names))

    def _make_update(self, names: Names, key: Names) -> Any:
        return sa.update(self._table).where(*self._is(key)).values(_values(names))

    def _make_delete(self, _names: Names, key: Names) -> Any:
        return sa.delete(self._table).where(*self._is(key))

    def _make_exists(self, _names: Names, key: Names) -> Any:
        one: Any = sa.literal_column("1")
        return sa.select(one).select_from(self._table).where(*self._is(key))

    def _is(self, key: Names) -> list[Any]:
        columns = self._table.columns
        return [
            columns[name] == sa.bindparam(f"k{at}", type_=columns[name].type)
            for at, name in enumerate(key)
        ]


def bound(row: Mapping[str, object], key: Mapping[str, object] | None = None) -> Row:
    """Return the parameters of a statement for the values of a row and of a key."""
    found = {f"v{at}": value for at, value in enumerate(row.values())}
    if key is not None:
        for at, value in enumerate(key.values()):
            found[f"k{at}"] = value
    return found


def _values(names: Names) -> dict[str, Any]:
    return {name: sa.bindparam(f"v{at}") for at, name in enumerate(names)}
