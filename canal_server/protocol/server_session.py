"""The requests of a client to the server, parsed from its bytes.

A session belongs to one connection and has no socket, no clock and no instance: bytes
in (`receive_data`), requests out (`next_request`); the answers are the frames of this
module and of `framing`. Requests are answered strictly in order, each one before the
next is requested.

::

    EXPECT_LOGIN ── Login, then logged_in() ──► OPEN
         ▲  │
         └──┘ refused: the client may retry, with the same seed
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

from canal_server.errors import ClientError, ProtocolError
from canal_server.model.identity import ClientIdentity
from canal_server.model.quoted import quoted
from canal_server.protocol.framing import LENGTH_BYTES, FrameReader, frame
from canal_server.protocol.packets import (
    Ack,
    ClientAck,
    ClientAuth,
    ClientRollback,
    Get,
    Handshake,
    Packet,
    PacketType,
    Sub,
    Unsub,
    encode_packet,
)
from canal_server.protocol.protobuf import decode
from canal_server.protocol.range_messages import RangeRequest, is_ranged, read_request

if TYPE_CHECKING:
    from canal_server.protocol.auth import Accounts

T = TypeVar("T")
Account = TypeVar("Account")

# Error codes of Ack
REFUSED = 400  # all other errors
NO_IDENTITY = 401  # destination or client id is missing
NO_BATCH_ID = 402  # an ack of batch 0

# Before a client has logged in: with the result of one read, 64 KiB at most.
LOGIN_BYTES_MAX = 60 * 1024 - LENGTH_BYTES
LOGIN_READ_BYTES = 4 * 1024

FETCH_SIZE_DEFAULT = 1000  # for a client that requests 0 or less
IDLE_S_DEFAULT = 3600.0
TIMEOUT_S_MAX = 10 * 365 * 86400.0  # some system calls accept no more

# Seconds per unit of Get.timeout, by ordinal of Java's TimeUnit; others mean ms.
_UNITS = {0: 1e-9, 1: 1e-6, 2: 1e-3, 3: 1.0, 4: 60.0, 5: 3600.0, 6: 86400.0}
_MILLISECONDS = 1e-3
_AT_ONCE = -1  # as Get.timeout

_DECIMAL = re.compile(r"[+-]?[0-9]{1,5}", re.ASCII)
_CLIENT_ID_MIN, _CLIENT_ID_MAX = -(2**15), 2**15 - 1


@dataclass(frozen=True, slots=True)
class Login:
    """The user is known; `subscribe` is set if the client also subscribes.

    The connection ends if nothing is received, or nothing is sent, for this long.
    `account` is what the server knows of the user.
    """

    read_idle_s: float
    write_idle_s: float
    subscribe: ClientIdentity | None
    account: object = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Answered with an ack."""

    identity: ClientIdentity


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Answered with an ack."""

    identity: ClientIdentity


@dataclass(frozen=True, slots=True)
class Fetch:
    """Answered with a batch; a timeout of 0 does not wait, None waits without limit."""

    identity: ClientIdentity
    size: int
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Answered only on error; batch -1 is the empty one."""

    identity: ClientIdentity
    batch_id: int


@dataclass(frozen=True, slots=True)
class Rollback:
    """Answered only on error; batch 0 means all."""

    identity: ClientIdentity
    batch_id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that violates the protocol; answered with `error_frame`."""

    code: int
    message: str
    user: str | None = None  # of a log-in with an invalid user or password


class LoginRefusedError(ClientError):
    """Invalid user or password; `user` is who was named, `why` follows the name."""

    def __init__(self, user: str, why: str = "") -> None:
        text = f"auth failed for user {quoted(user[:64])}{why}"
        super().__init__(text, code=REFUSED)
        self.user = user


Request = (
    Login
    | Subscribe
    | Unsubscribe
    | Fetch
    | Acknowledge
    | Rollback
    | Refused
    | RangeRequest
)


class State(Enum):
    """The state of a session."""

    EXPECT_LOGIN = 1
    OPEN = 2


ACK_FRAME = frame(encode_packet(PacketType.ACK, Ack()))
ERROR_TEXT_MAX = 4096  # characters of an error message to a client


def error_frame(code: int, message: str) -> bytes:
    """Return the error answer to a request."""
    text = message if len(message) <= ERROR_TEXT_MAX else message[:ERROR_TEXT_MAX]
    return frame(
        encode_packet(PacketType.ACK, Ack(error_code=code, error_message=text))
    )


class ServerSession(Generic[Account]):
    """The server's side of one connection.

    Args:
        accounts: who may log in
        seed: fresh random bytes, `auth.SEED_BYTES` of them
        frame_bytes_max: limit of one request, in bytes

    `certified` is the account that the client's certificate proves, with its name: no
    password is needed for that one. `certificate` is the first name in it, empty
    without one.
    """

    certified: tuple[str, Account] | None = None
    certificate: str = ""
    has_used_certificate = False  # in the last log-in

    def __init__(
        self, accounts: Accounts[Account], seed: bytes, frame_bytes_max: int
    ) -> None:
        self.state = State.EXPECT_LOGIN
        # To be sent first.
        self.greeting = frame(
            encode_packet(PacketType.HANDSHAKE, Handshake(seeds=seed))
        )
        self._accounts = accounts
        self._seed = seed
        self._frame_bytes_max = frame_bytes_max
        self._frames = FrameReader(min(frame_bytes_max, LOGIN_BYTES_MAX))
        self._last_get: tuple[bytes, Fetch] | None = None

    def receive_data(self, data: bytes) -> None:
        """Append bytes from the client."""
        self._frames.receive_data(data)

    def next_request(self) -> Request | None:
        """Return the next request, None if more bytes are needed.

        Raises ProtocolError if the bytes are not a frame or packet; the connection is
        then unusable.
        """
        body = self._frames.next_frame()
        if body is None:
            return None
        # A client repeats the same request: its last get is cached, which is faster
        # than decoding it again.
        if self._last_get is not None and self._last_get[0] == body:
            return self._last_get[1]

        packet = decode(Packet, body)
        try:
            if self.state is State.EXPECT_LOGIN:
                # The first packet is a login, whatever its type.
                return self._login(_content(ClientAuth, packet))
            request = _read_request(packet)
        except LoginRefusedError as refusal:
            return Refused(refusal.code, str(refusal), refusal.user)
        except ClientError as refusal:
            return Refused(refusal.code, str(refusal))
        if isinstance(request, Fetch):
            self._last_get = body, request
        return request

    def logged_in(self) -> None:
        """Open the session; call it when a `Login` is answered with an ack."""
        self.state = State.OPEN
        self._frames.limit = self._frame_bytes_max

    def _login(self, auth: ClientAuth) -> Login:
        account = self._account(auth)
        if account is None:
            raise LoginRefusedError(auth.username, self._why(auth))
        subscribe = None
        if auth.destination and auth.client_id:
            subscribe = _identity(auth)
        return Login(
            _idle_s(auth.net_read_timeout),
            _idle_s(auth.net_write_timeout),
            subscribe,
            account,
        )

    def _why(self, auth: ClientAuth) -> str:
        """Return what a log-in lacks that names no user, or that has no password."""
        if not auth.password and self.certificate and self.certified is None:
            return f": no user has the certificate {quoted(self.certificate[:200])}"
        return "" if auth.username else ": the client names no user"

    def _account(self, auth: ClientAuth) -> Account | None:
        """Return the account that a log-in proves, None if it proves nothing."""
        self.has_used_certificate = False
        if self.certified is not None and not auth.password:
            name, account = self.certified
            if auth.username in ("", name):
                self.has_used_certificate = True
                return account
        return self._accounts.by_token(auth.username, auth.password, self._seed)


# --------------------------------------------------------------------------------
# Packets to requests
# --------------------------------------------------------------------------------


def _read_request(packet: Packet) -> Request:
    """Return the request of a packet. Raises ClientError if it breaks a rule."""
    match packet.type:
        case PacketType.GET:
            get = _content(Get, packet)
            size = get.fetch_size if get.fetch_size > 0 else FETCH_SIZE_DEFAULT
            return Fetch(_identity(get), size, _timeout_s(get))
        case PacketType.CLIENTACK:
            ack = _content(ClientAck, packet)
            identity = _identity(ack)
            if ack.batch_id == 0:
                raise ClientError("batchId should assign value", code=NO_BATCH_ID)
            return Acknowledge(identity, ack.batch_id)
        case PacketType.CLIENTROLLBACK:
            rollback = _content(ClientRollback, packet)
            return Rollback(_identity(rollback), rollback.batch_id)
        case PacketType.SUBSCRIPTION:
            return Subscribe(_identity(_content(Sub, packet)))
        case PacketType.UNSUBSCRIPTION:
            return Unsubscribe(_identity(_content(Unsub, packet)))
    if is_ranged(packet):
        return read_request(packet)
    name = packet.type.name if isinstance(packet.type, PacketType) else packet.type
    raise ClientError(f"packet type: {name} is NOT supported!", code=REFUSED)


def _content(kind: type[T], packet: Packet) -> T:
    try:
        return decode(kind, packet.body)
    except ProtocolError as error:
        raise ClientError(str(error), code=REFUSED) from error


def _identity(
    content: ClientAuth | Sub | Unsub | Get | ClientAck | ClientRollback,
) -> ClientIdentity:
    if not content.destination or not content.client_id:
        raise ClientError("destination or clientId is null", code=NO_IDENTITY)
    text = content.client_id
    client_id = int(text) if _DECIMAL.fullmatch(text) else _CLIENT_ID_MAX + 1
    if not _CLIENT_ID_MIN <= client_id <= _CLIENT_ID_MAX:
        raise ClientError(
            f"client id {quoted(text[:64])} is not a number "
            f"from {_CLIENT_ID_MIN} to {_CLIENT_ID_MAX}",
            code=REFUSED,
        )
    expression = content.filter if isinstance(content, ClientAuth | Sub) else ""
    return ClientIdentity(content.destination, client_id, expression)


def _timeout_s(get: Get) -> float | None:
    """Return the timeout of a get in seconds; a missing timeout means 0."""
    timeout = get.timeout or 0
    if timeout == _AT_ONCE:
        return 0.0
    if timeout <= 0:
        return None
    return min(timeout * _UNITS.get(get.unit or 0, _MILLISECONDS), TIMEOUT_S_MAX)


def _idle_s(milliseconds: int | None) -> float:
    if milliseconds is None or milliseconds <= 0:
        return IDLE_S_DEFAULT
    return milliseconds / 1000
