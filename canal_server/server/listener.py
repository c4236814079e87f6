"""The TCP port: accepts clients, gives each a thread, and ends them all.

Threads: `canal-accept` owns the listening socket; each connection has a thread of
its own, named after the client's address. The set of connections is guarded by one
lock; a connection is removed from it before its socket is closed, so that nobody
shuts down a descriptor that already means something else.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import socket
import threading
from typing import TYPE_CHECKING

from canal_server.errors import ConfigError
from canal_server.lifecycle import Deadline, Stop
from canal_server.protocol.session import REFUSED, error_frame
from canal_server.server.connection import Connection, Settings
from canal_server.server.service import Service
from canal_server.server.transport import Transport

if TYPE_CHECKING:
    from canal_server.ports import Instances

log = logging.getLogger(__name__)

_BACKLOG = 128
_ACCEPT_RETRY_S = 1.0  # when the process has no descriptor or memory left
_NO_SUCH_ADDRESS = "canal.ip must be an address of this machine, or empty for all"
_REMEDIES = {
    errno.EADDRINUSE: "is another server running there?",
    errno.EACCES: "ports below 1024 need a right of their own",
}
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Server:
    """A stage: listens on the port of the configuration and serves its clients."""

    def __init__(self, config: Settings, instances: Instances) -> None:
        self._config = config
        self._service = Service(instances)
        self._stop = Stop()
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        # Their threads; one outlives its connection by a moment. Ended ones are
        # forgotten when the next client comes.
        self._threads: list[threading.Thread] = []
        self._refusing = False  # whether the last client was one too many
        self.port = config.port  # the real one once bound

    def bind(self) -> None:
        """Take the port, and have clients wait until the start.

        Raises ConfigError when the address cannot be had.
        """
        assert self._listener is None, "a server starts once"
        self._listener = _listen(self._config.ip, self._config.port)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]

    def unbind(self) -> None:
        """Let the port go that was bound, if `start` never came."""
        if self._acceptor is None and self._listener is not None:
            self._listener.close()

    def start(self) -> None:
        """Serve clients. Raises ConfigError when the address cannot be had."""
        if self._listener is None:
            self.bind()
        assert self._listener is not None
        self._acceptor = threading.Thread(
            target=self._accept_all, name="canal-accept", daemon=True
        )
        self._acceptor.start()
        log.info("listening on %s", _address_text(self._listener.getsockname()))

    def request_stop(self) -> None:
        """Ask to stop: no more clients, and those that are here are cut off."""
        self._stop.request()

    def join(self, deadline: Deadline) -> bool:
        """Wait until all threads have ended; false when the deadline passed first."""
        if self._acceptor is None:
            return True
        self._acceptor.join(deadline.remaining_s())
        if self._acceptor.is_alive():
            return False
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(deadline.remaining_s())
        return not any(thread.is_alive() for thread in threads)

    def connections(self) -> list[str]:
        """Return the addresses of the clients that are connected."""
        with self._lock:
            return sorted(connection.peer for connection in self._connections)

    def claims(self, destination: str) -> dict[str, str]:
        """Return which query reads each ranged subscription that is being read."""
        return self._service.ranged.claims(destination)

    # ----------------------------------------------------------------------------
    # The accepting thread
    # ----------------------------------------------------------------------------

    def _accept_all(self) -> None:
        assert self._listener is not None
        try:
            poll = select.poll()
            poll.register(self._listener, select.POLLIN)
            poll.register(self._stop, select.POLLIN)
            while not self._stop.requested():
                poll.poll()
                if not self._stop.requested():
                    self._accept_one(self._listener)
        except Exception:
            log.exception("no more clients are accepted: unexpected error")
        finally:
            self._listener.close()
            # Only this thread adds connections: none is missed.
            with self._lock:
                for connection in self._connections:
                    connection.shut_down()

    def _accept_one(self, listener: socket.socket) -> None:
        try:
            sock, address = listener.accept()
        except BlockingIOError:
            return  # the client has gone already
        except OSError as error:
            # Anything else concerns that one client: it broke off while it waited.
            if error.errno in _OUT_OF_RESOURCES:
                log.error("cannot accept a client: %s", error.strerror)  # noqa: TRY400
                self._stop.wait(_ACCEPT_RETRY_S)
            return
        peer = _address_text(address)
        if len(self._connections) >= self._config.connections_max:
            self._turn_away(sock, peer)
            return
        self._refusing = False
        try:
            self._begin(sock, peer)
        except (OSError, RuntimeError) as error:
            # The client has gone already, or no thread can be started.
            log.warning("cannot serve %s: %s", peer, error)
            sock.close()

    def _begin(self, sock: socket.socket, peer: str) -> None:
        connection = Connection(
            Transport(sock), peer, self._service, self._config, self._end
        )
        thread = threading.Thread(
            target=connection.run, name=f"client-{peer}", daemon=True
        )
        with self._lock:
            self._connections.add(connection)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._connections.remove(connection)
            raise
        with self._lock:
            self._threads = [each for each in self._threads if each.is_alive()]
            self._threads.append(thread)

    def _turn_away(self, sock: socket.socket, peer: str) -> None:
        """Tell a client that is one too many so, and close; never waits for it."""
        limit = self._config.connections_max
        if not self._refusing:  # once for a crowd
            log.warning("refused %s: %d clients are connected, the limit", peer, limit)
        self._refusing = True
        with sock, contextlib.suppress(OSError):  # it may have left: nothing is owed
            sock.setblocking(False)
            sock.send(error_frame(REFUSED, f"{limit} clients are connected, the limit"))

    def _end(self, connection: Connection) -> None:
        """Let go of a connection; called last by its thread."""
        with self._lock:
            self._connections.remove(connection)
        connection.close()


def _listen(ip: str, port: int) -> socket.socket:
    try:
        if ip:
            family = socket.AF_INET6 if ":" in ip else socket.AF_INET
            return socket.create_server((ip, port), family=family, backlog=_BACKLOG)
        try:
            return socket.create_server(
                ("", port),
                family=socket.AF_INET6,
                backlog=_BACKLOG,
                dualstack_ipv6=True,
            )
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
            return socket.create_server(("", port), backlog=_BACKLOG)
    except OSError as error:
        # Python adds the address that it tried, in its own notation.
        why = str(error.strerror).partition(" (while")[0]
        problem = (
            f"canal.ip, canal.port: cannot listen on {ip or '*'}:{port}: "
            f"{why}; {_REMEDIES.get(error.errno or 0, _NO_SUCH_ADDRESS)}"
        )
        raise ConfigError([problem]) from error


def _address_text(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    """Return host:port; clients that come by IPv4 are shown as such."""
    host = address[0].removeprefix("::ffff:")
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
