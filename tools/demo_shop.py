"""The bookshop of the demo: what it writes into the database, and who writes it."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pymysql

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from servers import Server

TABLES = ("book", "sale")
PACE_PER_SECOND = 200
PACE_SALES = 400
BURST_SALES = 100_000
BURST_ROWS = 1000  # of one INSERT, which is one transaction
LOCK_SECONDS_MAX = 20  # for dropping the schema
JOIN_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Step:
    """Statements that one commit ends, and how many rows or statements they change."""

    sql: tuple[str, ...]
    changes: int


BOOK = (
    "CREATE TABLE book (id INT PRIMARY KEY, title TEXT, price DECIMAL(6,2), stock INT)"
)
BOOKS = (
    "INSERT INTO book VALUES (1, 'Dune', 9.95, 12), (2, 'Der Prozess', 8.25, 5),"
    " (3, '紅樓夢', 24.50, 3)"
)
OPENING = (
    Step((BOOK,), 1),
    Step((BOOKS,), 3),
    Step(("CREATE TABLE sale (id SERIAL PRIMARY KEY, book INT, pieces INT)",), 1),
    Step(
        (
            "BEGIN",
            "INSERT INTO sale (book, pieces) VALUES (1, 2), (3, 2)",
            "UPDATE book SET stock = stock - 2 WHERE id IN (1, 3)",
            "COMMIT",
        ),
        4,
    ),
    Step(("ALTER TABLE book ADD COLUMN pages INT AFTER title",), 1),
    Step(("UPDATE book SET pages = 612, price = 10.95 WHERE title = 'Dune'",), 1),
    Step(("DELETE FROM book WHERE id = 2",), 1),
)
BEFORE_THE_KILL = Step(("INSERT INTO book VALUES (4, 'Emma', 474, 7.25, 9)",), 1)
WHILE_IT_IS_AWAY = Step(("UPDATE book SET stock = stock + 20 WHERE stock < 10",), 2)


class Shop:
    """A schema of our own on a server, and one connection that writes into it.

    What is written is written by a thread, so that a client can look on; errors are
    raised by `wait`.
    """

    def __init__(self, server: Server, schema: str) -> None:
        self.schema = schema
        self._server = server
        self._connection: pymysql.Connection[Any] | None = None
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._ending = threading.Event()
        # Of each commit of the last job: when it was sent, and when it was confirmed.
        # A client may have the change before the writer has the confirmation.
        self.sent: list[float] = []
        self.committed: list[float] = []

    def open(self) -> str:
        """Make the schema and connect; returns the server's version."""
        self._server.execute(f"CREATE DATABASE {self.schema} CHARACTER SET utf8mb4")
        self._connection = self._server.connect(database=self.schema)
        return str(self._rows("SELECT VERSION() AS version")[0]["version"])

    def close(self) -> None:
        """End the writing and drop the schema."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS_MAX)
        if self._connection is not None:
            with contextlib.suppress(pymysql.err.Error):  # it may be broken
                self._connection.close()
        self._server.execute(
            f"SET SESSION lock_wait_timeout = {LOCK_SECONDS_MAX}",
            f"DROP DATABASE IF EXISTS {self.schema}",
        )

    def begin(self, step: Step) -> None:
        """Write a step; its one commit is the last statement."""

        def write() -> None:
            *before, last = step.sql
            for sql in before:
                self._execute(sql)
            self._commit(last)

        self._start(write)

    def begin_pace(self) -> None:
        """Write sales one by one, at a steady pace."""

        def write() -> None:
            begun = time.monotonic()
            for number in range(PACE_SALES):
                left_s = begun + number / PACE_PER_SECOND - time.monotonic()
                if self._ending.wait(max(0.0, left_s)):
                    return
                self._commit("INSERT INTO sale (book, pieces) VALUES (1, 1)")

        self._start(write)

    def begin_burst(self) -> None:
        """Write sales as fast as the server takes them."""
        rows = ", ".join(f"({1 + n % 4}, {1 + n % 3})" for n in range(BURST_ROWS))

        def write() -> None:
            for _ in range(BURST_SALES // BURST_ROWS):
                if self._ending.is_set():
                    return
                self._commit(f"INSERT INTO sale (book, pieces) VALUES {rows}")

        self._start(write)

    def wait(self) -> None:
        """Wait until all is written; raises what went wrong."""
        assert self._thread is not None
        self._thread.join()
        if self._error is not None:
            raise self._error

    def table(self, name: str) -> Sequence[dict[str, Any]]:
        """Return all rows of a table."""
        return self._rows(f"SELECT * FROM {name}")

    def _start(self, write: Callable[[], None]) -> None:
        def run() -> None:
            try:
                write()
            except pymysql.err.Error as error:
                self._error = error

        self.sent, self.committed = [], []
        self._thread = threading.Thread(target=run, name="shop", daemon=True)
        self._thread.start()

    def _commit(self, sql: str) -> None:
        """Send a statement that commits, and note when."""
        self.sent.append(time.monotonic())
        self._execute(sql)
        self.committed.append(time.monotonic())

    def _execute(self, sql: str) -> None:
        assert self._connection is not None
        with self._connection.cursor() as cursor:
            cursor.execute(sql)

    def _rows(self, sql: str) -> Sequence[dict[str, Any]]:
        assert self._connection is not None
        with self._connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(sql)
            return cursor.fetchall()
