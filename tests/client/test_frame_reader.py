"""What a frame holds is found without its rows."""

from __future__ import annotations

import pytest
from client_entries import row, statement, transaction

from canal_server.client.frame_reader import entries_of, open_messages
from canal_server.core.row_count import count_rows
from canal_server.errors import ProtocolError
from canal_server.protocol.entry_messages import RowChange, RowData, decode_entry
from canal_server.protocol.packets import (
    Ack,
    Compression,
    Messages,
    Packet,
    PacketType,
    encode_packet,
)
from canal_server.protocol.protobuf import encode, varint

ENTRIES = (*transaction(1, 3), statement(9, "DROP TABLE orders"), row(11))


def body_of(*entries: bytes) -> bytes:
    """Return the fields of Messages that hold entries."""
    return b"".join(b"\x12" + varint(len(each)) + each for each in entries)


@pytest.mark.parametrize("batch_id", [1, 7_000_000_000, 2**63 - 1, -1])
@pytest.mark.parametrize("entries", [(), ENTRIES])
def test_messages(batch_id: int, entries: tuple[bytes, ...]) -> None:
    """The id and the fields of the entries are found in a frame of any buffer."""
    frame = encode_packet(PacketType.MESSAGES, Messages(batch_id, entries))
    for data in (frame, bytearray(frame), memoryview(frame)):
        found = open_messages(data)
        assert found is not None
        assert found[0] == batch_id
        assert entries_of(data[found[1] : found[2]]) == list(entries)
        assert count_rows(data[found[1] : found[2]]) == (4 if entries else 0)


def test_no_body() -> None:
    """A packet of messages without any field is an empty one."""
    assert open_messages(encode(Packet(type=PacketType.MESSAGES))) == (0, 0, 0)


def test_other_packets() -> None:
    """Other packets, and compressed ones, are left to who decodes all of them."""
    assert open_messages(encode_packet(PacketType.ACK, Ack())) is None
    plain = Packet(type=PacketType.MESSAGES, compression=Compression.NONE)
    assert open_messages(encode(plain)) is not None
    packed = Packet(type=PacketType.MESSAGES, compression=Compression.GZIP)
    assert open_messages(encode(packed)) is None
    assert open_messages(b"") is None


def test_rows_of_an_entry() -> None:
    """All rows of an entry count."""
    entry = decode_entry(row(1))
    image = RowData(after_columns=entry.row_change().row_datas[0].after_columns)
    many = encode(
        type(entry)(
            header=entry.header,
            entry_type=entry.entry_type,
            store_value=encode(RowChange(row_datas=(image,) * 300)),
        )
    )
    assert count_rows(body_of(many, many, *ENTRIES)) == 604


@pytest.mark.parametrize("read", [count_rows, entries_of])
def test_malformed_bodies(read) -> None:
    """A body that ends within an entry is refused."""
    whole = body_of(ENTRIES[1])
    assert read(whole)
    for n in range(1, len(whole)):
        with pytest.raises(ProtocolError, match="malformed entry"):
            read(whole[:n])


def test_malformed_frames() -> None:
    """A frame that ends within its packet or its messages is refused."""
    frame = encode_packet(PacketType.MESSAGES, Messages(300, ENTRIES[:1]))
    for n in range(len(frame) - len(ENTRIES[0]), len(frame)):
        with pytest.raises(ProtocolError, match="malformed packet"):
            open_messages(frame[:n])
    short = encode(Packet(type=PacketType.MESSAGES, body=b"\x08\xff"))
    with pytest.raises(ProtocolError, match="malformed packet of messages"):
        open_messages(short)
