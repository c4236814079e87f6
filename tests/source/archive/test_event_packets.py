"""Events of files as the packets of a dump, and transactions that are left out."""

from __future__ import annotations

import struct

import pytest
from binlog_bytes import (
    FORMAT,
    GTID,
    GTID_LIST,
    GTID_TAGGED,
    MARIA_GTID,
    QUERY,
    ROTATE,
    START_ENCRYPTION,
    STOP,
    XID,
    gtid_body,
    tagged_body,
)

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import DecodeError
from canal_server.source.archive.event_packets import EventPackets

SID = bytes(range(16))
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
PACKET_MAX = 0xFFFFFF


def event(kind: int, body: bytes, at: int, *, end: int | None = None) -> bytes:
    """Return an event of a file, at an offset."""
    length = 19 + len(body)
    end = at + length if end is None else end
    return struct.pack("<IBIIIH", 7, kind, 1, length, end & 0xFFFFFFFF, 0) + body


def file_of(*events: tuple[int, bytes], at: int = 4) -> list[bytes]:
    """Return events as they follow each other in a file."""
    found = []
    for kind, body in events:
        found.append(event(kind, body, at))
        at += len(found[-1])
    return found


def packed(
    packets: EventPackets, content: bytes, *, piece: int = 1 << 26, room: int = 1 << 26
) -> bytes:
    """Pack a file that is read in pieces, into space of a certain size."""
    out = bytearray()
    target = memoryview(bytearray(room))
    begin = end = 0
    while True:
        used, made = packets.pack(memoryview(content)[begin:end], target)
        begin += used
        out += target[:made]
        if not used and not made:
            if end == len(content):
                assert begin == end
                return bytes(out)
            end = min(end + piece, len(content))


def events_in(stream: bytes) -> list[bytes]:
    """Return the events in packets."""
    found, at, payload = [], 0, b""
    while at < len(stream):
        size = int.from_bytes(stream[at : at + 3], "little")
        payload += stream[at + 4 : at + 4 + size]
        at += 4 + size
        if size < PACKET_MAX:
            assert payload[:1] == b"\0"
            found.append(payload[1:])
            payload = b""
    return found


@pytest.mark.parametrize("piece", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("room", [5, 16, 1 << 20])
def test_events_arrive_unchanged(piece, room):
    """Each event is one packet, however the file is read and the space is divided."""
    events = file_of((FORMAT, b"f" * 80), (QUERY, b"q" * 300), (XID, b"x" * 8))
    packets = EventPackets(4)
    assert events_in(packed(packets, b"".join(events), piece=piece, room=room)) == (
        events
    )
    assert packets.is_between
    assert packets.position == 4 + sum(map(len, events))
    assert (packets.last_type, packets.last_time) == (XID, 7)


@pytest.mark.parametrize("size", [PACKET_MAX - 2, PACKET_MAX - 1, PACKET_MAX, 1 << 25])
def test_events_of_several_packets(size):
    """An event of 16 MiB or more continues in the next packet, which may be empty."""
    events = file_of((QUERY, b"q" * (size - 19)), (XID, b"x" * 8))
    assert events_in(packed(EventPackets(4), b"".join(events))) == events


def gtid(number: int, tag: bytes = b"") -> tuple[int, bytes]:
    """Return a GTID event of MySQL."""
    if tag:
        return GTID_TAGGED, tagged_body(SID, gno=number, tag=tag)
    return GTID, gtid_body(SID, number)


def test_transactions_of_a_set_are_left_out():
    """What was executed is not sent; the set of what the file has grows with all."""
    transactions = [
        (gtid(number, tag), (QUERY, bytes([number])), (XID, b"x" * 8))
        for number, tag in (
            (4, b""),
            (5, b""),
            (6, b""),
            (7, b""),
            (1, b"a"),
            (2, b"a"),
        )
    ]
    flat = [each for one in transactions for each in one]
    events = file_of((FORMAT, b"f" * 80), *flat, (STOP, b""))
    packets = EventPackets(4)
    packets.seen = GtidSet.parse(f"{UUID}:1-3")
    packets.excluded = GtidSet.parse(f"{UUID}:1-4:6:a:1")
    found = events_in(packed(packets, b"".join(events), piece=50))
    kept = [events[0], *events[4:7], *events[10:13], *events[16:]]
    assert found == kept
    assert str(packets.seen) == f"{UUID}:1-7:a:1-2"
    assert packets.last_type == STOP


def test_transactions_of_mariadb():
    """There, the sequence number of each domain decides; its lists are always sent."""

    def transaction(domain: int, sequence: int) -> list[tuple[int, bytes]]:
        body = struct.pack("<QIB", sequence, domain, 0) + bytes(6)
        return [(MARIA_GTID, body), (XID, b"x" * 8)]

    events = file_of(
        (GTID_LIST, bytes(4)),
        *transaction(0, 5),
        *transaction(1, 9),
        *transaction(0, 6),
        (ROTATE, bytes(20)),
    )
    packets = EventPackets(4)
    packets.seen = MariaGtidSet()
    packets.excluded = MariaGtidSet.parse("0-1-5,1-1-8")
    found = events_in(packed(packets, b"".join(events)))
    assert found == [events[0], *events[3:]]
    assert str(packets.seen) == "0-1-6,1-1-9"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (event(QUERY, b"", 4, end=77), "names 77 as its end instead of 23"),
        (struct.pack("<IBIIIH", 7, 2, 1, 5, 9, 0), "with a length of 5"),
        (event(START_ENCRYPTION, bytes(17), 4), "is encrypted from here on"),
        (event(GTID, b"short", 4), "without a GTID"),
    ],
)
def test_damage(content, words):
    """Bytes that are no event are an error with the offset."""
    packets = EventPackets(4)
    packets.seen = GtidSet()
    with pytest.raises(DecodeError, match=words) as caught:
        packed(packets, content)
    assert caught.value.position == 4


def test_a_cut_event():
    """An event that ends with the file is not complete."""
    (whole,) = file_of((QUERY, b"q" * 30))
    packets = EventPackets(4)
    target = memoryview(bytearray(100))
    packets.pack(whole[:40], target)
    assert not packets.is_between
    assert packets.position == 4


def test_files_above_4_gib():
    """The position in an event's header has 32 bits and begins again at 0."""
    at = (1 << 32) - 20
    events = file_of((QUERY, b"q" * 30), (XID, b"x" * 8), at=at)
    packets = EventPackets(at)
    assert events_in(packed(packets, b"".join(events))) == events
    assert packets.position == at + sum(map(len, events))
