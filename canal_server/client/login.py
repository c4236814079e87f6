"""Connecting and logging in, shared by all clients."""

from __future__ import annotations

from canal_server.client.client_link import Link
from canal_server.errors import ClientError, ProtocolError
from canal_server.protocol.auth import scramble
from canal_server.protocol.packets import (
    VERSION,
    Ack,
    ClientAuth,
    Handshake,
    PacketType,
)
from canal_server.protocol.protobuf import decode

# Other servers are recognized by the length that their first bytes seem to encode.
_GREETING_BYTES_MAX = 64 * 1024
_IDLE_MS = 3_600_000  # when the server may close an idle connection


def open_link(host: str, port: int, user: str, password: str, timeout_s: float) -> Link:
    """Connect and log in.

    Raises ClientError if the login is refused, ProtocolError if the other side is not a
    canal server, OSError if the network fails.
    """
    link = Link(host, port, timeout_s)
    try:
        _log_in(link, user, password, timeout_s)
    except ProtocolError as error:
        link.close()
        raise ProtocolError(f"{host}:{port}: {error}") from error
    except BaseException:
        link.close()
        raise
    return link


def _log_in(link: Link, user: str, password: str, timeout_s: float) -> None:
    packet = link.receive(timeout_s, _GREETING_BYTES_MAX)
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
    link.send(PacketType.CLIENTAUTHENTICATION, auth)
    answer = decode(Ack, link.receive(timeout_s).body)
    if answer.error_code:
        raise refusal(answer)


def refusal(ack: Ack) -> ClientError:
    """Return the error for a refusal of the server."""
    return ClientError(
        ack.error_message or "request refused without a reason",
        code=ack.error_code or 0,
    )
