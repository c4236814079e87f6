"""Tables that the source dropped and may have recreated since.

A separate thread queries the database, as that may take as long as a connection
attempt, and the main loop must not wait. Leaves out what is done with a recreated table
(`run`).
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from canal_server.errors import SourceError
from canal_server.messages.mirror import mirror_stream_messages
from canal_server.mirror.settings import selected_tables
from canal_server.mysql.control_connection import ControlConnection
from canal_server.runtime.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 60.0


class DroppedTables:
    """Finds recreated tables; `poll` is for one thread."""

    def __init__(
        self,
        settings: MirrorSettings,
        stop: Stop,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._now = now
        self._lock = threading.Lock()  # guards the names and the connection
        self._connection: ControlConnection | None = None
        self._is_closed = False
        self._names: set[TableName] = set()
        self._query: set[TableName] = set()
        self._answer: Future[set[TableName]] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dropped")
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        self._due = 0.0

    def add(self, name: TableName) -> None:
        """Add a dropped table; thread-safe."""
        with self._lock:
            self._names.add(name)

    def poll(self) -> set[TableName]:
        """Return the recreated tables; starts a query if one is due."""
        if self._answer is not None:
            return self._collect() if self._answer.done() else set()
        if self._now() >= self._due:
            with self._lock:
                self._query, self._names = self._names, set()
            if self._query:
                self._answer = self._pool.submit(self._present)
        return set()

    @property
    def is_waiting(self) -> bool:
        """Whether it is not known yet of a dropped table whether it exists again."""
        with self._lock:
            return bool(self._names) or self._answer is not None

    def close(self) -> None:
        """End the query's thread; the stop was requested before."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.abort()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _collect(self) -> set[TableName]:
        """Collect the result of the query; after a failure it is repeated later."""
        assert self._answer is not None
        answer, self._answer = self._answer, None
        try:
            found = answer.result()
        except SourceError as error:
            now = self._now()
            delay_s = self._backoff.delay_s(now)
            self._due = now + delay_s
            with self._lock:
                self._names |= self._query
            mirror_stream_messages.MIRROR_TABLES_NOT_LISTED.log(log, error, delay_s)
            return set()
        self._backoff.reset()
        return self._query & found

    def _present(self) -> set[TableName]:
        connection = ControlConnection(self._settings.source.access, self._stop)
        with self._lock:
            self._connection = connection
            if self._is_closed:
                connection.abort()
        with connection:
            return selected_tables.present(connection, self._settings)
