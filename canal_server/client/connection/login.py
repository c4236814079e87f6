"""Connecting and logging in, shared by all clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.client.connection.blocking_connection import BlockingConnection
from canal_server.client.connection.client_link import Link
from canal_server.client.connection.interruption import never, raise_if
from canal_server.client.connection.io_steps import Receive, Send, run
from canal_server.errors import ClientError, ProtocolError
from canal_server.protocol.auth import scramble
from canal_server.protocol.framing import FRAME_BYTES_MAX, frame
from canal_server.protocol.packets import (
    VERSION,
    Ack,
    ClientAuth,
    Handshake,
    Packet,
    PacketType,
    encode_packet,
)
from canal_server.protocol.protobuf import decode
from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from canal_server.client.connection.io_steps import Steps
    from canal_server.client.connection.server_addresses import Address

# Other servers are recognized by the length that their first bytes seem to encode.
_GREETING_BYTES_MAX = 64 * 1024
_IDLE_MS = 3_600_000  # when the server may close an idle connection


class LoginRefused(ClientError):  # noqa: N818  # the field's own term
    """The server refused the user or the password; a retry would be refused, too."""


def open_link(
    address: Address,
    user: str,
    password: str,
    timeout_s: float,
    tls: ssl.SSLContext | None = None,
) -> Link:
    """Connect and log in.

    Raises ClientError if the login is refused, ProtocolError if the other side is not a
    canal server, OSError if the network fails.
    """
    link = Link(address.host, address.port, timeout_s, tls)
    try:
        conversation = log_in(str(address), user, password, timeout_s)
        run(conversation, BlockingConnection(link))
    except BaseException:
        link.close()
        raise
    return link


def log_in(
    server: str,
    user: str,
    password: str,
    timeout_s: float,
    gives_up: Callable[[], bool] = never,
) -> Steps[None]:
    """Receive the greeting and log in; `server` is for errors.

    Raises LoginRefused, ClientError if the server takes no more clients, ProtocolError
    if the other side is not a canal server, InterruptedError if `gives_up`.
    """
    try:
        yield from _log_in(user, password, timeout_s, gives_up)
    except ProtocolError as error:
        raise ProtocolError(f"{server}: {error}") from error


def _log_in(
    user: str, password: str, timeout_s: float, gives_up: Callable[[], bool]
) -> Steps[None]:
    packet = yield from receive_packet(timeout_s, _GREETING_BYTES_MAX, gives_up)
    if packet.type == PacketType.ACK:  # such as for too many clients
        raise refusal(decode(Ack, packet.body))
    if packet.type != PacketType.HANDSHAKE or packet.version != VERSION:
        raise ProtocolError(
            f"unexpected greeting: packet type {packet.type!r} of version "
            f"{packet.version}, expected a handshake of {VERSION}"
        )
    seed = decode(Handshake, packet.body).seeds
    auth = ClientAuth(
        username=user,
        password=scramble(password, seed) if password else b"",
        net_read_timeout=_IDLE_MS,
        net_write_timeout=_IDLE_MS,
    )
    yield Send(frame(encode_packet(PacketType.CLIENTAUTHENTICATION, auth)))
    packet = yield from receive_packet(timeout_s, gives_up=gives_up)
    answer = decode(Ack, packet.body)
    if answer.error_code:
        raise LoginRefused(str(refusal(answer)), code=answer.error_code)


def receive_packet(
    timeout_s: float | None,
    limit: int = FRAME_BYTES_MAX,
    gives_up: Callable[[], bool] = never,
) -> Steps[Packet]:
    """Wait for the next packet.

    Raises ProtocolError for other data, InterruptedError if the wait is interrupted and
    `gives_up`.
    """
    deadline = Deadline(timeout_s)
    while True:
        found = yield Receive(deadline.remaining_s(), limit, wakeable=True)
        if found is not None:
            return decode(Packet, bytes(found))
        raise_if(gives_up)


def refusal(ack: Ack) -> ClientError:
    """Return the error for a refusal of the server."""
    return ClientError(
        ack.error_message or "request refused without a reason",
        code=ack.error_code or 0,
    )
