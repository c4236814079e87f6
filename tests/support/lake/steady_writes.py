"""Rows that are written all the time, while tables change and the source is killed."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Self

import pymysql
from mirror_writes import is_lost, is_refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server

PAUSE_S = 0.1  # between two transactions


class Writes:
    """Writes rows on a thread until it is left, whatever becomes of the source.

    The tables `orders` and `events` have an `id` and an `n`; to `events`, rows are only
    added.
    """

    def __init__(self, source: Server, schema: str) -> None:
        self.commits = 0
        self._source = source
        self._schema = schema
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._errors: list[Exception] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._errors:
            raise self._errors[0]

    @contextlib.contextmanager
    def rest(self) -> Iterator[None]:
        """Have nothing written inside."""
        with self._writing:
            yield

    @property
    def is_well(self) -> bool:
        """Whether rows are still written."""
        return not self._errors

    def _run(self) -> None:
        connection: Any = None
        number = 1000
        try:
            while not self._ended.wait(PAUSE_S):
                number += 1
                try:
                    with self._writing:
                        connection = connection or self._connect()
                        self._transaction(connection, number)
                except (OSError, pymysql.err.MySQLError) as error:
                    # There may be no such table for a moment.
                    if not is_lost(error) and not is_refused(error):
                        raise
                    connection = None
        except Exception as error:  # noqa: BLE001  # raised by who ends it
            self._errors.append(error)

    def _connect(self) -> Any:
        return self._source.connect(database=self._schema)

    def _transaction(self, connection: Any, number: int) -> None:
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        cursor.execute(f"INSERT INTO events (id, n) VALUES ({number}, {number % 9})")
        cursor.execute(f"INSERT INTO orders (id, n) VALUES ({number}, 1)")
        cursor.execute(f"UPDATE orders SET n = n + 1 WHERE id % 97 = {number % 97}")
        cursor.execute(f"DELETE FROM orders WHERE id = {number - 30}")
        connection.commit()
        self.commits += 1
