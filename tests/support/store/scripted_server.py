"""A server that gives a client the batches of a list, by the rules of the protocol.

::

    with ScriptedServer([batch, batch]) as server:
        client = CanalClient("127.0.0.1", server.port)

A batch is the bytes of entries, as field 2 of Messages. After a rollback the client
gets those that are not acked again.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Self

from canal_server.protocol.framing import frame
from canal_server.protocol.packets import (
    Ack,
    ClientAck,
    Handshake,
    Packet,
    PacketType,
    encode_packet,
)
from canal_server.protocol.protobuf import decode, encode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

_NO_BATCH = b"\x08" + b"\xff" * 9 + b"\x01"  # -1 as the batch id
_IDLE_S = 0.01


class ScriptedServer:
    """Serves one client after the other, each on a thread of its own."""

    def __init__(
        self, batches: Sequence[bytes], *, stalls_in: int | None = None
    ) -> None:
        """Send nothing more after a half of the batch with this number, from 1 on."""
        self.acked = 0  # number of the batch
        self.stalled = threading.Event()
        self._batches = batches
        self._stalls_in = stalls_in
        self._sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._connections:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(
                target=self._serve, args=(connection,), daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as stream:
                self._converse(connection, stream)
        except OSError:  # the client, or the test, has ended
            return

    def _converse(self, connection: socket.socket, stream: BinaryIO) -> None:
        greeting = Handshake(seeds=b"12345678")
        connection.sendall(frame(encode_packet(PacketType.HANDSHAKE, greeting)))
        while head := stream.read(4):
            packet = decode(Packet, stream.read(struct.unpack(">I", head)[0]))
            if packet.type == PacketType.CLIENTACK:
                self.acked = decode(ClientAck, packet.body).batch_id
            elif packet.type == PacketType.CLIENTROLLBACK:
                self._sent = self.acked
            elif packet.type == PacketType.GET:
                self._send_batch(connection)
            else:
                connection.sendall(frame(encode_packet(PacketType.ACK, Ack())))

    def _send_batch(self, connection: socket.socket) -> None:
        body = _NO_BATCH
        if self._sent < len(self._batches):
            self._sent += 1
            body = b"\x08" + bytes([self._sent]) + self._batches[self._sent - 1]
        else:
            time.sleep(_IDLE_S)
        data = frame(encode(Packet(type=PacketType.MESSAGES, body=body)))
        if self._sent == self._stalls_in:
            connection.sendall(data[: len(data) // 2])
            self.stalled.set()
        else:
            connection.sendall(data)
