"""The connections of the port for Prometheus, each with a deadline."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.runtime.port_connections import PortConnections

if TYPE_CHECKING:
    from canal_server.runtime.admission import Limits
    from canal_server.runtime.refusal_log import Refusals

REQUEST_S: Final = 10.0  # for TLS, and a request to arrive
ANSWER_S: Final = 60.0  # for its answer, which may wait after wrong passwords


@dataclass(slots=True, eq=False)
class _Peer:
    """One connection; its socket is replaced by TLS. `deadline_s` is monotonic."""

    sock: socket.socket
    deadline_s: float

    def shut_down(self) -> None:
        """End the thread's waiting for this connection."""
        with contextlib.suppress(OSError):  # it has ended already
            # Not the method of TLS, which is no business of another thread.
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


class ScrapePeers:
    """The connections that exist; thread-safe.

    One is removed before its socket is closed, so that no thread shuts down a
    descriptor that was reused meanwhile.
    """

    def __init__(self, limits: Limits, refusals: Refusals) -> None:
        self._lock = threading.Lock()
        self._by_socket: dict[socket.socket, _Peer] = {}
        self._connections: PortConnections[_Peer] = PortConnections(
            "port for metrics", limits, refusals, _Peer.shut_down
        )

    def admit(self, sock: socket.socket, host: str, port: int) -> bool:
        """Add a connection, unless there are too many."""
        peer = _Peer(sock, time.monotonic() + REQUEST_S)
        with self._lock:
            if self._connections.admit(peer, host, f"{host}:{port}"):
                return False
            self._by_socket[sock] = peer
        return True

    def replace(self, sock: socket.socket, encrypted: socket.socket) -> None:
        """Note that a connection has another socket now, that of TLS."""
        with self._lock:
            peer = self._by_socket.pop(sock)
            peer.sock = encrypted
            self._by_socket[encrypted] = peer

    def has_asked(self, sock: socket.socket) -> None:
        """Note that the request of a connection has arrived."""
        with self._lock:
            peer = self._by_socket[sock]
            peer.deadline_s = time.monotonic() + ANSWER_S
            self._connections.is_asking(peer, asks=True)

    def remove(self, sock: socket.socket) -> None:
        """Note that a connection ends; nothing if that is known."""
        with self._lock:
            peer = self._by_socket.pop(sock, None)
            if peer is not None:
                self._connections.remove(peer)

    def close_late(self) -> None:
        """Shut down the connections whose deadline has passed, and log refusals."""
        self._connections.log_ended()
        now_s = time.monotonic()
        with self._lock:
            for peer in self._by_socket.values():
                if peer.deadline_s <= now_s:
                    peer.shut_down()

    def flush(self) -> None:
        """Log the remaining counts of refusals."""
        self._connections.flush()
