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
    """A connection; the greeting is received."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        handshake = self.packet()
        assert (handshake.type, handshake.version) == (AdminPacketType.HANDSHAKE, 1)
        self._seed = decode(AdminHandshake, handshake.body).seeds

    def log_in(self, user: str, password: str) -> AdminAck:
        """Log in; returns the answer."""
        token = scramble(password, self._seed) if password else b""
        auth = AdminAuth(user, token, IDLE_MS, IDLE_MS)
        return self.ask(AdminPacketType.CLIENTAUTHENTICATION, auth)

    def ask(self, kind: AdminPacketType, content: object) -> AdminAck:
        """Send a request; returns the answer."""
        self.sock.sendall(packet(kind, content))
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
