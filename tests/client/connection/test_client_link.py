"""A client's connection: whole packets, deadlines, ends."""

from __future__ import annotations

import socket

import pytest
from fix_server import PATIENCE_S

from canal_server.client.connection.client_link import Link
from canal_server.errors import ProtocolError
from canal_server.protocol.framing import frame
from canal_server.protocol.packets import ClientAck, Packet, PacketType, encode_packet
from canal_server.protocol.protobuf import decode, encode


@pytest.fixture
def pair():
    """Give a link and the server's socket."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Link("127.0.0.1", listener.getsockname()[1], PATIENCE_S) as link,
        listener.accept()[0] as server,
    ):
        yield link, server


def test_send(pair):
    """A packet leaves as one frame."""
    link, server = pair
    link.send(PacketType.CLIENTACK, ClientAck("example", "1001", 3))
    expected = frame(
        encode_packet(PacketType.CLIENTACK, ClientAck("example", "1001", 3))
    )
    assert server.recv(1000) == expected
    assert decode(Packet, expected[4:]).version is None


def test_receive_in_pieces(pair):
    """Packets are put together, and one read too far is kept for the next call."""
    link, server = pair
    packets = [Packet(type=n, body=bytes(n)) for n in (1, 3)]
    stream = b"".join(frame(encode(packet)) for packet in packets)
    for byte in stream:
        server.sendall(bytes([byte]))
    assert [link.receive(PATIENCE_S), link.receive(None)] == packets


def test_server_that_says_nothing(pair):
    """Waiting ends in time, also amid a packet."""
    link, server = pair
    server.sendall(b"\0\0")
    with pytest.raises(TimeoutError):
        link.receive(0.01)
    with pytest.raises(TimeoutError):
        link.receive(0)


def test_server_that_closes(pair):
    """The end of the stream is an error, also amid a packet."""
    link, server = pair
    server.sendall(b"\0\0\0\5ab")
    server.close()
    with pytest.raises(ConnectionError, match="closed the connection"):
        link.receive(PATIENCE_S)


def test_other_protocol(pair):
    """Data that is not a packet is reported as such."""
    link, server = pair
    server.sendall(frame(b"\xff"))
    with pytest.raises(ProtocolError, match="malformed Packet"):
        link.receive(PATIENCE_S)
