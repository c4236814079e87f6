"""One transaction of a writer: its statements, the rows they changed, its end.

All rows are asked for before and after each statement, in the transaction itself. Who
uses it has locked the tables until it has ended.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pymysql

from soak.ledger import ID, TX, N, State, plain
from soak.texts import reading_of

if TYPE_CHECKING:
    import random
    import threading
    from collections.abc import Iterator

    from random_schema import RandomColumn, RandomTable
    from servers import PrivateServer

    from soak.ledger import Change, Item, Ledger, Values
    from soak.texts import Reading

SESSION = "SET SESSION sql_mode = '', time_zone = '+00:00', lock_wait_timeout = 20"
# The servers have READ COMMITTED, for what replicas execute.
ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
BACK_S = 0.2  # between two looks whether the source is back
PATIENCE_S = 240.0
CLOSED = (0, 1053, 1079, 1927, 2003, 2006, 2013, 2014)
READ_TIMEOUT_S = 90  # a source may be stopped for less


class Lost(Exception):  # noqa: N818  # it reads as what it says
    """The source went away; all that was started is settled."""


def is_lost(error: BaseException) -> bool:
    """Return whether the source went away."""
    if isinstance(error, pymysql.err.OperationalError | pymysql.err.InterfaceError):
        return (error.args[0] if error.args else 0) in CLOSED
    return isinstance(error, OSError)


def connect(server: PrivateServer, stop: threading.Event) -> Any:
    """Return a connection once the source is there. Raises ConnectionError."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection = server.connect(
                init_command=SESSION,
                read_timeout=READ_TIMEOUT_S,
                max_allowed_packet=64 << 20,
            )
            with connection.cursor() as cursor:
                cursor.execute(ISOLATION)
        except (OSError, pymysql.err.OperationalError) as error:
            if time.monotonic() > give_up_at:
                raise ConnectionError(str(error)) from error
            stop.wait(BACK_S)
            time.sleep(BACK_S if stop.is_set() else 0)
        else:
            return connection


class Transaction:
    """Writes on a connection that is given with `on`, then ends with `end`."""

    def __init__(
        self,
        server: PrivateServer,
        schema: str,
        ledger: Ledger,
        stop: threading.Event,
        number: int,
    ) -> None:
        self.outcome = "transactions that changed nothing"
        self._server, self._schema, self._ledger = server, schema, ledger
        self._stop, self._number = stop, number
        self._rows: list[list[Change]] = []
        self._statements = 0
        self._cursor: Any = None
        self._xa = ""
        self._prepared: Item | None = None
        self._readings: dict[str, Reading] = {}

    @contextlib.contextmanager
    def on(self, connection: Any, *, xa: bool, shift_s: float) -> Iterator[None]:
        """Write inside. Raises Lost when the source goes away; it is settled then."""
        item: Item | None = None
        has_begun = False
        try:
            with connection.cursor() as self._cursor:
                now = f"{time.time() - shift_s:.0f}" if shift_s else "DEFAULT"
                self._cursor.execute(f"SET timestamp = {now}")
                if xa:
                    self._xa = f"soak-{self._number}"
                self._cursor.execute(f"XA START '{self._xa}'" if xa else "BEGIN")
                has_begun = True
                yield
        except (OSError, pymysql.err.MySQLError) as error:
            item = self._prepared
            if not is_lost(error):
                if not has_begun:
                    raise
                self._back_out(connection)
                self.outcome = f"transactions refused ({error.args[0]})"
                if item is not None:
                    raise
                return
            with contextlib.suppress(pymysql.err.Error):
                connection.close()
            self._settle(item)
            self.outcome = "transactions that were cut off"
            raise Lost from error

    def write(
        self, table: RandomTable, rng: random.Random, *, rows_max: int, big: int
    ) -> None:
        """Run a statement that inserts, changes or deletes some rows of a table."""
        cursor, name = self._cursor, table.quoted
        if table.name not in self._readings:
            self._readings[table.name] = reading_of(cursor, self._schema, table.name)
        cursor.execute(f"SELECT count(*) FROM {name}")
        ((count,),) = cursor.fetchall()
        cursor.execute(
            f"SELECT {ID} FROM {name} ORDER BY RAND({rng.randrange(1000)})"
            f" LIMIT {rng.randint(1, 4)}"
        )
        ids = [int(each) for (each,) in cursor.fetchall()]
        self._statements += 1
        choice = rng.random()
        if not ids or (choice < 0.5 and count < rows_max):
            ids = self._insert(table, rng, big)
        elif choice < 0.8 or self._xa:  # a delete is not known by a number of ours
            # It comes also where XA rolls it back; then it might come twice.
            before = self._select(table, ids)
            self._update(table, ids, rng)
            self._compare(table, before, self._select(table, ids))
            return
        else:
            before = self._select(table, ids)
            cursor.execute(f"DELETE FROM {name} WHERE {ID} IN ({_listed(ids)})")
            self._compare(table, before, self._select(table, ids))
            return
        self._compare(table, {}, self._select(table, ids))

    def end(self, rng: random.Random) -> None:
        """Commit it, or now and then roll it back."""
        cursor = self._cursor
        if self._xa:
            self._end_xa(rng)
            return
        if rng.random() < 0.1 or not self._rows:
            cursor.execute("ROLLBACK")
            self.outcome = "transactions rolled back"
            return
        self._prepared = self._ledger.note_rows(self._rows)
        cursor.execute("COMMIT")
        self._ledger.settle(self._prepared, State.DONE)
        self.outcome = "transactions"

    def _end_xa(self, rng: random.Random) -> None:
        """Prepare it: its rows are in the binlog from then on, whatever its end is."""
        cursor = self._cursor
        cursor.execute(f"XA END '{self._xa}'")
        if not self._rows:
            cursor.execute(f"XA ROLLBACK '{self._xa}'")
            return
        self._prepared = self._ledger.note_rows(self._rows)
        cursor.execute(f"XA PREPARE '{self._xa}'")
        self._ledger.settle(self._prepared, State.DONE)
        self._stop.wait(rng.random() / 2)
        how = rng.choice(("COMMIT", "ROLLBACK"))
        cursor.execute(f"XA {how} '{self._xa}'")
        self.outcome = f"transactions of XA, {how.lower()}"

    # --- rows -------------------------------------------------------------------------

    def _insert(self, table: RandomTable, rng: random.Random, big: int) -> list[int]:
        count = rng.choice((1, 1, 2, 5))
        ids = [self._number * 100 + self._statements * 10 + n for n in range(count)]
        columns = [c for c in table.columns if not c.kind.generated]
        rows = ", ".join(
            f"({', '.join(self._literal(c, rng, each, big) for c in columns)})"
            for each in ids
        )
        names = ", ".join(each.quoted for each in columns)
        self._cursor.execute(
            f"INSERT IGNORE INTO {table.quoted} ({names}) VALUES {rows}"
        )
        return ids

    def _update(self, table: RandomTable, ids: list[int], rng: random.Random) -> None:
        columns = [c for c in table.columns if not c.kind.generated]
        free = [c for c in columns if c.name not in (ID, TX, N)]
        chosen = rng.sample(free, rng.randint(1, len(free)))
        sets = ", ".join(f"{c.quoted} = {c.literal(rng)}" for c in chosen)
        self._cursor.execute(
            f"UPDATE IGNORE {table.quoted} SET {sets}, {TX} = {self._number},"
            f" {N} = {self._statements} WHERE {ID} IN ({_listed(ids)})"
        )

    def _literal(
        self, column: RandomColumn, rng: random.Random, number: int, big: int
    ) -> str:
        ours = {ID: number, TX: self._number, N: self._statements}
        if column.name in ours:
            return str(ours[column.name])
        if column.name == "soak_pad" and big:
            return f"REPEAT('soak{number % 97}', {big // 6})"
        return column.literal(rng)

    def _select(self, table: RandomTable, ids: list[int]) -> dict[str, Values]:
        """Return rows by their numbers, as canal shows them."""
        reading = self._readings[table.name]
        self._cursor.execute(
            f"SELECT {reading.select} FROM {table.quoted}"
            f" WHERE {ID} IN ({_listed(ids)})"
        )
        rows = [reading.values(row) for row in self._cursor.fetchall()]
        return {str(row[ID]): row for row in rows}

    def _compare(
        self, table: RandomTable, before: dict[str, Values], after: dict[str, Values]
    ) -> None:
        """Note what a statement changed."""
        name = f"{self._schema}.{table.name}"
        documents = self._readings[table.name].documents
        changes = []
        for number in before.keys() | after.keys():
            old, new = before.get(number, {}), after.get(number, {})
            if plain(old, documents) == plain(new, documents):
                continue
            kind = "INSERT" if not old else "UPDATE" if new else "DELETE"
            changes.append(self._ledger.change(name, kind, old, new, documents))
        if changes:
            self._rows.append(changes)

    # --- what goes wrong --------------------------------------------------------------

    def _back_out(self, connection: Any) -> None:
        """Undo all after a statement that the source refused.

        Otherwise the next transaction of the connection would commit it.
        """
        undo = ["ROLLBACK"]
        if self._xa:
            undo = [f"XA END '{self._xa}'", f"XA ROLLBACK '{self._xa}'"]
        with connection.cursor() as cursor:  # that of the transaction is closed
            for sql in undo:
                with contextlib.suppress(pymysql.err.MySQLError):
                    cursor.execute(sql)
        if self._prepared is not None and self._prepared.state is State.OPEN:
            self._ledger.settle(self._prepared, State.UNCOMMITTED)

    def _settle(self, item: Item | None) -> None:
        """Find out what became of the end once the source is back."""
        if item is None and not self._xa:
            return
        with connect(self._server, self._stop) as connection:
            cursor = connection.cursor()
            prepared = self._xa and self._is_prepared(cursor)
            if item is not None and item.state is State.OPEN:
                done = prepared or self._is_there(cursor, item)
                self._ledger.settle(item, State.DONE if done else State.UNCOMMITTED)
            if prepared:
                cursor.execute(f"XA ROLLBACK '{self._xa}'")

    def _is_prepared(self, cursor: Any) -> bool:
        cursor.execute("XA RECOVER")
        return any(_text(row[-1]) == self._xa for row in cursor.fetchall())

    def _is_there(self, cursor: Any, item: Item) -> bool:
        """Return whether a row is as its last change left it."""
        # The last change of all is also the last one of its row.
        change = [each for rows in item.rows for each in rows][-1]
        table = change.identity.table.partition(".")[2]
        cursor.execute(
            f"SELECT {TX} FROM `{self._schema}`.`{table}` WHERE {ID} = {_id_of(change)}"
        )
        found = [str(each) for (each,) in cursor.fetchall()]
        if change.identity.after is None:
            return not found
        return found == [change.identity.after[1]]


def _id_of(change: Change) -> str:
    version = change.identity.after or change.identity.before
    assert version is not None
    return version[0]


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
