"""One client's connection: the loop of its thread, and its time limits."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.errors import ProtocolError
from canal_server.messages import server_messages
from canal_server.model.quoted import printable
from canal_server.protocol.auth import SEED_BYTES
from canal_server.protocol.range_messages import RangeRequest
from canal_server.protocol.server_session import (
    IDLE_S_DEFAULT,
    LOGIN_READ_BYTES,
    REFUSED,
    Acknowledge,
    Fetch,
    Login,
    Refused,
    Request,
    Rollback,
    ServerSession,
    State,
    error_frame,
)
from canal_server.runtime.lifecycle import Deadline
from canal_server.server.replies import ACCEPTED, Refusal
from canal_server.server.request_texts import log_text
from canal_server.server.session_audit import SessionAudit
from canal_server.server.session_rights import SessionRights
from canal_server.server.tls_transport import HANDSHAKE_BYTE, TlsTransport
from canal_server.users.rights import User

if TYPE_CHECKING:
    from canal_server.server.replies import Reply
    from canal_server.server.service import Service, Visits
    from canal_server.server.transport import Transport
    from canal_server.tls.server_tls import ServerTls
    from canal_server.users.audit_log import AuditLog
    from canal_server.users.user_directory import UserDirectory

log = logging.getLogger(__name__)

CLEAR_TEXT_WAIT_S: Final = 0.3  # for the first byte of TLS, where both are accepted
REQUIRED_WAIT_S: Final = 3.0  # where only TLS is
REASON_SHOWN_MAX: Final = 1_000  # characters of why a request was refused


class Settings(Protocol):
    """The settings that the server needs."""

    @property
    def ip(self) -> str:
        """Address to listen on; empty: all."""

    @property
    def port(self) -> int:
        """Port to listen on; 0: any free one."""

    @property
    def connections_max(self) -> int:
        """How many clients may be connected at a time."""

    @property
    def frame_bytes_max(self) -> int:
        """Limit of one request, in bytes."""

    @property
    def handshake_timeout_s(self) -> float:
        """How long the log-in of a client may last."""

    @property
    def per_address_max(self) -> int:
        """How many clients may be connected from one address."""

    @property
    def per_user_max(self) -> int:
        """How many clients may be connected as one user."""

    @property
    def pending_max(self) -> int:
        """How many clients may be connected without having logged in."""

    @property
    def send_timeout_s(self) -> float:
        """How long a client may accept no byte of an answer."""


class Owner(Protocol):
    """What a connection reports; called by its thread."""

    def on_login(self, connection: Connection, user: User) -> str:
        """Note that a user has logged in; returns why not, empty if it may."""

    def login_delay_s(
        self, connection: Connection, name: str, proof: str
    ) -> float | None:
        """Note a log-in, as `FailedLogins.begin` does; returns how long it waits."""

    def login_waited(self, connection: Connection, name: str, proof: str) -> None:
        """Note that a log-in has waited."""

    def on_refusal(self, connection: Connection, message: str, level: int) -> None:
        """Log a refusal."""

    def on_end(self, connection: Connection) -> None:
        """Release the connection; called last."""


class Connection:
    """Serves one client until it disconnects, falls silent, or the server stops.

    `run` is the body of the connection's thread. Another thread calls `shut_down`,
    which ends whatever `run` waits for: bytes, room to send, or entries (the store
    watches the socket).
    """

    def __init__(
        self,
        transport: Transport,
        peer: str,
        service: Service,
        settings: Settings,
        owner: Owner,
        *,
        users: UserDirectory,
        audit: AuditLog,
        tls: ServerTls | None = None,
    ) -> None:
        self.peer = peer
        self._transport: Transport | TlsTransport = transport
        self._socket = transport  # below TLS, if there is
        self._tls = tls
        self._service = service
        self._owner = owner
        self._send_timeout_s = settings.send_timeout_s
        self._users = users
        self._audit = audit
        self._session: ServerSession[User] = ServerSession(
            users, os.urandom(SEED_BYTES), settings.frame_bytes_max
        )
        self._rights: SessionRights | None = None  # of who has logged in
        self._log_in_by = Deadline(settings.handshake_timeout_s)
        self._visits: Visits = {}
        self._is_ending = False
        self._read_idle_s = IDLE_S_DEFAULT
        self._write_idle_s = IDLE_S_DEFAULT
        self._last_received_at = self._last_sent_at = time.monotonic()
        transport.set_send_timeout(settings.handshake_timeout_s)

    def run(self) -> None:
        """Serve the client; never raises."""
        try:
            log.debug("client at %s connected", self.peer)
            self._serve()
            log.debug("client at %s disconnected", self.peer)
        except ProtocolError as error:
            self._refused(f"closed the connection of {self.peer}: {error}")
        except TimeoutError as error:
            message = f"closed the connection of {self.peer}: {error}"
            self._refused(message, logging.INFO)
        except OSError as error:
            log.debug("the connection of %s broke: %s", self.peer, error)
        except Exception:  # noqa: BLE001
            server_messages.CLIENT_CONNECTION_FAILED.log(log, self.peer, exc_info=True)
        finally:
            if self._rights is not None and self._rights.audit is not None:
                self._rights.audit.end()
            self._service.ranged.on_disconnect(self)
            self._service.on_disconnect(self._visits)
            self._owner.on_end(self)

    def shut_down(self) -> None:
        """Make `run` return soon; only until `on_end` was called."""
        self._is_ending = True
        self._socket.shut_down()

    def close(self) -> None:
        """Close the socket; called by the owner, after `on_end`."""
        self._transport.close()

    def _serve(self) -> None:
        if self._tls is not None:
            self._begin_tls(self._tls)
        self._transport.send((self._session.greeting,))
        while data := self._receive():
            self._session.receive_data(data)
            while (request := self._session.next_request()) is not None:
                self._answer(request)

    def _begin_tls(self, tls: ServerTls) -> None:
        """Negotiate TLS with a client that begins with it.

        In clear text the server speaks first, in TLS the client does, at once. So a
        client that is silent for a moment is one that waits for the server.
        """
        wait_s = REQUIRED_WAIT_S if tls.is_required else CLEAR_TEXT_WAIT_S
        if self._socket.first_byte(wait_s) == HANDSHAKE_BYTE:
            transport = TlsTransport(self._socket, tls.context())
            self._transport = transport
            transport.handshake(self._log_in_by)
            names = transport.certificate_names()
            self._session.certificate = names[0] if names else ""
            user = self._users.by_certificate(names)
            if user is not None:
                self._session.certified = user.name, user
        elif tls.is_required:
            why = "clear text is not accepted (canal.tls.required): connect with TLS"
            self._transport.send((error_frame(REFUSED, why),))
            raise ProtocolError("clear text is not accepted")

    def _receive(self) -> bytes:
        """Wait for bytes as long as the client may be silent, then TimeoutError."""
        if self._session.state is State.OPEN:
            self._check_write_idle()
            # Nothing is sent during this wait, so that the shorter limit ends it. It is
            # not recalculated from the last byte sent: a client may exceed `write_idle`
            # by the time since then, but this is faster.
            data = self._transport.receive(min(self._read_idle_s, self._write_idle_s))
        else:
            remaining_s = self._log_in_by.remaining_s()
            assert remaining_s is not None
            if remaining_s == 0:
                raise TimeoutError("the client took too long to log in")
            data = self._transport.receive(remaining_s, LOGIN_READ_BYTES)
        self._last_received_at = time.monotonic()
        return data

    def _answer(self, request: Request) -> None:
        if isinstance(request, RangeRequest):
            fd = self._transport.fileno()
            cut = self._transport.shut_down
            self._service.ranged.answer(
                request, self, fd, self._send, cut, rights=self._rights
            )
            return
        started_s = time.monotonic()
        wait_s = self._idle_left_s() if isinstance(request, Fetch) else 0.0
        fd = self._transport.fileno()
        rights = self._rights
        if isinstance(request, Login):
            assert isinstance(request.account, User)
            self._wait_to_log_in(request.account)
            # Before its subscription: one too many must change nothing.
            if why := self._owner.on_login(self, request.account):
                self._transport.send((error_frame(REFUSED, why),))
                raise ProtocolError(why)
            rights = SessionRights(request.account, self._session_audit(request))
        reply = self._service.answer(request, fd, wait_s, self._visits, rights=rights)
        if reply is None:
            if self._is_ending:
                raise ConnectionAbortedError("the server ended it")
            raise TimeoutError(f"a get waited for {wait_s:g} s")
        if isinstance(request, Login) and reply is ACCEPTED:
            assert rights is not None
            self._log_in(request, rights)
        elif isinstance(reply, Refusal):
            self._note_refusal(request, reply.unlogged)
        if reply:
            self._send(reply)
        self._service.count(request, reply, started_s)

    def _send(self, reply: Reply) -> None:
        self._transport.send(reply)
        self._last_sent_at = time.monotonic()

    def _log_in(self, login: Login, rights: SessionRights) -> None:
        self._rights = rights
        if rights.audit is not None:
            rights.audit.begin(certificate=self._session.has_used_certificate)
        self._session.logged_in()
        self._read_idle_s = login.read_idle_s
        self._write_idle_s = login.write_idle_s
        self._transport.set_send_timeout(min(login.write_idle_s, self._send_timeout_s))

    def _session_audit(self, login: Login) -> SessionAudit | None:
        if not self._audit.is_on:
            return None
        assert isinstance(login.account, User)
        return SessionAudit(self._audit, login.account.name, self.peer)

    def _refused(self, message: str, level: int = logging.WARNING) -> None:
        self._owner.on_refusal(self, message, level)

    def _note_refusal(self, request: Request, reason: str) -> None:
        """Log a refusal, before it is sent; `reason` is empty if a log has it."""
        if isinstance(request, Refused):
            self._refused(f"refused a request of {self.peer}: {request.message}")
            if request.user is not None:
                self._wait_to_answer(request.user, "")
                self._audit.note("login_refused", request.user, self.peer)
        elif reason:
            # Clients also get and ack where their destination has just stopped or
            # moved, and repeat that elsewhere: this is no warning.
            is_ordinary = isinstance(request, Fetch | Acknowledge | Rollback)
            shown = printable(reason, REASON_SHOWN_MAX)
            self._refused(
                f"refused {log_text(request)} at {self.peer}: {shown}",
                logging.INFO if is_ordinary else logging.WARNING,
            )

    def _wait_to_log_in(self, user: User) -> None:
        """Wait with the right password as with a wrong one, if there were some."""
        if not user.password_hash or self._session.has_used_certificate:
            return
        self._wait_to_answer(user.name, user.password_hash)
        if not self._users.is_current(user):  # its rights have changed meanwhile
            raise ProtocolError("the rights of this user have just changed")

    def _wait_to_answer(self, name: str, proof: str) -> None:
        """Delay the answer to a log-in, in this thread and until the client closes.

        Raises TimeoutError if it may not be answered.
        """
        left_s = self._log_in_by.remaining_s()
        assert left_s is not None
        delay_s = self._owner.login_delay_s(self, name, proof)
        if delay_s == 0:
            return
        if delay_s is None or delay_s > left_s:
            self._transport.wait_for_close(left_s)
            raise TimeoutError("too many wrong passwords from its address")
        if not self._transport.wait_for_close(delay_s):
            # Whoever hangs up early has proven nothing: the next try waits as well.
            self._owner.login_waited(self, name, proof)

    def _check_write_idle(self) -> None:
        if time.monotonic() - self._last_sent_at > self._write_idle_s:
            raise TimeoutError(f"nothing sent for {self._write_idle_s:g} s")

    def _idle_left_s(self) -> float:
        """Return how long a get may wait until an idle limit is reached."""
        ends_at = min(
            self._last_received_at + self._read_idle_s,
            self._last_sent_at + self._write_idle_s,
        )
        return max(0.0, ends_at - time.monotonic())
