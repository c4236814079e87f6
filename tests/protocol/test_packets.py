"""The messages of the packet protocol, byte for byte."""

from __future__ import annotations

import pytest

from canal_server.protocol.packets import (
    Ack,
    ClientAck,
    ClientAuth,
    ClientRollback,
    Get,
    Handshake,
    Messages,
    Packet,
    PacketType,
    Sub,
    Unsub,
    encode_packet,
)
from canal_server.protocol.protobuf import decode, encode

IDENTITY = "0a076578616d706c65120431303031"


@pytest.mark.parametrize(
    ("message", "data"),
    [
        (Packet(magic_number=0, version=1, type=7, compression=1, body=b"b"),
         "08001001180720012a0162"),
        (Packet(), ""),
        (Handshake(seeds=b"\1\2"), "12020102"),
        (ClientAuth("u", b"p", 0, 60000, "d", "1", "f"),
         "0a0175120170180020e0d4032a01643201313a0166"),
        (Ack(), ""),
        (Ack(error_code=0), "0800"),
        (Sub("example", "1001", "a"), IDENTITY + "3a0161"),
        (Unsub("example", "1001"), IDENTITY),
        (Get("example", "1001", 100, -1, 2, False),
         IDENTITY + "1864" "20ffffffffffffffffff01" "2802" "3000"),
        (Messages(batch_id=3, messages=(b"a", b"")), "08031201611200"),
        (ClientAck("example", "1001", 2), IDENTITY + "1802"),
        (ClientRollback("example", "1001", -1),
         IDENTITY + "18ffffffffffffffffff01"),
    ],
)  # fmt: skip
def test_bytes(message, data):
    """Each message has the bytes that the protocol gives it, and decodes from them."""
    assert encode(message).hex() == data
    assert decode(type(message), bytes.fromhex(data)) == message


def test_only_servers_write_a_version():
    """Packets of a server carry version 1, those of a client none."""
    assert decode(Packet, encode_packet(PacketType.ACK, Ack())).version == 1
    assert decode(Packet, encode_packet(PacketType.GET, Get())).version is None
