"""Says to a server what canal-admin's connector says."""

from __future__ import annotations

import socket

from fix_server import PATIENCE_S

from canal_server.admin.admin_messages import (
    AdminAck,
    AdminAuth,
    AdminHandshake,
    AdminPacket,
    AdminPacketType,
    packet,
)
from canal_server.protocol.auth import scramble
from canal_server.protocol.protobuf import decode

IDLE_MS = 3_600_000


class Connector:
    """A connection from an address of this host; the greeting is received."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self.sock = socket.create_connection(
            ("127.0.0.1", port), PATIENCE_S, (address, 0)
        )
        handshake = self.packet()
        assert (handshake.type, handshake.version) == (AdminPacketType.HANDSHAKE, 1)
        self._seed = decode(AdminHandshake, handshake.body).seeds

    def log_in(self, user: str, password: str) -> AdminAck:
        """Log in; returns the answer."""
        self.pipeline(user, password)
        return self.answer()

    def pipeline(self, user: str, password: str, more: bytes = b"") -> None:
        """Send a log-in, and at once what follows it."""
        token = scramble(password, self._seed) if password else b""
        auth = AdminAuth(user, token, IDLE_MS, IDLE_MS)
        self.sock.sendall(packet(AdminPacketType.CLIENTAUTHENTICATION, auth) + more)

    def ask(self, kind: AdminPacketType, content: object) -> AdminAck:
        """Send a request; returns the answer."""
        self.sock.sendall(packet(kind, content))
        return self.answer()

    def answer(self) -> AdminAck:
        """Return the next answer; EOFError when the server closed."""
        received = self.packet()
        assert received.type == AdminPacketType.ACK
        return decode(AdminAck, received.body)

    def packet(self) -> AdminPacket:
        """Return the next packet; EOFError when the server closed."""
        return decode(AdminPacket, self._read(int.from_bytes(self._read(4))))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()
