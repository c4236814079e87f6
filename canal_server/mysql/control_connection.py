"""The control connection: queries to the source next to the binlog stream."""

from __future__ import annotations

import contextlib
import select
import threading
from typing import TYPE_CHECKING, TypeVar

from canal_server.errors import ConnectionLost
from canal_server.mysql.login_session import Row, Session
from canal_server.mysql.sockets import Breaker
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from canal_server.mysql.source_settings import Access


_Answer = TypeVar("_Answer")

_COM_PING = 0x0E


class ControlConnection:
    """A connection for statements, in autocommit mode and utf8mb4.

    For one thread at a time; only `abort` is for other threads. As a context manager it
    is open inside.
    """

    def __init__(self, access: Access, stop: Stop | None = None) -> None:
        """Store how to connect; `stop` ends the wait for a connection."""
        self.access = access
        self._stop = stop
        self._breaker = Breaker()
        self._session: Session | None = None

    def open(self) -> None:
        """Connect and log in; does nothing when open.

        Raises ConnectionLost when the server cannot be reached, SourceRefused when it
        refuses the login, SourceError otherwise (such as "too many connections").
        """
        if self._session is None:
            self._session = Session(self.access, self._breaker, self._stop)

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement and return its rows; `%s` is a placeholder.

        Without parameters a `%` in the statement is an ordinary character. Raises the
        subclasses of SourceError; after ConnectionLost the connection must be reopened.
        """
        return self._asking(lambda session: session.query(sql, parameters))

    def query_named(self, sql: str) -> list[dict[str, object]]:
        """Run one statement and return its rows by column name; as `query`."""
        return self._asking(lambda session: session.query_named(sql))

    def account(self) -> tuple[str, str]:
        """Return name and host of the account that the server matched."""
        return self._asking(lambda session: session.account())

    def ping(self) -> None:
        """Check that the server answers; errors as those of `query`."""
        self._asking(lambda session: session.command(_COM_PING, b""))

    def _asking(self, ask: Callable[[Session], _Answer]) -> _Answer:
        if self._session is None:
            raise ConnectionLost(f"{self.access.address}: the connection is not open")
        try:
            return ask(self._session)
        except ConnectionLost:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether the connection is open and not known to be broken."""
        return self._session is not None

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is a MariaDB; false when not open."""
        return self._session is not None and self._session.is_mariadb

    @property
    def server_version(self) -> str:
        """The version in the server's greeting, empty when not open."""
        return self._session.server_version if self._session else ""

    @property
    def connection_id(self) -> int:
        """The server's id of this connection, 0 when not open."""
        return self._session.connection_id if self._session else 0

    @property
    def certificate_expires_at(self) -> datetime | None:
        """When the server's certificate expires; None without TLS or when not open."""
        return self._session.certificate_expires_at if self._session else None

    def abort(self) -> None:
        """Cut the connection permanently, from any thread: a waiting call ends at once.

        The call raises ConnectionLost, and so does every later `open`.
        """
        self._breaker.cut()

    def close(self) -> None:
        """Close the connection; idempotent, `open` may follow."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextlib.contextmanager
def aborted_by(stop: Stop, control: ControlConnection) -> Iterator[None]:
    """Cut a connection when a stop is requested within the context.

    A call that waits for the server then ends at once. The thread ends with the
    context.
    """
    ended = Stop()
    poll = select.poll()
    poll.register(stop, select.POLLIN)
    poll.register(ended, select.POLLIN)

    def watch() -> None:
        poll.poll()
        if stop.requested():
            control.abort()

    watcher = threading.Thread(target=watch, name="abort of queries", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.request()
        watcher.join()
