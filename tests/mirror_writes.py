"""Random writes for a mirror: all types, with and without a key, while tables change.

Several writers have transactions open at the same time; one of them also changes
tables. A source that is killed is waited for: what became of the statement at hand is
asked of the tables. Leaves out what the writes are compared with.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import threading
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pymysql
from fix_pipeline import UNIT_S
from random_columns import EXTRAS, ORDINARY
from random_schema import NAMES, RandomColumn, RandomTable, random_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import PrivateServer

TABLES_MAX = 7
COLUMNS_MAX = 40
WRITERS = 3
PAUSE_S = 0.05  # between two transactions of a writer
HELD_S = 0.5  # that a transaction is held open, now and then
BACK_S = 0.2  # between two looks whether the source is back
PATIENCE_S = 12 * UNIT_S
SESSION = "SET SESSION sql_mode = '', time_zone = '+00:00', lock_wait_timeout = 20"
# A table that changed meanwhile, a deadlock, a lock that was waited for too long, a
# table that is just being changed.
_PASSING = (1054, 1136, 1146, 1205, 1213, 1412, 1317, 1969)
_TOO_LARGE = (1071, 1117, 1118)
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

Tables = dict[str, RandomTable]


class MirrorLoad:
    """Writes to tables of one schema on threads of its own; a context manager."""

    def __init__(
        self,
        server: PrivateServer,
        schema: str,
        rng: random.Random,
        *,
        statements: float = 0.03,
    ) -> None:
        """Make two tables with every type, one of them without a key, and two more.

        `statements`: the share of the first writer's transactions that a statement on
        a table stands before.
        """
        self.server = server
        self.schema = schema
        self.did: Counter[str] = Counter()
        self.commits = 0
        self._rng = rng
        self._statements = statements
        self._numbers = itertools.count(1)
        self._tables: Tables = {}
        self._ever: dict[str, list[RandomTable]] = {}  # what a name may have been
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        with self._connect() as connection:
            self._make(connection, partial(self._with_every_type, key=True))
            self._make(connection, partial(self._with_every_type, key=False))
            for _ in range(2):
                self._make(connection, self._any_table)

    def __enter__(self) -> Self:
        self._threads = [
            threading.Thread(
                target=self._run, args=(number, random.Random(self._rng.random()))
            )
            for number in range(WRITERS)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def write(self, count: int) -> None:
        """Write so many transactions on this thread, before others do."""
        with self._connect() as connection:
            for _ in range(count):
                self._transaction(connection, self._rng)

    @property
    def is_well(self) -> bool:
        """Whether all writers write."""
        return not self._errors

    # --- writers ----------------------------------------------------------------------

    def _run(self, number: int, rng: random.Random) -> None:
        connection: Any = None
        try:
            while not self._stop.wait(PAUSE_S * rng.random() * 2):
                try:
                    connection = connection or self._connect()
                    if number == 0 and rng.random() < self._statements:
                        self._change(connection, rng)
                    self._transaction(connection, rng)
                except (OSError, pymysql.err.MySQLError) as error:
                    if is_passing(error):
                        with contextlib.suppress(pymysql.err.MySQLError):
                            connection.rollback()
                        self.did["a transaction that failed"] += 1
                    elif is_lost(error):
                        connection = None
                    else:
                        raise
        except BaseException as error:  # noqa: BLE001  # raised by who ends the load
            self._errors.append(error)

    def _transaction(self, connection: Any, rng: random.Random) -> None:
        statements = [self._statement(rng) for _ in range(rng.choice((1, 1, 2, 3, 6)))]
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for statement in statements:
                cursor.execute(statement)
            if rng.random() < 0.1:
                self._stop.wait(HELD_S * rng.random())
            cursor.execute(rng.choice(("COMMIT",) * 6 + ("ROLLBACK",)))
        self.commits += 1

    def _statement(self, rng: random.Random) -> str:
        """Return a statement that changes rows of a table."""
        table = rng.choice(list(self._tables.values()))
        choice = rng.random()
        order = f"ORDER BY RAND({rng.randrange(1000)}) LIMIT {rng.randint(1, 4)}"
        if choice < 0.45:
            return table.insert(rng)
        if choice < 0.5:
            names = ", ".join(each.quoted for each in written(table))
            return (
                f"REPLACE INTO {table.quoted} ({names}) SELECT {names}"
                f" FROM {table.quoted} {order}"
            )
        if choice < 0.8:
            return table.update(rng).rpartition(" LIMIT ")[0] + f" {order}"
        return f"DELETE FROM {table.quoted} {order}"

    def _connect(self) -> Any:
        """Return a connection, once the source is there."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.server.connect(init_command=SESSION, database=self.schema)
            except (OSError, pymysql.err.OperationalError) as error:
                if self._stop.wait(BACK_S) or time.monotonic() > give_up_at:
                    raise ConnectionError(str(error)) from error

    # --- tables that change -----------------------------------------------------------

    def _change(self, connection: Any, rng: random.Random) -> None:
        """Change a table, and take note of what it is then."""
        what, statements, after = self._chosen(rng)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        except (OSError, pymysql.err.MySQLError) as error:
            lost = is_lost(error)
            self.did[f"{what} that {'was cut short' if lost else 'was refused'}"] += 1
            with self._connect() as again:
                self._tables = self._of_now(again)
            if lost:
                raise
            return
        self._tables = after
        self.did[what] += 1

    def _of_now(self, connection: Any) -> Tables:
        """Return the tables that the server has, known by the names of their columns.

        A type may be taken for that of before or behind a statement: values are
        converted then.
        """
        cursor = connection.cursor()
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE"
            " table_schema = %s ORDER BY table_name, ordinal_position",
            (self.schema,),
        )
        names: dict[str, list[str]] = {}
        for table, column in cursor.fetchall():
            names.setdefault(table, []).append(column)
        found = {}
        for name, columns in names.items():
            candidates = self._ever.get(name, [])
            for table in reversed(candidates):
                if [each.name for each in table.columns] == columns:
                    found[name] = table
                    break
            else:
                told = [[c.name for c in each.columns] for each in candidates]
                raise AssertionError(f"{name} has {columns}, which is none of {told}")
        return found

    def _chosen(self, rng: random.Random) -> tuple[str, list[str], Tables]:
        """Return a name for a change, its statements, and all tables behind it."""
        makers: list[Callable[..., Any]] = [
            self._add, self._add, self._drop, self._rename, self._widen, self._widen,
            self._move, self._empty, self._empty, self._retype, self._other_key,
            self._new_table, self._rename_table, self._drop_table, self._swap,
        ]  # fmt: skip
        while True:
            table = rng.choice(list(self._tables.values()))
            made = rng.choice(makers)(rng, table)
            if made is None:
                continue
            what, statements, changed = made
            after = {n: t for n, t in self._tables.items() if n != table.name}
            after |= {each.name: each for each in changed}
            for each in changed:
                self._ever.setdefault(each.name, []).append(each)
            return what, statements, after

    def _add(self, rng: random.Random, table: RandomTable) -> Any:
        if len(table.columns) >= COLUMNS_MAX:
            return None
        makers = (*ORDINARY, *EXTRAS[self.server.flavour])
        kind = rng.choice(makers)(rng, self.server.flavour)
        column = RandomColumn(self._column_name(rng), kind, rng.random() < 0.6)
        default = f" DEFAULT {column.literal(rng)}" if rng.random() < 0.4 else ""
        place = rng.randint(0, len(table.columns))
        columns = [*table.columns[:place], column, *table.columns[place:]]
        where = f"AFTER {columns[place - 1].quoted}" if place else "FIRST"
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
        if is_read_by_others(table, column):
            return None
        new = replace(column, name=self._column_name(rng))
        sql = altered(table, f"RENAME COLUMN {column.quoted} TO {new.quoted}")
        return "a column with another name", [sql], [with_column(table, column, new)]

    def _widen(self, rng: random.Random, table: RandomTable) -> Any:
        column = rng.choice(table.columns)
        definition = wider(column.kind.definition)
        if definition is None or is_read_by_others(table, column):
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

    def _retype(self, rng: random.Random, table: RandomTable) -> Any:
        column = self._free_column(rng, table)
        if column is None:
            return None
        kind = rng.choice(ORDINARY)(rng, self.server.flavour)
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
        column = rng.choice(keys)
        new = replace(column, nullable=False)
        changed = replace(with_column(table, column, new), key=[new])
        sql = f"MODIFY COLUMN {defined(new)}, ADD PRIMARY KEY ({new.quoted})"
        empty = f"TRUNCATE TABLE {table.quoted}"  # rows may have equal values
        return "a key that comes", [empty, altered(table, sql)], [changed]

    def _new_table(self, rng: random.Random, table: RandomTable) -> Any:
        if len(self._tables) >= TABLES_MAX:
            return None
        new = self._any_table()
        return "a new table", [new.create(), new.insert(rng)], [table, new]

    def _rename_table(self, rng: random.Random, table: RandomTable) -> Any:
        new = replace(table, name=self._table_name())
        return (
            "a table with another name",
            [f"RENAME TABLE {table.quoted} TO {new.quoted}"],
            [new],
        )

    def _drop_table(self, rng: random.Random, table: RandomTable) -> Any:
        if len(self._tables) < TABLES_MAX - 2:
            return None
        drop = f"DROP TABLE {table.quoted}"
        if rng.random() < 0.5:
            return "a table that is dropped", [drop], []
        new = replace(self._any_table(), name=table.name)
        return "a table that is made anew", [drop, new.create()], [new]

    def _swap(self, rng: random.Random, table: RandomTable) -> Any:
        """Fill a new table and have it take the place of the old one, as tools do."""
        if len(self._tables) >= TABLES_MAX:
            return None
        new = replace(table, name=self._table_name())
        old = replace(table, name=self._table_name())
        for each in (new, old):
            self._ever[each.name] = [each]
        names = ", ".join(each.quoted for each in written(table))
        return (
            "a table that takes another's place",
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
            and not each.kind.generated
            and not is_read_by_others(table, each)
        ]
        return rng.choice(free) if len(free) > 1 else None

    def _column_name(self, rng: random.Random) -> str:
        return rng.choice(NAMES).format(n=next(self._numbers) + 100)

    def _table_name(self) -> str:
        return f"t{next(self._numbers)}"

    def _any_table(self) -> RandomTable:
        return random_table(
            self._rng,
            self.schema,
            next(self._numbers),
            self.server.flavour,
            extras=self._rng.random() < 0.5,
        )

    def _with_every_type(self, *, key: bool) -> RandomTable:
        makers = [*dict.fromkeys(ORDINARY), *EXTRAS[self.server.flavour]]
        columns = [
            RandomColumn(
                self._column_name(self._rng),
                maker(self._rng, self.server.flavour),
                self._rng.random() < 0.7,
            )
            for maker in makers
        ]
        keys = [each for each in columns if each.kind.is_key]
        chosen = self._rng.sample(keys, 2) if key else []
        for each in chosen:
            each.nullable = False
        return RandomTable(self.schema, self._table_name(), columns, chosen)

    def _make(self, connection: Any, maker: Callable[[], RandomTable]) -> None:
        while True:
            table = maker()
            try:
                connection.cursor().execute(table.create())
            except pymysql.err.OperationalError as error:
                if error.args[0] not in _TOO_LARGE:
                    raise
                continue
            self._tables[table.name] = table
            self._ever[table.name] = [table]
            return


def is_lost(error: BaseException) -> bool:
    """Tell whether the source went away."""
    if isinstance(error, pymysql.err.OperationalError | pymysql.err.InterfaceError):
        number = error.args[0] if error.args else 0
        return number in (0, 1053, 1079, 2003, 2006, 2013, 2014, 1927)
    return isinstance(error, OSError)


def is_passing(error: BaseException) -> bool:
    """Tell whether a transaction failed as some do beside others."""
    is_ours = isinstance(error, pymysql.err.MySQLError) and bool(error.args)
    return is_ours and error.args[0] in _PASSING


def written(table: RandomTable) -> list[RandomColumn]:
    """Return the columns that values can be given to."""
    return [each for each in table.columns if not each.kind.generated]


def is_read_by_others(table: RandomTable, column: RandomColumn) -> bool:
    """Tell whether a generated column is made of this one, or it is one."""
    return column.kind.generated or any(
        each.kind.generated and column.quoted in each.kind.definition
        for each in table.columns
    )


def with_column(
    table: RandomTable, old: RandomColumn, new: RandomColumn
) -> RandomTable:
    """Return a table with another column in the place of one."""
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
