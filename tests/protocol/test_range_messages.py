"""Ranged reads on the wire: requests that are read and refused, pieces of an answer."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from canal_server.errors import ClientError, ProtocolError
from canal_server.protocol.packets import Packet, PacketType
from canal_server.protocol.protobuf import decode, encode
from canal_server.protocol.range_messages import (
    LAST_FRAME,
    REQUEST_TYPES,
    RangeAck,
    RangeHead,
    RangeLocate,
    RangePlan,
    RangePosition,
    RangeRead,
    RangeRequest,
    RangeSchema,
    RangeStatus,
    RangeSubscribe,
    RangeUnsubscribe,
    Wire,
    open_piece,
    piece_header,
    read_request,
)

AT = RangePosition(2, "mysql-bin.000007", 4711)
AFTER = RangePosition(2, "mysql-bin.000008", 4, 0)
INSIDE = RangePosition(2, "mysql-bin.000007", 5000, 4711)

LONG = RangePosition(2, "mysql-bin.000007", 4711, gtids="x" * (256 * 1024 + 1))

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

GOOD: list[RangeRequest] = [
    RangeAck("example", "lake", replace(AT, gtids=f"{UUID}:1-5:7,{UUID}:tag:1-3")),
    RangeAck("example", "lake", replace(AT, gtids="0-1-5,1-2-77")),
    RangeSubscribe("example", "lake-1", r"shop\..*", "time:1700000000000"),
    RangeSubscribe("example", "tail-1", temporary=True),
    RangeHead("example", "lake", AT, 10, 20, 30, ack=True, query="q"),
    RangePlan("example", "lake", AT, AFTER, 4),
    RangePlan("example", "lake", AT, RangePosition(3, "other.000001", 4), 4),
    RangeRead("example", "lake", INSIDE, AFTER, Wire.ENTRY),
    RangeRead("example", "lake", INSIDE, AFTER, Wire.BINLOG),
    RangeRead("example", "", AT, AFTER, Wire.ENTRY, r"shop\..*"),
    RangeAck("example", "lake", AT),
    RangeSchema("example", "shop", "orders"),
    RangeSchema("example", "shop", "orders", AT),
    RangeUnsubscribe("example", "a" * 100),
    RangePlan("example", "", AT, AFTER, 4, r"shop\..*"),
    RangeLocate("example", "", "latest"),
    RangeLocate("example", "lake", "acked"),
    RangeStatus("example"),
]

BAD: list[tuple[RangeRequest, str]] = [
    (RangeSubscribe("", "lake"), "destination"),
    (RangeSubscribe("example", ""), "name"),
    (RangeSubscribe("example", "a" * 101), "name"),
    (RangeSubscribe("example", "../lake"), "name"),
    (RangeSubscribe("example", ".."), "name"),
    (RangeSubscribe("example", "läke"), "name"),
    (RangeSubscribe("example", "lake", "x" * (64 * 1024 + 1)), "filter"),
    (RangeHead("example", "lake"), "start"),
    (RangeHead("example", "lake", LONG), "GTID set of the start"),
    (RangeHead("example", "lake", replace(AT, gtids="zz")), "start, 'zz':"),
    (
        RangeAck("example", "lake", replace(AT, gtids="a\nb")),
        r"'a\\nb':",
    ),
    (RangeHead("example", "lake", replace(AT, gtids=f"{UUID}:1-{10**30}")), "GTID set"),
    (RangeHead("example", "lake", replace(AT, gtids=f"{UUID}:5-1")), "GTID set"),
    (RangeHead("example", "lake", RangePosition(0, "a\nb\x1b[31m", 4)), r"'a\\nb\\x1b"),
    (RangeSchema("example", "a", "b", RangePosition(0, "b" * 513, 4)), "binlog file"),
    (RangeHead("example", "lake", AT, max_rows=-1), "max_rows"),
    (RangeHead("example", "lake", AT, wait_ms=-1), "wait_ms"),
    (RangeHead("example", "lake", RangePosition(0, "a.1", 3)), "start"),
    (RangeHead("example", "lake", RangePosition(-1, "a.1", 4)), "start"),
    (RangePlan("example", "lake", AT, AFTER, 0), "parts"),
    (RangePlan("example", "lake", AT, AFTER, 1025), "parts"),
    (RangePlan("example", "lake", AT, RangePosition(1, "a.1", 4), 1), "epoch"),
    (RangeRead("example", "lake", AT, AFTER, 77), "wire"),
    (RangeRead("example", "lake", AT), "end"),
    (RangeAck("example", "lake"), "position"),
    (RangeSchema("example", "", "orders"), "schema"),
    (RangeUnsubscribe("example", "a/b"), "name"),
    (RangePlan("example", "", AT, AFTER, 4, "x" * (64 * 1024 + 1)), "filter"),
    (RangeLocate("example", "", "acked"), "name"),
    (RangeLocate("example", "a/b", "latest"), "name"),
    (RangeLocate("example", "", "x" * (256 * 1024 + 1)), "position"),
]


def packet_of(request: RangeRequest) -> Packet:
    """Return what a client sends."""
    return Packet(type=REQUEST_TYPES[type(request)], body=encode(request))


@pytest.mark.parametrize("request_", GOOD, ids=lambda each: type(each).__name__)
def test_requests_come_as_they_were_sent(request_) -> None:
    """A valid request is read as it was written."""
    sent = decode(Packet, encode(packet_of(request_)))
    assert read_request(sent) == request_


@pytest.mark.parametrize(("request_", "what"), BAD)
def test_requests_that_break_a_rule_are_refused(request_, what) -> None:
    """The refusal names what is wrong."""
    with pytest.raises(ClientError, match=what):
        read_request(packet_of(request_))


def test_a_damaged_request_is_refused_not_fatal() -> None:
    """Bytes that are not a message are an error of this request only."""
    with pytest.raises(ClientError, match="RangeHead"):
        read_request(Packet(type=PacketType.RANGE_HEAD, body=b"\x0a\xff"))


def test_a_piece_is_a_packet_like_messages() -> None:
    """A piece reads as a packet whose body has the form of MESSAGES."""
    entries = b"\x12\x03abc\x12\x00"
    frame = piece_header(300, len(entries)) + entries
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    packet = decode(Packet, frame[4:])
    assert packet.type == PacketType.RANGE_DATA
    assert packet.version == 1
    assert packet.body == b"\x08\xac\x02" + entries
    opened = open_piece(memoryview(frame)[4:])
    assert opened is not None
    assert (opened[0], bytes(opened[1])) == (300, entries)


def test_the_last_piece_is_empty_and_has_number_0() -> None:
    """So a reader knows that nothing is missing."""
    opened = open_piece(memoryview(LAST_FRAME)[4:])
    assert opened is not None
    assert (opened[0], bytes(opened[1])) == (0, b"")


def test_damaged_pieces_are_reported() -> None:
    """Truncated anywhere, a piece is no piece or an error, never something else."""
    frame = piece_header(300, 5) + b"\x12\x03abc"
    for stop in range(4, len(frame)):
        piece = memoryview(frame)[4:stop]
        with contextlib.suppress(ProtocolError):
            assert open_piece(piece) is None
