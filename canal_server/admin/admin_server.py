"""The port for canal-admin: a stage of the process."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Final

from canal_server.admin.admin_session import AdminSession
from canal_server.errors import ConfigError, ProtocolError
from canal_server.messages import daemon_messages
from canal_server.protocol.auth import SEED_BYTES, Credentials, stored_form
from canal_server.runtime.lifecycle import Deadline, Stop
from canal_server.runtime.loopback import is_loopback
from canal_server.server.listener import listen
from canal_server.server.transport import Transport
from canal_server.users.audit_log import AuditLog
from canal_server.users.failed_logins import FailedLogins

if TYPE_CHECKING:
    import socket

    from canal_server.admin.admin_actions import AdminActions
    from canal_server.admin.log_reading import LogReading
    from canal_server.config.schema import ServerConfig

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 16
LOGIN_S: Final = 10.0
IDLE_S: Final = 3600.0
SEND_S: Final = 30.0  # how long canal-admin may accept no byte of an answer
LOOPBACK: Final = "127.0.0.1"
_DEFAULT_PASSWORD: Final = stored_form("admin")  # that of canal's own files


def address_for(ip: str, credentials: Credentials) -> str:
    """Return the address to listen on: loopback unless there is a real password.

    Whoever logs in can stop the server, and the password of canal's own files is known
    to everybody.
    """
    return LOOPBACK if _is_public(credentials) else ip


def _is_public(credentials: Credentials) -> bool:
    """Return whether everybody knows the password, or none is needed."""
    return credentials.passwd in {"", _DEFAULT_PASSWORD}


def credentials_of(server: ServerConfig) -> Credentials:
    """Return what canal-admin logs in with.

    Without a password, everybody on this host may log in, by any name.
    """
    user = server.admin_user if server.admin_passwd else ""
    return Credentials(user, server.admin_passwd)


def stays_closed(server: ServerConfig) -> bool:
    """Return whether the port is not opened although it is configured.

    Where users have rights, it would let everybody on this host stop destinations.
    """
    is_public = _is_public(credentials_of(server))
    return server.admin_port >= 0 and server.users_file is not None and is_public


def is_in_clear_text(server: ServerConfig) -> bool:
    """Return whether other hosts reach the port, which has no TLS, although it must."""
    address = address_for(server.ip, credentials_of(server))
    return server.admin_port >= 0 and server.tls.required and not is_loopback(address)


class AdminServer:
    """Accepts canal-admin, a thread for each connection.

    A port that is in use does not prevent the start of the server: that is a warning.
    """

    def __init__(
        self,
        ip: str,
        port: int,
        credentials: Credentials,
        actions: AdminActions,
        logs: LogReading,
        *,
        audit: AuditLog | None = None,
    ) -> None:
        self._audit = audit or AuditLog(None)
        self._ip = address_for(ip, credentials)
        self._is_limited = self._ip != ip
        self._port = port
        self._credentials = credentials
        self._actions = actions
        self._logs = logs
        self._stop = Stop()
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._open: set[Transport] = set()
        self._failed_logins = FailedLogins()

    @property
    def port(self) -> int | None:
        """The port, once started; None if it could not be opened."""
        return None if self._listener is None else self._listener.getsockname()[1]

    def start(self) -> None:
        """Open the port."""
        try:
            listener = listen(self._ip, self._port)
        except ConfigError as error:
            reason = str(error).partition(": ")[2]
            daemon_messages.ADMIN_PORT_UNAVAILABLE.log(log, reason)
            return
        if self._is_limited:
            daemon_messages.ADMIN_PORT_LIMITED.log(log, self._ip)
        listener.setblocking(False)
        self._listener = listener
        thread = threading.Thread(
            target=self._accept_all, args=(listener,), name="canal-admin", daemon=True
        )
        self._threads = [thread]
        thread.start()
        log.info("port for canal-admin at %s:%s", self._ip or "*", self.port)

    def request_stop(self) -> None:
        """Ask the port to close; returns at once."""
        self._stop.request()
        with self._lock:
            for transport in self._open:
                transport.shut_down()

    def join(self, deadline: Deadline) -> bool:
        """Wait until the port is closed and the requests have ended."""
        for thread in list(self._threads):
            thread.join(deadline.remaining_s())
        return not any(thread.is_alive() for thread in self._threads)

    def _accept_all(self, listener: socket.socket) -> None:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        with listener:
            while not self._stop.requested():
                poll.poll()
                try:
                    sock, address = listener.accept()
                except OSError:  # the peer disconnected, or there is no descriptor
                    self._stop.wait(0.1)
                    continue
                self._begin(sock, address[0].removeprefix("::ffff:"))

    def _begin(self, sock: socket.socket, host: str) -> None:
        with self._lock:
            if len(self._open) >= CONNECTIONS_MAX or self._stop.requested():
                sock.close()
                return
            transport = Transport(sock)
            self._open.add(transport)
        thread = threading.Thread(
            target=self._run, args=(transport, host), name="canal-admin", daemon=True
        )
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _run(self, transport: Transport, host: str) -> None:
        try:
            self._serve(transport, host)
        except (ProtocolError, TimeoutError) as error:
            log.info("closed the connection of canal-admin at %s: %s", host, error)
        except OSError as error:
            log.debug("the connection of canal-admin at %s broke: %s", host, error)
        except Exception:  # noqa: BLE001  # the outermost frame of this thread
            daemon_messages.ADMIN_CONNECTION_FAILED.log(log, host, exc_info=True)
        finally:
            with self._lock:
                self._open.discard(transport)
            transport.close()

    def _serve(self, transport: Transport, host: str) -> None:
        session = AdminSession(
            self._credentials,
            os.urandom(SEED_BYTES),
            self._actions,
            self._logs,
            host,
            audit=self._audit,
        )
        transport.set_send_timeout(SEND_S)
        transport.send((session.greeting,))
        log_in_by = Deadline(LOGIN_S)
        while True:
            wait_s = IDLE_S if session.is_open else log_in_by.remaining_s() or 0.0
            if not wait_s:
                raise TimeoutError("took too long to log in")
            data = transport.receive(wait_s)
            if not data:
                return
            session.receive_data(data)
            was_open = session.is_open
            while (answer := session.next_answer()) is not None:
                if not was_open and not self._has_waited(transport, host, session):
                    return
                was_open = True
                if session.is_refused:
                    with contextlib.suppress(OSError):
                        transport.send((answer,))
                    return
                transport.send((answer,))

    def _has_waited(
        self, transport: Transport, host: str, session: AdminSession
    ) -> bool:
        """Wait before a log-in is answered, longer each time; false: close instead."""
        proof = "" if session.is_refused else self._credentials.passwd
        delay_s = self._failed_logins.begin(host, "", proof, time.monotonic())
        if delay_s is None:
            return False
        is_closed = bool(delay_s) and transport.wait_for_close(delay_s)
        session.note_log_in()
        if delay_s and not is_closed:
            self._failed_logins.has_waited(host, "", proof)
        return not is_closed
