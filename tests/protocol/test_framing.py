"""Frames: the examples of the protocol byte for byte, reassembly, limits."""

from __future__ import annotations

import pytest

from canal_server.errors import ProtocolError
from canal_server.protocol.framing import (
    EMPTY_FRAME,
    FRAME_BYTES_MAX,
    FrameReader,
    frame,
    messages_header,
)
from canal_server.protocol.packets import Messages, Packet, PacketType, encode_packet
from canal_server.protocol.protobuf import decode, varint
from canal_server.protocol.server_session import ACK_FRAME, error_frame


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (ACK_FRAME, "0000000410011803"),
        (error_frame(400, "x"), "0000000c100118032a06089003120178"),
        (EMPTY_FRAME, "00000011100118072a0b08ffffffffffffffffff01"),
    ],
)
def test_examples(got, expected):
    """Acks, refusals and the empty batch have their known bytes."""
    assert got.hex() == expected


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("size", [0, 1, 120, 130, 20_000])
def test_messages_header(size, raw):
    """Header and entries make one packet; the raw form has no version."""
    entry = b"\x12" + varint(size) + b"e" * size
    data = messages_header(300, len(entry), raw=raw) + entry
    assert int.from_bytes(data[:4]) == len(data) - 4
    packet = decode(Packet, data[4:])
    assert packet.version == (None if raw else 1)
    assert packet.type is PacketType.MESSAGES
    assert decode(Messages, packet.body) == Messages(300, (b"e" * size,))


def test_messages_header_bytes():
    """The raw header has its known bytes."""
    assert messages_header(2, 3).hex() == "0000000918072a050802"


def test_batch_too_large_for_a_frame():
    """A batch whose length does not fit in the frame's length is refused."""
    with pytest.raises(ValueError, match="batch 7 needs a frame of"):
        messages_header(7, FRAME_BYTES_MAX)


def test_non_raw_form_is_the_encoded_message():
    """The hand-written header agrees with the general encoder."""
    whole = frame(encode_packet(PacketType.MESSAGES, Messages(9, (b"abc",))))
    assert messages_header(9, 5, raw=False) + b"\x12\x03abc" == whole


def test_reassembly(rng):
    """Frames come out whole, whatever the pieces they arrive in."""
    bodies = [rng.randbytes(rng.choice([0, 1, 3, 50])) for _ in range(50)]
    stream = b"".join(map(frame, bodies))
    reader = FrameReader(50)
    got = []
    while stream:
        cut = rng.randrange(1, 20)
        reader.receive_data(stream[:cut])
        stream = stream[cut:]
        while (body := reader.next_frame()) is not None:
            got.append(body)
    assert got == bodies


@pytest.mark.parametrize("header", ["00000033", "ffffffff", "80000000", "7fffffff"])
def test_length_out_of_range(header):
    """A length that is negative or above the limit is an error that names both."""
    reader = FrameReader(50)
    reader.receive_data(bytes.fromhex(header))
    with pytest.raises(ProtocolError, match="out of range 0 to 50"):
        reader.next_frame()
