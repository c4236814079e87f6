"""One connection of canal-admin: bytes in, answers out; without a socket.

A failed login ends the connection. The Java server reports it and lets the client in.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from canal_server.admin.admin_messages import (
    INVALID,
    REFUSED,
    UNKNOWN_ACTION,
    VERSION,
    AdminAuth,
    AdminHandshake,
    AdminPacket,
    AdminPacketType,
    InstanceAdmin,
    LogAdmin,
    ServerAdmin,
    ack,
    packet,
)
from canal_server.errors import CanalError, ProtocolError
from canal_server.messages import daemon_messages
from canal_server.model.quoted import printable
from canal_server.protocol.framing import FrameReader
from canal_server.protocol.protobuf import decode
from canal_server.users.audit_log import NAME_MAX

if TYPE_CHECKING:
    from canal_server.admin.admin_actions import AdminActions
    from canal_server.admin.log_reading import LogReading
    from canal_server.protocol.auth import Credentials
    from canal_server.users.audit_log import AuditLog

log = logging.getLogger(__name__)

T = TypeVar("T")
FRAME_BYTES_MAX: Final = 60 * 1024


class AdminSession:
    """The server's side of a connection.

    Args:
        credentials: who may log in
        seed: fresh random bytes, `auth.SEED_BYTES` of them
        actions: what is done
        logs: where logs are read
        peer: the address of canal-admin, for the log
        audit: what notes log-ins and actions

    """

    def __init__(
        self,
        credentials: Credentials,
        seed: bytes,
        actions: AdminActions,
        logs: LogReading,
        peer: str,
        *,
        audit: AuditLog,
    ) -> None:
        self._audit = audit
        self.greeting = packet(AdminPacketType.HANDSHAKE, AdminHandshake(seeds=seed))
        self.is_open = False  # the login succeeded
        self.is_refused = False  # it failed: send the answer and close
        self._user = ""
        self._credentials = credentials
        self._seed = seed
        self._actions = actions
        self._logs = logs
        self._peer = peer
        self._frames = FrameReader(FRAME_BYTES_MAX)

    def receive_data(self, data: bytes) -> None:
        """Append bytes from canal-admin."""
        self._frames.receive_data(data)

    def next_answer(self) -> bytes | None:
        """Carry out the next request and return its answer, None if it is incomplete.

        Raises ProtocolError for bytes that are not a packet.
        """
        body = self._frames.next_frame()
        if body is None:
            return None
        received = decode(AdminPacket, body)
        if not self.is_open:
            return self._log_in(received)
        try:
            return self._answer(received)
        except (CanalError, ProtocolError) as error:
            return ack(str(error), INVALID)

    def note_log_in(self) -> None:
        """Log whether canal-admin has logged in, or was refused."""
        if self.is_refused:
            daemon_messages.ADMIN_LOGIN_REFUSED.log(log, self._peer)
            self._audit.note("login_refused", self._user, self._peer)
            return
        log.info("canal-admin at %s logged in", self._peer)
        self._audit.note("login", self._user, self._peer, how="canal-admin")

    def _log_in(self, received: AdminPacket) -> bytes:
        auth = decode(AdminAuth, received.body)
        self._user = auth.username
        is_valid = received.version in {None, VERSION} and self._credentials.allow(
            auth.username, auth.password, self._seed
        )
        if not is_valid:
            self.is_refused = True
            return ack(f"auth failed for user:{auth.username[:64]}", REFUSED)
        self.is_open = True
        return ack()

    def _answer(self, received: AdminPacket) -> bytes:
        match received.type:
            case AdminPacketType.SERVER:
                action = decode(ServerAdmin, received.body).action
                self._note(action, "the server", None)
                return _result(self._actions.of_server(action), "ServerAdmin", action)
            case AdminPacketType.INSTANCE:
                asked = decode(InstanceAdmin, received.body)
                self._note(asked.action, asked.destination, asked.destination)
                return _result(
                    self._actions.of_destination(asked.destination, asked.action),
                    "InstanceAdmin",
                    asked.action,
                )
            case AdminPacketType.LOG:
                return self._log_answer(decode(LogAdmin, received.body))
        kind = received.type
        name = kind.name if isinstance(kind, AdminPacketType) else kind
        return ack(f"packet type: {name} is NOT supported!", REFUSED)

    def _log_answer(self, asked: LogAdmin) -> bytes:
        is_list = asked.action.lower() == "list"
        if asked.type == "server":
            found = self._log_text(is_list, asked.count or 0)
        elif asked.type == "instance":
            found = self._log_text(
                is_list, asked.count or 0, asked.destination, asked.file
            )
        else:
            return ack(f"LogAdmin type: {asked.type[:64]} is unknown", UNKNOWN_ACTION)
        return ack(found)

    def _log_text(self, is_list: bool, count: int, *where: str) -> str:
        if is_list:
            return ",".join(self._logs.names(*where[:1]))
        return self._logs.last_lines(count, *where)

    def _note(self, action: str, subject: str, destination: str | None) -> None:
        if action not in {"check", "list"}:
            self._audit.note(
                "admin",
                self._user,
                self._peer,
                action=action[:NAME_MAX],
                destination=destination and destination[:NAME_MAX],
            )
            log.info(
                "canal-admin at %s: %s %s",
                self._peer,
                printable(action),
                printable(subject),
            )


def _result(found: str | None, kind: str, action: str) -> bytes:
    if found is None:
        return ack(f"{kind} action: {action[:64]} is unknown", UNKNOWN_ACTION)
    return ack(found)
