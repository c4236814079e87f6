"""Tests of the client that the benchmarks drain a server with."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from drain import TAIL_BYTES, DrainClient, DrainError, drain, read_head

from canal_server.protocol.packets import (
    Ack,
    ClientAck,
    Handshake,
    Messages,
    Packet,
    PacketType,
    encode_packet,
)
from canal_server.protocol.protobuf import decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class ScriptedServer:
    """Answers one connection: logs it in, then gives a prepared batch to each get."""

    def __init__(self, batches: Sequence[Messages], refusal: Ack | None = None) -> None:
        self.acked: list[int] = []
        self._batches = list(batches)
        self._refusal = refusal or Ack()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve)

    @contextmanager
    def running(self) -> Iterator[ScriptedServer]:
        """Serve within."""
        self._thread.start()
        try:
            yield self
        finally:
            self._thread.join()
            self._listener.close()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rb") as stream:
            self._send(connection, PacketType.HANDSHAKE, Handshake(seeds=b"12345678"))
            while header := stream.read(4):
                packet = decode(Packet, stream.read(int.from_bytes(header, "big")))
                if packet.type == PacketType.GET:
                    self._send(connection, PacketType.MESSAGES, self._batches.pop(0))
                elif packet.type == PacketType.CLIENTACK:
                    self.acked.append(decode(ClientAck, packet.body).batch_id)
                elif packet.type != PacketType.CLIENTROLLBACK:
                    self._send(connection, PacketType.ACK, self._refusal)

    def _send(self, connection: socket.socket, kind: PacketType, content) -> None:
        packet = encode_packet(kind, content)
        connection.sendall(len(packet).to_bytes(4, "big") + packet)


EMPTY = Messages(batch_id=-1)


@pytest.mark.parametrize("size", [10, TAIL_BYTES - 20, TAIL_BYTES, 3_000_000])
def test_drain(size) -> None:
    """Every batch of whatever size is acked in order, up to the one that ends."""
    batches = [
        Messages(1, (b"x" * size,)),
        EMPTY,
        Messages(2, (b"y" * size, b"z")),
        Messages(3, (b"x" * size, b"the end")),
        Messages(4, (b"never asked for",)),
    ]
    with (
        ScriptedServer(batches).running() as server,
        DrainClient(server.address, "d") as client,
    ):
        client.subscribe()
        run = drain(client, b"the end")
    assert server.acked == [1, 2, 3]
    assert run.batches == 3
    assert run.bytes > 3 * size
    assert run.seconds > 0


def test_whole_batch() -> None:
    """A batch that is asked for whole comes with its entries."""
    with (
        ScriptedServer([Messages(7, (b"a", b"bc")), EMPTY]).running() as server,
        DrainClient(server.address, "d") as client,
    ):
        got = client.get_whole(10, 100)
        assert got is not None
        assert got[0].batch_id == 7
        assert got[1].endswith(b"\x12\x01a\x12\x02bc")
        assert client.get_whole(10, 100) is None


def test_refused() -> None:
    """An error answer is raised with its text."""
    refusal = Ack(error_code=400, error_message="no such destination")
    with (
        ScriptedServer([], refusal).running() as server,
        pytest.raises(DrainError, match="no such destination"),
        DrainClient(server.address, "d"),
    ):
        pytest.fail("the client was let in")


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        ("10 01 18 03", (3, None)),
        ("10 01 18 03 2a 06 08 90 03 12 01 78", (3, 400)),
        ("10 01 18 07 2a 0b 08 ff ff ff ff ff ff ff ff ff 01", (7, None)),
        ("18 07 2a 06 08 ac 02 12 01 61", (7, 300)),
    ],
)
def test_read_head(packet, expected) -> None:
    """The type and the first number are found in packets with and without version."""
    assert read_head(bytes.fromhex(packet)) == expected
