"""The reply to one SELECT as a stream of raw bytes.

Leaves out packets and rows: the reader of the stream frames it. The stream starts with
the first byte that the server sends after COM_QUERY, a packet header.
"""

from __future__ import annotations

import select
import ssl
import threading
from typing import TYPE_CHECKING

from canal_server.errors import ConnectionLost
from canal_server.mysql.login_session import Session
from canal_server.mysql.sockets import Breaker
from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from canal_server.mysql.login_session import Row
    from canal_server.mysql.source_settings import Access
    from canal_server.runtime.lifecycle import Stop

_COM_QUERY = 0x03
SILENCE_MAX_S = 300.0  # until the first row of a statement, or between two


class ResultStream:
    """A connection for queries and then one large reply; cannot be reopened.

    For one thread, except `close`, which any thread may call at any time: it ends an
    `open`, a query or a receive that waits.
    """

    def __init__(
        self,
        access: Access,
        stop: Stop | None = None,
        *,
        silence_max_s: float = SILENCE_MAX_S,
    ) -> None:
        """Store how to connect; a requested `stop` ends all waiting."""
        self.access = access
        self._stop = stop
        self._silence_max_s = silence_max_s
        self._breaker = Breaker()
        self._session: Session | None = None
        self._sock: socket.socket | None = None
        self._poll = select.poll()
        # Held while a thread is inside: `close` cuts the connection first, and closes
        # the descriptor only after the last poll on it.
        self._inside = threading.Lock()

    def open(self, settings: Iterable[str] = ()) -> None:
        """Connect, log in and run the statements; raises SourceError."""
        with self._inside:
            assert self._session is None
            self._session = Session(self.access, self._breaker, self._stop)
            for statement in settings:
                self._session.query(statement)

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is a MariaDB; false when not open."""
        return self._session is not None and self._session.is_mariadb

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement before `ask` and return its rows; raises SourceError."""
        with self._inside:
            assert self._session is not None
            return self._session.query(sql, parameters)

    def ask(self, sql: str) -> None:
        """Send the SELECT whose reply is received next; raises SourceError."""
        with self._inside:
            assert self._session is not None
            self._sock = self._session.command_and_part(_COM_QUERY, sql.encode())
            self._poll.register(self._sock, select.POLLIN)
            if self._stop is not None:
                self._poll.register(self._stop, select.POLLIN)

    def receive_into(self, buffer: memoryview) -> int:
        """Receive at least one byte of the reply and return how many.

        Raises ConnectionLost when the connection breaks or is closed, when a stop is
        requested, and when nothing arrives for too long.
        """
        with self._inside:
            deadline = Deadline(self._silence_max_s)
            while True:
                count = self._receive(buffer)
                if count:
                    return count
                if count == 0 or self._sock is None:
                    raise ConnectionLost(
                        f"{self.access.address} closed the connection during a reply"
                    )
                self._wait(deadline)

    def _receive(self, buffer: memoryview) -> int | None:
        """Receive once; None when it would block."""
        if self._sock is None or self._breaker.was_cut():
            return 0
        try:
            return self._sock.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except OSError as error:
            raise ConnectionLost(
                f"the reply from {self.access.address} was cut off: {error}"
            ) from error

    def _wait(self, deadline: Deadline) -> None:
        if self._stop is not None and self._stop.requested():
            raise ConnectionLost("reading was cancelled: a stop was requested")
        left_s = deadline.remaining_s()
        assert left_s is not None
        if deadline.passed():
            raise ConnectionLost(
                f"{self.access.address} has sent nothing for {self._silence_max_s:g} s "
                "during a reply: it hangs, or the network is down"
            )
        self._poll.poll(int(left_s * 1000) + 1)

    def pause(self, seconds: float) -> None:
        """Make the server wait; raises ConnectionLost when a stop is requested."""
        if self._stop is not None and self._stop.wait(max(seconds, 0.0)):
            raise ConnectionLost("reading was cancelled: a stop was requested")
        if self._stop is None and seconds > 0:
            select.poll().poll(int(seconds * 1000) + 1)

    def close(self) -> None:
        """End the connection at once and free its descriptor; idempotent."""
        self._breaker.cut()
        with self._inside:
            session, self._session = self._session, None
            if self._sock is not None:
                self._poll.unregister(self._sock)
                self._sock.close()
                self._sock = None
            elif session is not None:
                session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
