"""Random writes for a mirror: all types, with and without a key, while tables change.

Several writers have transactions open at the same time; one of them also changes
tables. A source that is killed is waited for: what became of the statement at hand is
asked of the tables. Leaves out how tables change (`random_table_changes`), and what the
writes are compared with.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pymysql
from fix_pipeline import UNIT_S
from random_table_changes import TableChanges, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from random_schema import RandomTable
    from servers import PrivateServer

WRITERS = 3
PAUSE_S = 0.05  # between two transactions of a writer
HELD_S = 0.5  # that a transaction is held open, now and then
BACK_S = 0.2  # between two looks whether the source is back
PATIENCE_S = 12 * UNIT_S
SESSION = "SET SESSION sql_mode = '', time_zone = '+00:00', lock_wait_timeout = 20"
FAILED = "a transaction that failed"
_SYNTAX = 1064
_TOO_LARGE = (1071, 1117, 1118)


class MirrorLoad:
    """Writes to tables of one schema on threads of its own; a context manager."""

    def __init__(
        self,
        server: PrivateServer,
        schema: str,
        rng: random.Random,
        *,
        statements: float = 0.03,
        prepared: float = 0.0,
    ) -> None:
        """Make two tables with every type, one of them without a key, and two more.

        `statements`: the share of the first writer's transactions that a statement on
        a table stands before. `prepared`: the share of all that are of XA.
        """
        self.server = server
        self.schema = schema
        self.did: Counter[str] = Counter()
        self.commits = 0
        self._rng = rng
        self._statements = statements
        self._prepared = prepared
        self._changes = TableChanges(server.flavour, schema, rng)
        self._stop = threading.Event()
        self._changed = threading.Condition()  # guards the next two
        self._rests = False
        self._busy = 0  # writers that are amid something
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        if prepared and server.flavour == "mysql":  # as copies wait for their end
            server.execute(f"GRANT XA_RECOVER_ADMIN ON *.* TO '{server.user}'@'%'")
        with self._connect() as connection:
            self._make(connection, partial(self._changes.with_every_type, key=True))
            self._make(connection, partial(self._changes.with_every_type, key=False))
            for _ in range(2):
                self._make(connection, self._changes.any_table)

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
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        if self._prepared:
            with self._connect() as connection:
                end_prepared(connection)
        if self._errors:
            raise self._errors[0]
        failed = self.did[FAILED]
        assert failed < self.commits / 2, f"{failed} failed, {self.commits} did not"

    def write(self, count: int) -> None:
        """Write so many transactions on this thread, before others do."""
        with self._connect() as connection:
            for _ in range(count):
                self._transaction(connection, self._rng)

    @contextlib.contextmanager
    def rest(self) -> Iterator[None]:
        """Have no writer write inside; the server may be another one afterwards."""
        with self._changed:
            self._rests = True
            assert self._changed.wait_for(lambda: self._busy == 0, PATIENCE_S)
        yield
        with self._changed:
            self._rests = False
            self._changed.notify_all()

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
                    with self._writing():
                        if connection is None:
                            connection = self._connect()
                            end_prepared(connection, f"{number}-")
                        if number == 0 and rng.random() < self._statements:
                            self._change(connection, rng)
                        if rng.random() < self._prepared:
                            xid = f"{number}-{rng.randrange(10)}"
                            self._prepared_transaction(connection, rng, xid)
                        else:
                            self._transaction(connection, rng)
                except (OSError, pymysql.err.MySQLError) as error:
                    if is_refused(error):
                        with contextlib.suppress(pymysql.err.MySQLError):
                            connection.rollback()
                        self.did[FAILED] += 1
                    elif is_lost(error):
                        connection = None
                    else:
                        raise
        except BaseException as error:  # noqa: BLE001  # raised by who ends the load
            self._errors.append(error)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Wait until nobody needs a rest, which waits until this is left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._rests or self._stop.is_set())
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

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

    def _prepared_transaction(
        self, connection: Any, rng: random.Random, xid: str
    ) -> None:
        """Prepare one of XA, and end it one way or the other, perhaps after a while."""
        end = rng.choice(("COMMIT", "ROLLBACK"))
        with connection.cursor() as cursor:
            cursor.execute(f"XA START '{xid}'")
            try:
                for _ in range(rng.randint(1, 3)):
                    cursor.execute(self._statement(rng))
                cursor.execute(f"XA END '{xid}'")
                cursor.execute(f"XA PREPARE '{xid}'")
            except pymysql.err.MySQLError:
                for sql in (f"XA END '{xid}'", f"XA ROLLBACK '{xid}'"):
                    with contextlib.suppress(pymysql.err.MySQLError):
                        cursor.execute(sql)
                raise
            self._stop.wait(HELD_S * rng.random())
            cursor.execute(f"XA {end} '{xid}'")
        self.did[f"XA {end}"] += 1
        self.commits += 1

    def _statement(self, rng: random.Random) -> str:
        """Return a statement that changes rows of a table."""
        table = rng.choice(list(self._changes.tables.values()))
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
        what, statements, after = self._changes.chosen(rng)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        except (OSError, pymysql.err.MySQLError) as error:
            lost = is_lost(error)
            self.did[f"{what} that {'was cut short' if lost else 'was refused'}"] += 1
            with self._connect() as again:
                self._changes.tables = self._changes.of_now(again.cursor())
            if lost:
                raise
            return
        self._changes.tables = after
        self.did[what] += 1

    def _make(self, connection: Any, maker: Callable[[], RandomTable]) -> None:
        while True:
            table = maker()
            try:
                connection.cursor().execute(table.create())
            except pymysql.err.OperationalError as error:
                if error.args[0] not in _TOO_LARGE:
                    raise
                continue
            self._changes.tables[table.name] = table
            self._changes.ever[table.name] = [table]
            return


def end_prepared(connection: Any, prefix: str = "") -> None:
    """Roll back what a source that was killed has left prepared, by its name."""
    with connection.cursor() as cursor:
        cursor.execute("XA RECOVER")
        for *_, name in cursor.fetchall():
            xid = name.decode() if isinstance(name, bytes) else name
            if xid.startswith(prefix):
                cursor.execute(f"XA ROLLBACK '{xid}'")


def is_lost(error: BaseException) -> bool:
    """Return whether the source went away."""
    if isinstance(error, pymysql.err.OperationalError | pymysql.err.InterfaceError):
        number = error.args[0] if error.args else 0
        return number in (0, 1053, 1079, 2003, 2006, 2013, 2014, 1927)
    return isinstance(error, OSError)


def is_refused(error: BaseException) -> bool:
    """Return whether the source refused a statement, as some are beside others.

    The table changed meanwhile, there was a deadlock, or a value does not fit.
    """
    is_ours = isinstance(error, pymysql.err.MySQLError) and bool(error.args)
    return is_ours and not is_lost(error) and error.args[0] != _SYNTAX
