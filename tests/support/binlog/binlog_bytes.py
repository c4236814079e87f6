"""Events of a binlog, made by hand."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

MYSQL = "9.7.4"

QUERY, STOP, ROTATE, INTVAR, RAND, USER_VAR, FORMAT, XID = 2, 3, 4, 5, 13, 14, 15, 16
TABLE_MAP, INCIDENT, HEARTBEAT, ROWS_QUERY = 19, 26, 27, 29
WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS, GTID, ANONYMOUS_GTID = 30, 31, 32, 33, 34
PREVIOUS_GTIDS, PARTIAL_UPDATE_ROWS, PAYLOAD, GTID_TAGGED = 35, 39, 40, 42
XA_PREPARE, HEARTBEAT_V2 = 38, 41
WRITE_ROWS_V1, UPDATE_ROWS_V1, DELETE_ROWS_V1 = 23, 24, 25
ANNOTATE_ROWS, MARIA_GTID, GTID_LIST, START_ENCRYPTION = 160, 162, 163, 164
PARTIAL_ROW_DATA = 172
QUERY_COMPRESSED, WRITE_ROWS_COMPRESSED = 165, 166

HEADER_BYTES = 19
IN_USE, IGNORABLE = 1, 0x80

# Type codes of columns.
TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, VARCHAR = 1, 2, 3, 4, 5, 8, 15
BIT, TIMESTAMP2, DATETIME2, TIME2, JSON, NEWDECIMAL = 16, 17, 18, 19, 245, 246
ENUM, SET, BLOB, STRING = 247, 248, 252, 254


def packed(value: int) -> bytes:
    """Return a length-encoded integer."""
    if value < 251:
        return bytes((value,))
    if value < 1 << 16:
        return b"\xfc" + value.to_bytes(2, "little")
    if value < 1 << 24:
        return b"\xfd" + value.to_bytes(3, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def bitmap(bits: list[bool]) -> bytes:
    """Return bits, the first in the lowest bit."""
    out = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        out[i >> 3] |= bit << (i & 7)
    return bytes(out)


def format_body(version: str = MYSQL, *, checksum: int = 1) -> bytes:
    """Return a format description's body, with its checksum algorithm."""
    return (
        struct.pack("<H50sIB", 4, version.encode(), 0, HEADER_BYTES)
        + bytes(40)
        + bytes((checksum,))
    )


def query_body(
    sql: bytes, schema: bytes = b"db", *, thread: int = 7, status: bytes = b""
) -> bytes:
    """Return a statement's body."""
    return (
        struct.pack("<IIBHH", thread, 0, len(schema), 0, len(status))
        + status
        + schema
        + b"\0"
        + sql
    )


def table_map_body(
    columns: list[tuple[int, bytes]],
    *,
    table_id: int = 5,
    schema: str = "db",
    table: str = "t",
    optional: bytes = b"",
) -> bytes:
    """Return a table map's body; a column is its type and its metadata."""
    metadata = b"".join(each for _, each in columns)
    return (
        table_id.to_bytes(6, "little")
        + b"\1\0"
        + bytes((len(schema.encode()),))
        + schema.encode()
        + b"\0"
        + bytes((len(table.encode()),))
        + table.encode()
        + b"\0"
        + packed(len(columns))
        + bytes(kind for kind, _ in columns)
        + packed(len(metadata))
        + metadata
        + bytes((len(columns) + 7) // 8)
        + optional
    )


def rows_body(
    width: int, rows: bytes, *, table_id: int = 5, images: int = 1, version: int = 2
) -> bytes:
    """Return a row event's body with all columns present."""
    return (
        table_id.to_bytes(6, "little")
        + b"\1\0"
        + (b"\2\0" if version == 2 else b"")
        + packed(width)
        + bitmap([True] * width) * images
        + rows
    )


def int_row(*values: int | None) -> bytes:
    """Return a row image of INT columns."""
    return bitmap([value is None for value in values]) + b"".join(
        value.to_bytes(4, "little", signed=True)
        for value in values
        if value is not None
    )


def gtid_body(sid: bytes, number: int, *, committed: int = 3, sequence: int = 4):
    """Return the body of a MySQL GTID event."""
    return struct.pack("<B16sqBqq", 0, sid, number, 2, committed, sequence)


def packed_number(value: int) -> bytes:
    """Return an unsigned number in MySQL's variable length."""
    for extra in range(8):
        bits = 7 * (extra + 1) if extra < 8 else 64
        if value < 1 << bits:
            whole = (value << (extra + 1)) | ((1 << extra) - 1)
            return whole.to_bytes(extra + 1, "little")
    return b"\xff" + value.to_bytes(8, "little")


def packed_signed(value: int) -> bytes:
    """Return a signed number: its sign in the lowest bit."""
    return packed_number(value << 1 if value >= 0 else ~value << 1 | 1)


def tagged_body(
    sid: bytes,
    *,
    gno: int = 5,
    tag: bytes = b"blue",
    committed: int = 3,
    sequence: int = 4,
) -> bytes:
    """Return the body of a GTID_TAGGED event."""
    fields = (
        (0, packed_number(1)),
        (1, b"".join(map(packed_number, sid))),
        (2, packed_signed(gno)),
        (3, packed_number(len(tag)) + tag),
        (4, packed_signed(committed)),
        (5, packed_signed(sequence)),
        (6, packed_number(1234567)),
    )
    data = b"".join(packed_number(field) + value for field, value in fields)
    return packed_number(1) + packed_number(len(data)) + packed_number(0) + data


def in_packets(event: bytes, *, sequence: int = 0, size: int = 0xFFFFFF) -> bytes:
    """Return an event as a server sends it."""
    payload = b"\0" + event
    out = bytearray()
    while True:
        part, payload = payload[:size], payload[size:]
        out += len(part).to_bytes(3, "little") + bytes((sequence & 255,)) + part
        sequence += 1
        if len(part) < size:
            return bytes(out)


@dataclass
class Binlog:
    """A binlog in the making: events with right offsets and checksums."""

    checksums: bool = True
    position: int = 4
    time: int = 1_700_000_000
    server_id: int = 1
    events: list[bytes] = field(default_factory=list)

    def add(
        self,
        kind: int,
        body: bytes,
        *,
        flags: int = 0,
        placed: bool = True,
        checksum: bytes | None = None,
    ) -> bytes:
        """Append an event; `placed`: false for an artificial one."""
        with_sum = self.checksums or kind == FORMAT
        length = HEADER_BYTES + len(body) + 4 * with_sum
        end = self.position + length
        event = (
            struct.pack(
                "<IBIIIH",
                self.time,
                kind,
                self.server_id,
                length,
                end & 0xFFFFFFFF if placed else 0,
                flags,
            )
            + body
        )
        if with_sum:
            plain = event[:17] + bytes((flags & ~IN_USE & 255,)) + event[18:]
            right = zlib.crc32(plain if kind == FORMAT else event)
            event += right.to_bytes(4, "little") if checksum is None else checksum
        if placed:
            self.position = end
        self.events.append(event)
        return event

    def start(self, **options: Any) -> None:
        """Append the format description."""
        self.add(FORMAT, format_body(checksum=int(self.checksums)), **options)

    def begin(self, **options: Any) -> None:
        """Append a BEGIN."""
        self.add(QUERY, query_body(b"BEGIN"), **options)

    def xid(self, number: int = 9) -> None:
        """Append the end of a transaction."""
        self.add(XID, number.to_bytes(8, "little"))

    def as_file(self) -> bytes:
        """Return the events as a file has them."""
        return b"\xfebin" + b"".join(self.events)

    def as_stream(self) -> bytes:
        """Return the events as a server sends them."""
        return b"".join(
            in_packets(event, sequence=n + 1) for n, event in enumerate(self.events)
        )


def inner(kind: int, body: bytes, *, time: int = 1_700_000_000) -> bytes:
    """Return an event as it lies in a compressed transaction."""
    return struct.pack("<IBIIIH", time, kind, 1, HEADER_BYTES + len(body), 0, 0) + body


def payload_body(data: bytes, *, algorithm: int, size: int) -> bytes:
    """Return the body of a compressed transaction."""
    fields = ((2, packed(algorithm)), (3, packed(size)), (1, packed(len(data))))
    head = b"".join(packed(k) + packed(len(v)) + v for k, v in fields)
    return head + b"\0" + data
