"""Connecting and logging in, as every client does it."""

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

# A server of another kind is told by the length that its first bytes seem to be.
_GREETING_BYTES_MAX = 64 * 1024
_IDLE_MS = 3_600_000  # when the server may end a connection that is silent


def open_link(host: str, port: int, user: str, password: str, timeout_s: float) -> Link:
    """Connect and log in.

    Raises ClientError when the log-in is refused, ProtocolError when the other side
    is no such server, OSError when the network fails.
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
    if packet.type == PacketType.ACK:  # too many clients, for instance
        raise refusal(decode(Ack, packet.body))
    if packet.type != PacketType.HANDSHAKE or packet.version != VERSION:
        raise ProtocolError(
            f"a greeting with packet type {packet.type!r} of "
            f"version {packet.version}, expected a handshake of {VERSION}"
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
    """Return the error that a server answered with."""
    return ClientError(
        ack.error_message or "refused without a reason", code=ack.error_code or 0
    )
