"""TCP sockets to a source: made without hanging, and cut from another thread."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from typing import TYPE_CHECKING

from canal_server.errors import ConnectionLost
from canal_server.lifecycle import Deadline

if TYPE_CHECKING:
    from canal_server.lifecycle import Stop
    from canal_server.mysql.settings import Access, Address

# A receive buffer of this size or less is not set: setting one switches off the
# system's own sizing, which does better.
RECEIVE_BUFFER_MIN = 64 * 1024


def connect_tcp(access: Access, stop: Stop | None = None) -> socket.socket:
    """Return a connected socket, in blocking mode; tries all addresses of the host.

    Raises ConnectionLost when none answers within the connect time-out, or when
    `stop` is requested meanwhile.
    """
    address = access.address
    deadline = Deadline(access.connect_timeout_s)
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectionLost(f"host {address.host} is unknown: {error}") from error

    failure: OSError | None = None
    for family, kind, protocol, _, target in found:
        sock = socket.socket(family, kind, protocol)
        try:
            _prepare(sock, access.receive_buffer)
            _connect(sock, target, deadline, stop)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            sock.setblocking(True)
            return sock
        if deadline.passed():
            break
    raise ConnectionLost(f"cannot connect to {address}: {failure}") from failure


def _prepare(sock: socket.socket, receive_buffer: int) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if receive_buffer > RECEIVE_BUFFER_MIN:
        # Before the connection is made: the window's scale is agreed upon then.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.setblocking(False)


def _connect(
    sock: socket.socket, target: object, deadline: Deadline, stop: Stop | None
) -> None:
    """Connect a non-blocking socket; raises OSError, or ConnectionLost on stop."""
    try:
        sock.connect(target)  # type: ignore[arg-type]  # as getaddrinfo gave it
    except BlockingIOError:
        poll = select.poll()
        poll.register(sock, select.POLLOUT)
        if stop is not None:
            poll.register(stop, select.POLLIN)
        left_s = deadline.remaining_s()
        poll.poll(None if left_s is None else left_s * 1000)
        if stop is not None and stop.requested():
            raise ConnectionLost(
                "connecting was given up: a stop was asked for"
            ) from None
        failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            raise OSError(failed, os.strerror(failed)) from None
        try:
            sock.getpeername()
        except OSError:
            raise TimeoutError("no answer in time") from None


class Breaker:
    """A second hold on a connection, with which any thread may cut it.

    Cutting wakes whoever reads or writes there, also within TLS, and is safe at any
    time: the descriptor is the breaker's own, so it cannot be another's by then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: socket.socket | None = None
        self._cut = False

    def hold(self, sock: socket.socket, address: Address) -> None:
        """Watch over this connection instead of the one before.

        Raises ConnectionLost when `cut` was called before: then nobody wants it.
        """
        with self._lock:
            if self._cut:
                raise ConnectionLost(f"connection to {address} was closed meanwhile")
            self._let_go()
            self._held = sock.dup()

    def cut(self) -> None:
        """End the connection and every later one; idempotent."""
        with self._lock:
            self._cut = True
            if self._held is not None:
                with contextlib.suppress(OSError):  # the other side was first
                    self._held.shutdown(socket.SHUT_RDWR)
                self._let_go()

    def release(self) -> None:
        """Let go of the connection without ending it for others who hold it."""
        with self._lock:
            self._let_go()

    def was_cut(self) -> bool:
        """Tell whether `cut` was called."""
        return self._cut

    def _let_go(self) -> None:
        assert self._lock.locked()
        if self._held is not None:
            self._held.close()
            self._held = None
