"""Random tables with random rows, and what the server itself says is in them.

Every column knows how SELECT shows its value and how that becomes canal's text, so
that decoded changes, folded into tables, can be held against the server's truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pymysql
from random_columns import EXTRAS, FEATURES, ORDINARY, Kind, integer

from canal_server.model.entry import EntryType, EventType

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator

    from servers import Server

    from canal_server.protocol.entry_messages import Column, Entry

IMAGES = ("FULL", "FULL", "MINIMAL", "NOBLOB")
NAMES = ("c{n}", "C{n}", "größe {n}", "列{n}", "c`{n}", "select{n}")
NULL = "NULL"

Text = str | None


@dataclass
class RandomColumn:
    """One column of a table."""

    name: str
    kind: Kind
    nullable: bool

    @property
    def quoted(self) -> str:
        """Return the name as SQL requires it."""
        return "`" + self.name.replace("`", "``") + "`"

    def literal(self, rng: random.Random) -> str:
        """Return a random value as SQL."""
        if self.nullable and rng.random() < 0.15:
            return NULL
        return self.kind.literal(rng)


# --- tables -----------------------------------------------------------------------


@dataclass
class RandomTable:
    """One table and the statements that fill it."""

    schema: str
    name: str
    columns: list[RandomColumn]
    key: list[RandomColumn]
    options: str = ""

    @property
    def quoted(self) -> str:
        """Return schema and name as SQL requires them."""
        return f"`{self.schema}`.`{self.name}`"

    def create(self) -> str:
        """Return the CREATE TABLE statement."""
        lines = [
            f"{column.quoted} {column.kind.definition}"
            + ("" if column.nullable or column.kind.generated else " NOT NULL").replace(
                "NULL NOT", "NOT"
            )
            for column in self.columns
        ]
        if self.key:
            lines.append(f"PRIMARY KEY ({', '.join(c.quoted for c in self.key)})")
        return f"CREATE TABLE {self.quoted} ({', '.join(lines)}) {self.options}"

    def _written(self) -> list[RandomColumn]:
        return [column for column in self.columns if not column.kind.generated]

    def insert(self, rng: random.Random) -> str:
        """Return a statement that inserts up to five rows."""
        columns = self._written()
        rows = ", ".join(
            f"({', '.join(column.literal(rng) for column in columns)})"
            for _ in range(rng.choice([1, 1, 2, 5]))
        )
        verb = rng.choice(["INSERT IGNORE", "INSERT IGNORE", "REPLACE"])
        names = ", ".join(column.quoted for column in columns)
        return f"{verb} INTO {self.quoted} ({names}) VALUES {rows}"

    def update(self, rng: random.Random) -> str:
        """Return a statement that changes some columns of some rows."""
        columns = self._written()
        chosen = rng.sample(columns, rng.randint(1, len(columns)))
        changes = ", ".join(f"{c.quoted} = {c.literal(rng)}" for c in chosen)
        return f"UPDATE IGNORE {self.quoted} SET {changes} LIMIT {rng.randint(1, 3)}"

    def delete(self, rng: random.Random) -> str:
        """Return a statement that deletes one or two rows."""
        return f"DELETE FROM {self.quoted} LIMIT {rng.randint(1, 2)}"

    def truth(self, cursor: Any) -> list[dict[str, Text]]:
        """Return the rows that the server has, in canal's texts."""
        expressions = ", ".join(
            column.kind.select.format(c=column.quoted) for column in self.columns
        )
        cursor.execute(f"SELECT {expressions} FROM {self.quoted}")
        return [
            {
                column.name: None
                if value is None
                else column.kind.normal(column.kind.text(value))
                for column, value in zip(self.columns, row, strict=True)
            }
            for row in cursor.fetchall()
        ]


def random_table(
    rng: random.Random,
    schema: str,
    number: int,
    flavour: str,
    *,
    extras: bool,
    can: Callable[[str], bool] = lambda _: True,
) -> RandomTable:
    """Return a table of up to twelve columns; every fourth has no key.

    `can`: whether the server has a feature (`server_features`), by default the newest.
    """
    more = [maker for maker in EXTRAS[flavour] if can(FEATURES[maker])]
    makers = [*ORDINARY, *(more * 3 if extras else ())]
    columns = [
        RandomColumn(
            rng.choice(NAMES).format(n=n), rng.choice(makers)(rng, flavour),
            nullable=rng.random() < 0.6,
        )
        for n in range(rng.randint(1, 12))
    ]  # fmt: skip
    keys = [column for column in columns if column.kind.is_key]
    key: list[RandomColumn] = []
    if rng.random() < 0.75:
        if not keys:
            keys = [RandomColumn("id", integer(rng, flavour), nullable=False)]
            columns.insert(rng.randint(0, len(columns)), keys[0])
        key = rng.sample(keys, min(len(keys), rng.choice([1, 1, 2])))
        for column in key:
            column.nullable = False
    if can("generated columns"):
        kinds = ["STORED"]
        if can("virtual columns in the binlog"):
            kinds.insert(0, "VIRTUAL")
        columns += _generated(rng, columns, kinds)
    return RandomTable(schema, f"t{number}", columns, key)


def _generated(
    rng: random.Random, columns: list[RandomColumn], kinds: list[str]
) -> Iterator[RandomColumn]:
    for column in columns:
        if column.kind.definition.startswith(("int", "small")) and rng.random() < 0.3:
            how = rng.choice(kinds)
            definition = f"bigint AS ({column.quoted} % 7) {how}"
            kind = Kind(definition, lambda _: NULL, "{c} + 0", generated=True)
            yield RandomColumn(f"of {column.name}", kind, nullable=True)


@dataclass
class RandomLoad:
    """Random tables on a server, and random statements on them."""

    server: Server
    schema: str
    rng: random.Random
    tables: list[RandomTable] = field(default_factory=list)
    images: tuple[str, ...] = IMAGES  # values of binlog_row_image

    def run(self, *, tables: int, steps: int, settings: Iterable[str] = ()) -> None:
        """Create the tables and change their rows in one session."""
        with self._session() as connection, connection.cursor() as cursor:
            for setting in settings:
                cursor.execute(f"SET SESSION {setting}")
            for number in range(tables):
                self.tables.append(self._created(cursor, number))
            for _ in range(steps):
                self._step(cursor)

    def _session(self) -> pymysql.Connection[Any]:
        return self.server.connect(
            init_command="SET SESSION sql_mode = '', time_zone = '+00:00'"
        )

    def _created(self, cursor: Any, number: int) -> RandomTable:
        extras = number % 2 == 1
        while True:
            table = random_table(
                self.rng,
                self.schema,
                number,
                self.server.flavour,
                extras=extras,
                can=self.server.can,
            )
            try:
                cursor.execute(table.create())
            except pymysql.err.OperationalError as error:
                # A row, or a key, can have too many bytes.
                if error.args[0] not in (1071, 1118):
                    raise
                continue
            return table

    def _step(self, cursor: Any) -> None:
        rng = self.rng
        cursor.execute(f"SET SESSION binlog_row_image = {rng.choice(self.images)}")
        cursor.execute("BEGIN")
        for _ in range(rng.choice([1, 1, 3])):
            table = rng.choice(self.tables)
            choice = rng.random()
            if choice < 0.55:
                cursor.execute(table.insert(rng))
            elif choice < 0.85:
                cursor.execute(table.update(rng))
            else:
                cursor.execute(table.delete(rng))
        cursor.execute(rng.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))

    def truth(self) -> dict[str, list[dict[str, Text]]]:
        """Return all rows that the server has, by the names of the tables."""
        with self._session() as connection, connection.cursor() as cursor:
            return {table.name: table.truth(cursor) for table in self.tables}


# --- decoded changes --------------------------------------------------------------


class Fold:
    """Applies decoded entries to tables, and holds those against the truth."""

    def __init__(self, tables: Iterable[RandomTable]) -> None:
        self._tables = {table.name: table for table in tables}
        self.rows: dict[str, list[dict[str, Text]]] = {
            name: [] for name in self._tables
        }
        self.changes = 0

    def take(self, entry: Entry) -> bool:
        """Apply an entry; a row that changes has to be as it was left."""
        if entry.entry_type != EntryType.ROWDATA:
            return True
        change = entry.row_change()
        for row in change.row_datas:
            rows = self.rows[entry.header.table_name]
            table = self._tables[entry.header.table_name]
            before = _values(table, row.before_columns)
            after = _values(table, row.after_columns)
            self.changes += 1
            old: dict[str, Text] = {}
            if change.event_type != EventType.INSERT:
                old = _found(rows, before)
                rows.remove(old)
            if change.event_type != EventType.DELETE:
                new = old | after
                for column in table.columns:
                    # MariaDB leaves virtual ones out of images that are not full.
                    if column.kind.generated and column.name not in after:
                        new.pop(column.name, None)
                rows.append(new)
        return True

    def differences(self, truth: dict[str, list[dict[str, Text]]]) -> list[str]:
        """Return one sentence for each row that one side has alone."""
        found = []
        for name, rows in self.rows.items():
            left = list(truth[name])
            definitions = {
                c.name: c.kind.definition for c in self._tables[name].columns
            }
            for row in rows:
                known = {key: row[key] for key in row if key in definitions}
                match = next((r for r in left if known.items() <= r.items()), None)
                if match is None:
                    found.append(
                        f"{name}: only decoded: {_nearest(known, left, definitions)}"
                    )
                else:
                    left.remove(match)
            found += [f"{name}: only on the server: {row}"[:2000] for row in left]
        return found


def _values(table: RandomTable, columns: Iterable[Column]) -> dict[str, Text]:
    normal = {column.name: column.kind.normal for column in table.columns}
    return {
        column.name: column.text
        if column.text is None or column.name not in normal
        else normal[column.name](column.text)
        for column in columns
    }


def _found(rows: list[dict[str, Text]], before: dict[str, Text]) -> dict[str, Text]:
    """Return the row that has all values of a before image."""
    for row in rows:
        if all(row.get(name, value) == value for name, value in before.items()):
            return row
    raise AssertionError(f"no row is {before} of {rows}")


def _nearest(
    row: dict[str, Text], rows: list[dict[str, Text]], definitions: dict[str, str]
) -> str:
    """Say in which columns a row differs from the one that is most like it."""
    if not rows:
        return str(row)[:2000]
    best = max(rows, key=lambda other: len(row.items() & other.items()))
    unlike = [
        f"{name} ({definitions[name][:60]}): {row[name]!r:.300} vs {best[name]!r:.300}"
        for name in row
        if row[name] != best[name]
    ]
    return "; ".join(unlike)
