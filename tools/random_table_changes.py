"""Random changes of tables: statements, and what the tables are after them.

Every name is used once, but for tables that are recreated or exchanged. Leaves out
when a change is made, and rows (`mirror_writes`, `soak.load`).
"""

# ruff: noqa: ARG002  # all changes are called alike

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from random_columns import EXTRAS, ORDINARY
from random_schema import NAMES, RandomColumn, RandomTable, random_table

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

TABLES_MAX = 7
COLUMNS_MAX = 40
_WIDER = (
    (r"^tinyint\b", "smallint"),
    (r"^(small|medium)int\b", "int"),
    (r"^int\b", "bigint"),
    (r"^varchar\((\d+)\)", lambda m: f"varchar({int(m[1]) + 40})"),
    (r"^varbinary\((\d+)\)", lambda m: f"varbinary({int(m[1]) + 40})"),
    (r"^(tiny|medium|)text\b", "longtext"),
    (r"^(tiny|medium|)blob\b(?! COMP)", "longblob"),
    (r"^float\b(?!\()", "double"),
    (r"^bit\(\d+\)", "bit(64)"),
    (r"^(datetime|timestamp)\b(\(\d\))?", r"\1(6)"),
    (
        r"^decimal\((\d+),(\d+)\)",
        lambda m: f"decimal({min(int(m[1]) + 4, 65)},{min(int(m[2]) + 2, 30)})",
    ),
    (r"^enum\((.*?)\)(?= |$)", r"enum(\1,'later')"),
)
# Bytes that become characters of these may be half a surrogate pair. Neither server
# shows what follows it, though the binlog has it.
_BYTES = re.compile(r"(var)?binary\b|\w*blob\b|bit\b|geometry\b", re.IGNORECASE)
_WIDE = re.compile(r"CHARACTER SET (ucs2|utf16|utf16le|utf32)\b")

Tables = dict[str, RandomTable]


class TableChanges:
    """The tables of one schema, and how they may change next."""

    def __init__(
        self,
        flavour: str,
        schema: str,
        rng: random.Random,
        fixed: Sequence[RandomColumn] = (),
    ) -> None:
        """Begin without a table; `fixed` are columns that all have, and none loses.

        A key begins with the first of them.
        """
        self.tables: Tables = {}
        self.ever: dict[str, list[RandomTable]] = {}  # what a name may have been
        self._flavour = flavour
        self._schema = schema
        self._rng = rng
        self._fixed = tuple(fixed)
        self._numbers = itertools.count(1)

    def chosen(self, rng: random.Random) -> tuple[str, list[str], Tables]:
        """Return a name for a change, its statements, and all tables after it."""
        makers: list[Callable[..., Any]] = [
            self._add, self._add, self._drop, self._rename, self._widen, self._widen,
            self._move, self._empty, self._empty, self._retype, self._other_key,
            self._new_table, self._rename_table, self._drop_table, self._swap,
            self._exchange,
        ]  # fmt: skip
        while True:
            table = rng.choice(list(self.tables.values()))
            made = rng.choice(makers)(rng, table)
            if made is None:
                continue
            what, statements, changed = made
            after = {n: t for n, t in self.tables.items() if n != table.name}
            after |= {each.name: each for each in changed}
            for each in changed:
                self.ever.setdefault(each.name, []).append(each)
            return what, statements, after

    def of_now(self, cursor: Any) -> Tables:
        """Return the tables that the server has, known by the names of their columns.

        A type may be mistaken for that of before or after a statement: values are
        converted then.
        """
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE"
            " table_schema = %s ORDER BY table_name, ordinal_position",
            (self._schema,),
        )
        names: dict[str, list[str]] = {}
        for table, column in cursor.fetchall():
            names.setdefault(table, []).append(column)
        found = {}
        for name, columns in names.items():
            if name not in self.ever:
                continue  # another one's
            candidates = self.ever[name]
            for table in reversed(candidates):
                if [each.name for each in table.columns] == columns:
                    found[name] = table
                    break
            else:
                known = [[c.name for c in each.columns] for each in candidates]
                raise AssertionError(f"{name} has {columns}, which is none of {known}")
        return found

    def _add(self, rng: random.Random, table: RandomTable) -> Any:
        if len(table.columns) >= COLUMNS_MAX:
            return None
        makers = (*ORDINARY, *EXTRAS[self._flavour])
        kind = rng.choice(makers)(rng, self._flavour)
        column = RandomColumn(self._column_name(rng), kind, rng.random() < 0.6)
        default = f" DEFAULT {column.literal(rng)}" if rng.random() < 0.4 else ""
        index = rng.randint(0, len(table.columns))
        columns = [*table.columns[:index], column, *table.columns[index:]]
        where = f"AFTER {columns[index - 1].quoted}" if index else "FIRST"
        sql = f"ADD COLUMN {defined(column)}{default} {where}"
        return "a new column", [altered(table, sql)], [replace(table, columns=columns)]

    def _drop(self, rng: random.Random, table: RandomTable) -> Any:
        column = self._free_column(rng, table)
        if column is None:
            return None
        columns = [each for each in table.columns if each is not column]
        sql = altered(table, f"DROP COLUMN {column.quoted}")
        return "a column that is dropped", [sql], [replace(table, columns=columns)]

    def _rename(self, rng: random.Random, table: RandomTable) -> Any:
        column = rng.choice(table.columns)
        if is_read_by_others(table, column) or column in self._fixed:
            return None
        new = replace(column, name=self._column_name(rng))
        sql = altered(table, f"RENAME COLUMN {column.quoted} TO {new.quoted}")
        return "a column with another name", [sql], [with_column(table, column, new)]

    def _widen(self, rng: random.Random, table: RandomTable) -> Any:
        column = rng.choice(table.columns)
        definition = wider(column.kind.definition)
        if definition is None or is_read_by_others(table, column):
            return None
        if column in self._fixed:
            return None
        kind = replace(column.kind, definition=definition)
        new = replace(column, kind=kind)
        sql = altered(table, f"MODIFY COLUMN {defined(new)}")
        return "a wider column", [sql], [with_column(table, column, new)]

    def _move(self, rng: random.Random, table: RandomTable) -> Any:
        column = self._free_column(rng, table)
        if column is None:
            return None
        columns = [column, *(each for each in table.columns if each is not column)]
        sql = altered(table, f"MODIFY COLUMN {defined(column)} FIRST")
        return "a column that is moved", [sql], [replace(table, columns=columns)]

    def _exchange(self, rng: random.Random, table: RandomTable) -> Any:
        """Have two columns of one type exchange their names."""
        one = self._free_column(rng, table)
        if one is None or len(table.columns) >= COLUMNS_MAX:
            return None
        other = replace(one, name=self._column_name(rng))
        third = replace(one, name=self._column_name(rng))
        statements = [
            altered(table, f"ADD COLUMN {defined(other)} FIRST"),
            RandomTable.insert(replace(table, columns=[other, *table.columns]), rng),
            *(
                altered(table, f"RENAME COLUMN {old.quoted} TO {new.quoted}")
                for old, new in ((one, third), (other, one), (third, other))
            ),
        ]
        swapped = with_column(table, one, third).columns
        for columns in (
            [other, *table.columns],
            [other, *swapped],
            [one, *swapped],
        ):
            between = replace(table, columns=columns)
            self.ever.setdefault(table.name, []).append(between)
        columns = [one, *with_column(table, one, other).columns]
        changed = replace(table, columns=columns)
        return "columns that exchange their names", statements, [changed]

    def _retype(self, rng: random.Random, table: RandomTable) -> Any:
        column = self._free_column(rng, table)
        if column is None:
            return None
        kind = rng.choice(ORDINARY)(rng, self._flavour)
        if _BYTES.match(column.kind.definition) and _WIDE.search(kind.definition):
            return None  # it may become a text that no SELECT shows as a whole
        new = replace(column, kind=kind)
        sql = altered(table, f"MODIFY COLUMN {defined(new)}")
        return "another type", [sql], [with_column(table, column, new)]

    def _empty(self, rng: random.Random, table: RandomTable) -> Any:
        return "a TRUNCATE", [f"TRUNCATE TABLE {table.quoted}"], [table]

    def _other_key(self, rng: random.Random, table: RandomTable) -> Any:
        if table.key:
            changed = replace(table, key=[])
            return "a key that goes", [altered(table, "DROP PRIMARY KEY")], [changed]
        keys = [each for each in table.columns if each.kind.is_key]
        if not keys or rng.random() < 0.5:
            return None
        column = self._fixed[0] if self._fixed else rng.choice(keys)
        new = column if self._fixed else as_key(column)
        changed = replace(with_column(table, column, new), key=[new])
        sql = f"MODIFY COLUMN {defined(new)}, ADD PRIMARY KEY ({new.quoted})"
        empty = f"TRUNCATE TABLE {table.quoted}"  # rows may have equal values
        return "a key that comes", [empty, altered(table, sql)], [changed]

    def _new_table(self, rng: random.Random, table: RandomTable) -> Any:
        if len(self.tables) >= TABLES_MAX:
            return None
        new = self.any_table()
        return "a new table", [new.create(), new.insert(rng)], [table, new]

    def _rename_table(self, rng: random.Random, table: RandomTable) -> Any:
        new = replace(table, name=self._table_name())
        return (
            "a table with another name",
            [f"RENAME TABLE {table.quoted} TO {new.quoted}"],
            [new],
        )

    def _drop_table(self, rng: random.Random, table: RandomTable) -> Any:
        if len(self.tables) < TABLES_MAX - 2:
            return None
        drop = f"DROP TABLE {table.quoted}"
        if rng.random() < 0.5:
            return "a table that is dropped", [drop], []
        new = replace(self.any_table(), name=table.name)
        return "a table that is recreated", [drop, new.create()], [new]

    def _swap(self, rng: random.Random, table: RandomTable) -> Any:
        """Fill a new table and have it replace the old one, as tools do."""
        if len(self.tables) >= TABLES_MAX:
            return None
        new = replace(table, name=self._table_name())
        old = replace(table, name=self._table_name())
        for each in (new, old):
            self.ever[each.name] = [each]
        names = ", ".join(each.quoted for each in written(table))
        return (
            "a table that replaces another",
            [
                f"CREATE TABLE {new.quoted} LIKE {table.quoted}",
                (
                    f"INSERT INTO {new.quoted} ({names})"
                    f" SELECT {names} FROM {table.quoted} LIMIT 50"
                ),
                (
                    f"RENAME TABLE {table.quoted} TO {old.quoted}"
                    f", {new.quoted} TO {table.quoted}"
                ),
                f"DROP TABLE {old.quoted}",
            ],
            [table],
        )

    # --- pieces -----------------------------------------------------------------------

    def _free_column(
        self, rng: random.Random, table: RandomTable
    ) -> RandomColumn | None:
        """Return a column that neither the key nor another column is made of."""
        free = [
            each
            for each in table.columns
            if each not in table.key
            and each not in self._fixed
            and not each.kind.generated
            and not is_read_by_others(table, each)
        ]
        return rng.choice(free) if len(free) > 1 else None

    def _column_name(self, rng: random.Random) -> str:
        return rng.choice(NAMES).format(n=next(self._numbers) + 100)

    def _table_name(self) -> str:
        return f"t{next(self._numbers)}"

    def any_table(self) -> RandomTable:
        """Return a table that there is not yet."""
        table = random_table(
            self._rng,
            self._schema,
            next(self._numbers),
            self._flavour,
            extras=self._rng.random() < 0.5,
        )
        return with_keys(self._with_fixed(table))

    def with_every_type(self, *, key: bool) -> RandomTable:
        """Return one with a column of each type, and a key of two of them or none."""
        makers = [*dict.fromkeys(ORDINARY), *EXTRAS[self._flavour]]
        columns = [
            RandomColumn(
                self._column_name(self._rng),
                maker(self._rng, self._flavour),
                self._rng.random() < 0.7,
            )
            for maker in makers
        ]
        keys = [each for each in columns if each.kind.is_key]
        chosen = self._rng.sample(keys, 2) if key else []
        table = RandomTable(self._schema, self._table_name(), columns, chosen)
        return with_keys(self._with_fixed(table))

    def _with_fixed(self, table: RandomTable) -> RandomTable:
        if not self._fixed:
            return table
        columns = [*self._fixed, *table.columns]
        key = [self._fixed[0], *table.key[:1]] if table.key else []
        return replace(table, columns=columns, key=key)


def as_key(column: RandomColumn) -> RandomColumn:
    """Return a column for a key, where dates that there are not stop a table."""

    def literal(rng: random.Random) -> str:
        while True:
            found = column.kind.literal(rng)
            if "-00" not in found and "0000-" not in found:
                return found

    if not column.kind.definition.startswith("date"):
        return replace(column, nullable=False)
    kind = replace(column.kind, literal=literal)
    return replace(column, kind=kind, nullable=False)


def with_keys(table: RandomTable) -> RandomTable:
    """Return a table whose key has no dates that there are not."""
    for column in table.key:
        table = with_column(table, column, as_key(column))
    return table


def written(table: RandomTable) -> list[RandomColumn]:
    """Return the columns that values can be given to."""
    return [each for each in table.columns if not each.kind.generated]


def is_read_by_others(table: RandomTable, column: RandomColumn) -> bool:
    """Return whether a generated column is made of this one, or it is one."""
    return column.kind.generated or any(
        each.kind.generated and column.quoted in each.kind.definition
        for each in table.columns
    )


def with_column(
    table: RandomTable, old: RandomColumn, new: RandomColumn
) -> RandomTable:
    """Return a table with another column instead of one."""
    columns = [new if each is old else each for each in table.columns]
    key = [new if each is old else each for each in table.key]
    return replace(table, columns=columns, key=key)


def defined(column: RandomColumn) -> str:
    """Return the definition of a column, as CREATE TABLE has it."""
    null = "" if column.nullable else " NOT NULL"
    text = f"{column.quoted} {column.kind.definition}{null}"
    return text.replace("NULL NOT NULL", "NOT NULL")


def altered(table: RandomTable, what: str) -> str:
    """Return the statement that changes a table."""
    return f"ALTER TABLE {table.quoted} {what}"


def wider(definition: str) -> str | None:
    """Return a wider type; None where none is known."""
    for pattern, new in _WIDER:
        found, count = re.subn(pattern, new, definition, count=1)
        if count:
            return found if found != definition else None
    return None
