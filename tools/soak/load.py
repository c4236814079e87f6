"""Writers of one source: random rows in random tables that change, noted in a ledger.

A writer locks the tables of a transaction, so that it knows their rows and columns, and
asks for both as they are before and after each statement. Where the source goes away
amid a commit it waits until it is back, and finds out what became of it.
Leaves out what tables there are (`random_table_changes`), and the ledger.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import pymysql
from random_columns import Kind
from random_schema import RandomColumn
from random_table_changes import TableChanges

from soak.ledger import ID, TX, N, State
from soak.transaction import Lost, Transaction, connect, is_lost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from random_schema import RandomTable
    from servers import PrivateServer

    from soak.ledger import Ledger

WRITERS = 3
STATEMENT_SHARE = 0.02  # of transactions that a statement on a table stands before
ASIDE_SHARE = 0.3  # of these statements: those that leave columns and rows alone
XA_SHARE = 0.02
LONG_SHARE = 0.004
LONG_S = 8.0
BIG_SHARE = 0.004
BIG_BYTES = (1 << 18, 1 << 21)
SHIFT_SHARE = 0.02  # of transactions with a time of their own
SHIFT_S = 3600
ROWS_MAX = 400  # of a table
TABLES = 5
PATIENCE_S = 180.0
TOO_LARGE = (1071, 1117, 1118)
PAD = RandomColumn(
    "soak_pad", Kind("longtext CHARACTER SET ascii", lambda _: "NULL"), nullable=True
)


def _number(name: str) -> RandomColumn:
    kind = Kind("bigint", lambda _: "0", "{c} + 0", is_key=True)
    return RandomColumn(name, kind, nullable=False)


# Statements on a table that change neither its columns nor its rows.
ASIDE = (
    "ALTER TABLE {t} COMMENT = 'number {n}'",
    "CREATE INDEX i{n} ON {t} (soak_tx)",
    "ALTER TABLE {t} ADD INDEX j{n} (soak_n, soak_tx), ALGORITHM = INPLACE",
    "ALTER TABLE {t} FORCE",
    "ALTER TABLE {t} ENGINE = InnoDB, ROW_FORMAT = DYNAMIC",
    "ALTER TABLE {t} DEFAULT CHARACTER SET latin1",
    "ALTER TABLE {t} ALTER COLUMN soak_pad SET DEFAULT NULL",
)
# The same, which clients are not given: canal has no entry for any of these.
UNSEEN = (
    "ALTER TABLE {t} PARTITION BY KEY (soak_id) PARTITIONS 3",
    "ALTER TABLE {t} REMOVE PARTITIONING",
    "ANALYZE TABLE {t}",
    "OPTIMIZE TABLE {t}",
    "CREATE OR REPLACE VIEW {v} AS SELECT soak_id, soak_tx FROM {t}",
    "DROP VIEW IF EXISTS {v}",
)
FIXED = (_number(ID), _number(TX), _number(N), PAD)


class Load:
    """Writes to one schema of a source on threads of its own; a context manager."""

    def __init__(
        self,
        server: PrivateServer,
        schema: str,
        ledger: Ledger,
        rng: random.Random,
        *,
        per_second: float,
    ) -> None:
        """Make the first tables; write about so many transactions a second."""
        self.server = server
        self.schema = schema
        self.ledger = ledger
        self.did: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self._rng = rng
        self._pause_s = WRITERS / per_second
        self._changes = TableChanges(server.flavour, schema, rng, FIXED)
        self._locks: dict[str, threading.Lock] = {}
        self._numbers = 0
        self._numbering = threading.Lock()
        self._stop = threading.Event()
        self._changed = threading.Condition()  # guards the next two
        self._rests = False
        self._busy = 0
        self._threads: list[threading.Thread] = []
        server.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
        if server.flavour == "mysql":
            server.execute(f"GRANT XA_RECOVER_ADMIN ON *.* TO '{server.user}'@'%'")
        with connect(self.server, self._stop) as connection:
            for keyed in (True, False):
                self._create(connection, self._changes.with_every_type(key=keyed))
            for _ in range(TABLES - 2):
                self._create(connection, self._changes.any_table())

    def __enter__(self) -> Self:
        for number in range(WRITERS):
            rng = random.Random(self._rng.random())
            self._threads.append(
                threading.Thread(target=self._run, args=(number, rng), daemon=True)
            )
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    @contextlib.contextmanager
    def rest(self) -> Iterator[None]:
        """Have nobody write inside; the server may be another one afterwards."""
        with self._changed:
            self._rests = True
            quiet = self._changed.wait_for(lambda: self._busy == 0, PATIENCE_S)
        try:
            if not quiet:
                raise TimeoutError(f"{self.schema}: a writer does not come to rest")
            yield
        finally:
            with self._changed:
                self._rests = False
                self._changed.notify_all()

    def tables(self) -> list[str]:
        """Return the names of the tables there are."""
        return list(self._changes.tables)

    # --- writers ----------------------------------------------------------------------

    def _run(self, number: int, rng: random.Random) -> None:
        connection: Any = None
        try:
            while not self._stop.wait(self._pause_s * rng.random() * 2):
                with self._writing():
                    try:
                        if connection is None:
                            connection = connect(self.server, self._stop)
                        if number == 0 and rng.random() < STATEMENT_SHARE * WRITERS:
                            if rng.random() < ASIDE_SHARE:
                                self._aside(connection, rng)
                            else:
                                self._statement(connection, rng)
                        self._transaction(connection, rng)
                    except Lost:
                        connection = None
        except BaseException as error:  # noqa: BLE001  # shown by the verdict
            self.errors.append(error)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._rests or self._stop.is_set())
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _new_number(self) -> int:
        with self._numbering:
            self._numbers += 1
            return self._numbers

    @contextlib.contextmanager
    def _locked(self, names: list[str]) -> Iterator[None]:
        """Keep others off tables: always in the order of their names."""
        with contextlib.ExitStack() as held:
            for name in sorted(set(names)):
                with self._numbering:
                    lock = self._locks.setdefault(name, threading.Lock())
                held.enter_context(lock)
            yield

    def _transaction(self, connection: Any, rng: random.Random) -> None:
        """Write a transaction of a random kind, of tables that nobody else writes."""
        kind = rng.random()
        is_long = kind < LONG_SHARE
        tables = list(self._changes.tables)
        count = 1 if is_long else rng.choice((1, 1, 2))
        names = rng.sample(tables, min(count, len(tables)))
        with self._locked(names):
            # One that was renamed or dropped meanwhile no longer exists.
            found = [t for n in names if (t := self._changes.tables.get(n))]
            if not found:
                return
            made = Transaction(
                self.server, self.schema, self.ledger, self._stop, self._new_number()
            )
            shift = SHIFT_S * rng.random() if rng.random() < SHIFT_SHARE else 0.0
            big = rng.randint(*BIG_BYTES) if rng.random() < BIG_SHARE else 0
            with made.on(connection, xa=rng.random() < XA_SHARE, shift_s=shift):
                for _ in range(rng.choice((1, 1, 2, 3, 5))):
                    made.write(rng.choice(found), rng, rows_max=ROWS_MAX, big=big)
                    if is_long:
                        self._stop.wait(LONG_S * rng.random() / 2)
                made.end(rng)
            for what in ("long",) * is_long + ("big",) * bool(big):
                self.did[what] += 1
            self.did[made.outcome] += 1

    # --- tables that change -----------------------------------------------------------

    def _create(self, connection: Any, table: RandomTable) -> None:
        while True:
            try:
                self._noted(connection, [table.name], table.create())
            except pymysql.err.OperationalError as error:
                if error.args[0] not in TOO_LARGE:
                    raise
                table = self._changes.any_table()
                continue
            self._changes.tables[table.name] = table
            self._changes.ever[table.name] = [table]
            return

    def _statement(self, connection: Any, rng: random.Random) -> None:
        """Change a table, and take note of what it is then."""
        what, statements, after = self._changes.chosen(rng)
        with self._locked([n for n in self._changes.ever if _names(n, statements)]):
            try:
                for sql in statements:
                    if not sql.startswith(
                        ("INSERT", "REPLACE")
                    ):  # rows are written as others are
                        concerned = [n for n in self._changes.ever if _names(n, [sql])]
                        self._noted(connection, concerned, sql)
            except (Lost, pymysql.err.MySQLError) as error:
                with connect(self.server, self._stop) as again:
                    self._changes.tables = self._changes.of_now(again.cursor())
                if isinstance(error, Lost):
                    self.did[f"{what} that was cut short"] += 1
                    raise
                self.did[f"{what} that was refused"] += 1
                return
            self._changes.tables = after
            self.did[what] += 1

    def _aside(self, connection: Any, rng: random.Random) -> None:
        """Run a statement that leaves the columns and rows of a table as they are."""
        name = rng.choice(list(self._changes.tables))
        with self._locked([name]):
            table = self._changes.tables[name]
            text = rng.choice((*ASIDE, *UNSEEN))
            view = f"`{self.schema}`.`xview`"
            sql = text.format(t=table.quoted, n=self._new_number(), v=view)
            try:
                if text in UNSEEN:
                    connection.cursor().execute(sql)
                else:
                    self._noted(connection, [name], sql)
            except (OSError, pymysql.err.MySQLError) as error:
                if is_lost(error):
                    raise Lost from error
                self.did["statements aside that were refused"] += 1
                return
            self.did["statements aside"] += 1

    def _noted(self, connection: Any, names: list[str], sql: str) -> None:
        """Run a statement on tables. Raises Lost, or what the server says."""
        tables = [f"{self.schema}.{name}" for name in names]
        item = self.ledger.note_statement(tables, sql)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"/* soak:{item.number} */ {sql}")
        except (OSError, pymysql.err.MySQLError) as error:
            if is_lost(error):
                self.ledger.settle(item, State.EITHER)
                raise Lost from error
            self.ledger.settle(item, State.UNCOMMITTED)
            raise
        self.ledger.settle(item, State.DONE)


def _names(name: str, statements: list[str]) -> bool:
    return any(f".`{name}`" in sql for sql in statements)
