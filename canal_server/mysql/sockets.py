"""TCP sockets to a source: connected without hanging, and cut from another thread."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from typing import TYPE_CHECKING

from canal_server.errors import ConnectionLost
from canal_server.runtime.lifecycle import Deadline
from canal_server.runtime.private_files import descriptor_shortage, reason_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

    from canal_server.mysql.source_settings import Access, Address
    from canal_server.runtime.lifecycle import Stop

    # The result of getaddrinfo: family, kind, protocol, name, address.
    _Found = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]

AGAIN_S = 1.0  # between two attempts to connect
ATTEMPTS_MAX = 8  # at a time
PROBES = 3  # within the time after which a link counts as dead

# A source that sends this much in this time is read in pieces of this size; each is
# awaited for this long. Larger ones would not stay in the processor's cache.
BULK_BYTES = 1 << 20
BULK_WINDOW_S = 0.05
BULK_PIECE = 64 * 1024
BULK_WAIT_MS = 1

# A receive buffer of this size or less is not set: setting one disables the system's
# automatic sizing, which works better.
RECEIVE_BUFFER_MIN = 64 * 1024


def connect_tcp(access: Access, stop: Stop | None = None) -> socket.socket:
    """Return a connected socket, in blocking mode; tries all addresses of the host.

    While none answers, another attempt starts every second: the system itself retries
    after pauses that double. Raises ConnectionLost when none answers within the connect
    timeout, or when `stop` is requested meanwhile.
    """
    address = access.address
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise ConnectionLost(
            f"host {address.host} has an invalid name{_correct(access)}"
        ) from error
    except OSError as error:
        why = descriptor_shortage()
        message = f"cannot look up host {address.host}: {why}"
        raise ConnectionLost(
            message if why else _unknown(access, error),
            unreachable=True,
        ) from error
    with _Attempts(access, found) as attempts:
        try:
            sock = attempts.first(Deadline(access.connect_timeout_s), stop)
        except OSError as error:
            raise ConnectionLost(
                f"cannot connect to {address}: {reason_of(error)}", unreachable=True
            ) from error
    sock.setblocking(True)
    return sock


def _unknown(access: Access, error: OSError) -> str:
    why = error.strerror or error
    return f"host {access.address.host} is unknown ({why}){_correct(access)}"


def _correct(access: Access) -> str:
    return f": correct {access.named_by}" if access.named_by else ""


class _Attempts:
    """Pending connections; all are closed except the first that succeeds."""

    def __init__(self, access: Access, found: Sequence[_Found]) -> None:
        self._access = access
        self._found = found
        self._started = 0
        self._pending: dict[int, socket.socket] = {}  # by descriptor, oldest first
        self._failure: OSError = TimeoutError("no answer in time")

    def first(self, deadline: Deadline, stop: Stop | None) -> socket.socket:
        """Return the first that connects; OSError, or ConnectionLost on stop."""
        again = Deadline(0.0)
        while True:
            if again.passed() or not self._pending:
                if self._started >= len(self._found) and not self._pending:
                    raise self._failure  # none can get an answer any longer
                self._begin()
                again = Deadline(AGAIN_S)
            if deadline.passed():
                raise self._failure
            done = self._wait(min(_remaining_s(again), _remaining_s(deadline)), stop)
            if done is not None:
                return done

    def _begin(self) -> None:
        family, kind, protocol, _, target = self._found[
            self._started % len(self._found)
        ]
        self._started += 1
        if len(self._pending) >= ATTEMPTS_MAX:
            self._pending.pop(next(iter(self._pending))).close()
        sock = socket.socket(family, kind, protocol)
        self._pending[sock.fileno()] = sock
        try:
            _prepare(sock, self._access)
            sock.connect(target)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(sock.fileno(), error)

    def _wait(self, seconds: float, stop: Stop | None) -> socket.socket | None:
        """Wait for an answer; None at the end of the time, or after a refusal."""
        poll = select.poll()
        for fd in self._pending:
            poll.register(fd, select.POLLOUT)
        if stop is not None:
            poll.register(stop, select.POLLIN)
        ready = poll.poll(int(seconds * 1000) + 1 if self._pending else 0)
        if stop is not None and stop.requested():
            raise ConnectionLost("connecting was cancelled: a stop was requested")
        for fd, _ in ready:
            failed = self._pending[fd].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not failed:
                return self._pending.pop(fd)
            self._fail(fd, OSError(failed, os.strerror(failed)))
        return None

    def _fail(self, fd: int, failure: OSError) -> None:
        self._pending.pop(fd).close()
        self._failure = failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._pending.values():
            sock.close()


def _remaining_s(deadline: Deadline) -> float:
    left_s = deadline.remaining_s()
    assert left_s is not None, "the deadline has a limit"
    return max(0.0, left_s)


def _prepare(sock: socket.socket, access: Access) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _watch(sock, access.link_timeout_s)
    if access.receive_buffer > RECEIVE_BUFFER_MIN:
        # Before connecting: the handshake negotiates the window scale.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, access.receive_buffer)
    sock.setblocking(False)


def _watch(sock: socket.socket, timeout_s: float) -> None:
    """Make the system probe an idle peer, and drop one that confirms nothing."""
    every_s = max(1, int(timeout_s / PROBES))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES - 1)
    sock.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1000, int(timeout_s * 1000))
    )


class BulkReads:
    """Has a socket that receives much at once report it in large pieces.

    Each piece costs a wake-up, and what later stages do once for a chunk, so many small
    ones slow down a reader that lags. Below BULK_BYTES in BULK_WINDOW_S each
    byte is reported at once. For one thread.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._began_at = 0.0  # of the window
        self._bytes = 0  # in it

    def note(self, sock: socket.socket, count: int, now: float) -> None:
        """Count received bytes, at a time of the monotonic clock."""
        self._bytes += count
        if self._bytes >= BULK_BYTES or now - self._began_at > BULK_WINDOW_S:
            is_bulk = now - self._began_at <= BULK_WINDOW_S
            self._began_at, self._bytes = now, 0
            if is_bulk != self.is_on:
                self._switch(sock, is_bulk)

    def end(self, sock: socket.socket) -> None:
        """Have each byte reported at once: nothing more was there."""
        self._began_at = self._bytes = 0
        if self.is_on:
            self._switch(sock, False)

    def _switch(self, sock: socket.socket, is_on: bool) -> None:
        least = BULK_PIECE if is_on else 1
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
        self.is_on = is_on


class Breaker:
    """A second handle on a connection, with which any thread may cut it.

    Cutting wakes every thread that reads or writes there, also within TLS, and is safe
    at any time: the descriptor belongs to the breaker, so it cannot be reused
    meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: socket.socket | None = None
        self._cut = False

    def hold(self, sock: socket.socket, address: Address) -> None:
        """Hold this connection instead of the previous one.

        Raises ConnectionLost when `cut` was called before: the connection is then
        unwanted.
        """
        with self._lock:
            if self._cut:
                raise ConnectionLost(f"connection to {address} was closed meanwhile")
            self._let_go()
            try:
                self._held = sock.dup()
            except OSError as error:
                raise ConnectionLost(
                    f"cannot keep the connection to {address}: {reason_of(error)}"
                ) from error

    def cut(self) -> None:
        """End the connection and every later one; idempotent."""
        with self._lock:
            self._cut = True
            if self._held is not None:
                with contextlib.suppress(OSError):  # the peer was first
                    self._held.shutdown(socket.SHUT_RDWR)
                self._let_go()

    def release(self) -> None:
        """Release the connection without ending it for its other owners."""
        with self._lock:
            self._let_go()

    def was_cut(self) -> bool:
        """Return whether `cut` was called."""
        return self._cut

    def _let_go(self) -> None:
        assert self._lock.locked()
        if self._held is not None:
            self._held.close()
            self._held = None
