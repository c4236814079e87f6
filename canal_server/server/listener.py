"""The TCP port: accepts clients, gives each a thread, and ends them all.

Threads: `canal-accept` owns the listening socket, and logs the sums of refusals; each
connection has its own thread, named after the client's address. One lock guards the set
of connections. A connection is removed from it before its socket is closed, so that no
thread shuts down a descriptor that was reused meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

from canal_server.errors import ClientError, ConfigError, UnknownSubscription
from canal_server.messages import server_messages
from canal_server.model.identity import ClientIdentity
from canal_server.protocol.auth import Credentials
from canal_server.protocol.server_session import REFUSED, error_frame
from canal_server.runtime.admission import Admission, Limits, group_of
from canal_server.runtime.lifecycle import Deadline, Stop
from canal_server.runtime.private_files import reason_of
from canal_server.runtime.refusal_log import OTHERS, Refusals
from canal_server.server.client_connection import Connection, Settings
from canal_server.server.local_client import LocalClient
from canal_server.server.service import Service
from canal_server.server.transport import Transport
from canal_server.users.audit_log import AuditLog
from canal_server.users.failed_logins import DELAY_MAX_S, FailedLogins
from canal_server.users.user_directory import UserDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.ports import Instances
    from canal_server.server.request_counts import RequestCounts
    from canal_server.tls.server_tls import ServerTls
    from canal_server.users.rights import User

log = logging.getLogger(__name__)

_BACKLOG = 128
_ACCEPT_RETRY_S = 1.0  # when the process has no descriptor or memory left
_NO_SUCH_ADDRESS = "canal.ip must be an address of this machine, or empty for all"
_REMEDIES = {
    errno.EADDRINUSE: "is another server running there?",
    errno.EACCES: "ports below 1024 need a privilege",
}
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Server:
    """A stage: listens on the port of the configuration and serves its clients."""

    def __init__(
        self,
        config: Settings,
        instances: Instances,
        tls: ServerTls | None = None,
        users: UserDirectory | None = None,
        audit: AuditLog | None = None,
        *,
        reserved: Mapping[int, str] | None = None,
    ) -> None:
        """Create without starting; without `users`, everybody may log in.

        `reserved`: client ids that connections are refused, and what uses them.
        """
        self._audit = audit or AuditLog(None)
        self._config = config
        self._tls = tls
        self.users = users or UserDirectory(None, Credentials())
        self.users.on_change(self._end_changed)
        self._instances = instances
        self._service = Service(instances, reserved)
        self._stop = Stop()
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._lock = threading.Lock()
        self._admission: Admission[Connection] = Admission(
            Limits(
                config.connections_max,
                config.per_address_max,
                config.pending_max,
                config.per_user_max,
            )
        )
        self._logged_in: dict[Connection, User] = {}
        self._hosts: dict[Connection, str] = {}  # what counts as one address
        # At most half of the time for a log-in, or no delayed one would be in time.
        self._failed_logins = FailedLogins(
            min(DELAY_MAX_S, config.handshake_timeout_s / 2)
        )
        self._refusals = Refusals(_log_refusal, _log_refusals)
        # Their threads; a thread outlives its connection by a moment. Ended ones are
        # removed at the next connection.
        self._threads: list[threading.Thread] = []
        self._exhausted = False  # descriptors or memory, since the last client
        self.port = config.port  # the real one once bound

    def local_client(self, identity: ClientIdentity) -> LocalClient:
        """Return a client inside of this process."""
        return LocalClient(self._service, self._instances, identity)

    def bind(self) -> None:
        """Bind the port, and let clients wait until the start.

        Raises ConfigError when the address is not available.
        """
        assert self._listener is None, "a server starts once"
        self._listener = listen(self._config.ip, self._config.port)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]

    def unbind(self) -> None:
        """Release the bound port, if `start` was never called."""
        if self._acceptor is None and self._listener is not None:
            self._listener.close()

    def start(self) -> None:
        """Serve clients. Raises ConfigError when the address is not available."""
        if self._listener is None:
            self.bind()
        assert self._listener is not None
        self._acceptor = threading.Thread(
            target=self._accept_all, name="canal-accept", daemon=True
        )
        self._acceptor.start()
        log.info("listening on %s", _address_text(self._listener.getsockname()))

    def request_stop(self) -> None:
        """Ask to stop: accept no more clients, and disconnect those that are here."""
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
            return sorted(connection.peer for connection in self._hosts)

    def requests(self, destination: str) -> RequestCounts:
        """Return the counts of the requests to a destination."""
        return self._service.counters.of(destination)

    def unsubscribe(self, destination: str, client_id: int) -> None:
        """Remove the subscription of a client, as an operator asks.

        Raises ClientError if the destination does not run, or if this process uses the
        subscription itself, and UnknownSubscription if it has no such client.
        """
        if user := self._service.user_of(client_id):
            raise ClientError(
                f"client {client_id} of {destination} is {user}, which would lose its"
                " position: to give up what was not delivered, move the position"
                f" (`canal-server position seek --conf DIR --destination {destination}"
                f" --client-id {client_id} --to latest`)"
            )
        identity = ClientIdentity(destination, client_id, "")
        if not self._service.unsubscribe(identity):
            raise UnknownSubscription(
                f"client {client_id} is not subscribed to {destination}"
            )

    def claims(self, destination: str) -> dict[str, str]:
        """Return which query reads each ranged subscription that is in use."""
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
                wait_s = self._refusals.log_ended()
                is_ready = poll.poll(math.ceil(wait_s * 1000))
                if is_ready and not self._stop.requested():
                    self._accept_one(self._listener)
        except Exception:  # noqa: BLE001
            server_messages.ACCEPT_LOOP_FAILED.log(log, exc_info=True)
        finally:
            self._listener.close()
            # Only this thread adds connections, so that none is missed.
            with self._lock:
                for connection in self._hosts:
                    connection.shut_down()
            self._refusals.flush()

    def _accept_one(self, listener: socket.socket) -> None:
        try:
            sock, address = listener.accept()
        except BlockingIOError:
            return  # the client has disconnected already
        except OSError as error:
            # Any other error concerns only that client, which disconnected meanwhile.
            if error.errno in _OUT_OF_RESOURCES:
                self._pause(error)
            return
        peer, host = _address_text(address), group_of(_host_of(address))
        with self._lock:
            refusal = self._admission.refusal(host)
            displaced = None if refusal else self._admission.displaced()
            if displaced is not None:
                their_host = self._hosts[displaced]
                displaced.shut_down()  # under the lock: it cannot be closed before
        if refusal:
            self._refuse(sock, peer, host, refusal)
            return
        if displaced is not None:
            self._refusals.note(
                their_host,
                f"closed the connection of {displaced.peer}, which has not logged in:"
                " the limit of connections is reached",
            )
        try:
            self._begin(sock, peer, host)
        except (OSError, RuntimeError) as error:
            sock.close()
            if isinstance(error, OSError) and error.errno in _OUT_OF_RESOURCES:
                self._pause(error)
                return
            # The client has disconnected already, or no thread can be started.
            server_messages.CLIENT_NOT_SERVED.log(log, peer, error)
            return
        if self._exhausted:
            self._exhausted = False
            log.info("accepting clients again")

    def _pause(self, error: OSError) -> None:
        """Wait until there may be descriptors or memory again; logs it once."""
        if not self._exhausted:
            self._exhausted = True
            server_messages.ACCEPT_FAILED.log(log, reason_of(error))
        self._stop.wait(_ACCEPT_RETRY_S)

    def _begin(self, sock: socket.socket, peer: str, host: str) -> None:
        connection = Connection(
            Transport(sock),
            peer,
            self._service,
            self._config,
            self,
            users=self.users,
            audit=self._audit,
            tls=self._tls,
        )
        thread = threading.Thread(
            target=connection.run, name=f"client-{peer}", daemon=True
        )
        with self._lock:
            self._hosts[connection] = host
            self._admission.add(connection, host)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._forget(connection)
            raise
        with self._lock:
            self._threads = [each for each in self._threads if each.is_alive()]
            self._threads.append(thread)

    def _refuse(self, sock: socket.socket, peer: str, host: str, refusal: str) -> None:
        """Refuse a client that exceeds a limit, and close; never waits for it."""
        self._refusals.note(host, f"refused {peer}: {refusal}, the limit")
        with sock, contextlib.suppress(OSError):  # the client may have disconnected
            sock.setblocking(False)
            sock.send(error_frame(REFUSED, f"{refusal}, the limit"))

    def _forget(self, connection: Connection) -> None:
        assert self._lock.locked()
        del self._hosts[connection]
        self._logged_in.pop(connection, None)
        self._admission.remove(connection)

    # ----------------------------------------------------------------------------
    # What connections report, on their threads
    # ----------------------------------------------------------------------------

    def on_login(self, connection: Connection, user: User) -> str:
        """Note that a user has logged in; returns why not, empty if it may."""
        with self._lock:
            if not self.users.is_current(user):
                return "the rights of this user have just changed; log in again"
            why = self._admission.logged_in(connection, user.name, user.connections_max)
            if not why:
                self._logged_in[connection] = user
        return why

    def login_delay_s(
        self, connection: Connection, name: str, proof: str
    ) -> float | None:
        """Note a log-in, as `FailedLogins.begin` does; returns how long it waits."""
        guessed = self.users.guessed_name(name)
        host, now_s = self._address_of(connection), time.monotonic()
        return self._failed_logins.begin(host, guessed, proof, now_s)

    def login_waited(self, connection: Connection, name: str, proof: str) -> None:
        """Note that a log-in has waited."""
        guessed = self.users.guessed_name(name)
        self._failed_logins.has_waited(self._address_of(connection), guessed, proof)

    def _address_of(self, connection: Connection) -> str:
        with self._lock:
            return self._hosts[connection]

    def _end_changed(self) -> None:
        """End the sessions of users whose rights have changed; by any thread."""
        with self._lock:
            changed = [
                connection
                for connection, user in self._logged_in.items()
                if not self.users.is_current(user)
            ]
            for each in changed:
                each.shut_down()  # under the lock: it cannot be closed before
        if changed:
            log.info(
                "ended the sessions of %d connections, whose rights have changed: %s",
                len(changed),
                ", ".join(sorted(each.peer for each in changed)[:10]),
            )

    def on_refusal(self, connection: Connection, message: str, level: int) -> None:
        """Log a refusal, or count it when there are many."""
        with self._lock:
            host = self._hosts.get(connection, OTHERS)
        self._refusals.note(host, message, level)

    def on_end(self, connection: Connection) -> None:
        """Release a connection; called last by its thread."""
        with self._lock:
            self._forget(connection)
        connection.close()


def _log_refusal(what: str, level: int) -> None:
    server_messages.CLIENT_REFUSED.log(log, what, level=level)


def _log_refusals(n: int, host: str, period_s: float, last: str, level: int) -> None:
    server_messages.CLIENT_REFUSALS_REPEATED.log(
        log, n, host, period_s, last, level=level
    )


def listen(ip: str, port: int) -> socket.socket:
    """Open the port for clients; empty: on all addresses. Raises ConfigError."""
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
    """Return host:port; clients that connect by IPv4 are shown as such."""
    host = _host_of(address)
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"


def _host_of(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    return address[0].removeprefix("::ffff:")
