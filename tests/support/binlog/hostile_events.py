"""Reads one crafted binlog in a process of its own and prints what it took.

    python hostile_events.py CASE

The answer is JSON: the error, entries and their rows, what the source was asked for,
and by how much memory grew, in bytes. Started by `test_event_limits`.
"""

from __future__ import annotations

import json
import resource
import sys
import zlib
from functools import partial
from typing import TYPE_CHECKING

import binlog_bytes as b
import zstandard
from binlog_bytes import Binlog
from reader_driver import Images

from canal_server.config.schema import EventConfig, FilterConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import TableIds
from canal_server.errors import DecodeError
from canal_server.filters.column_filters import ColumnFilter
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fix_blocks import Span

MIB = 1 << 20
ADDRESS_SPACE_MAX = 3 << 30
COMPRESSED_COLUMN = (140, b"\4")  # LONGBLOB COMPRESSED of MariaDB
BLOB = (b.BLOB, b"\4")
INT = (b.LONG, b"")
TEXT_LENGTH = 4
Columns = list[tuple[int, bytes]]


class Source:
    """A source that makes its bytes when they are asked for."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.given = 0
        self._chunks = chunks
        self._rest = memoryview(b"")

    def try_receive_into(self, buffer: memoryview) -> int | None:
        """Give what fits."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        part = self._rest[: len(buffer)]
        buffer[: len(part)] = part
        self._rest = self._rest[len(part) :]
        self.given += len(part)
        return len(part)

    def receive_into(self, buffer: memoryview, timeout_s: float | None) -> int | None:
        """Give what fits."""
        return self.try_receive_into(buffer)


def started(*, version: str = b.MYSQL) -> Binlog:
    """Return a binlog without checksums, in which a transaction begins."""
    log = Binlog(checksums=False)
    log.add(b.FORMAT, b.format_body(version, checksum=0))
    log.begin()
    return log


def header(log: Binlog, kind: int, length: int) -> bytes:
    """Return the header of the event that comes next, with any length."""
    return (
        log.time.to_bytes(4, "little")
        + bytes((kind,))
        + (1).to_bytes(4, "little")
        + length.to_bytes(4, "little")
        + bytes(6)
    )


def endless(log: Binlog, event: bytes) -> Iterator[bytes]:
    """Yield an event of full packets without an end, and what is before it."""
    yield log.as_stream()
    filling = bytes(MIB)
    first = b"\0" + event
    while True:
        yield b"\xff\xff\xff\0" + first
        left = 0xFFFFFF - len(first)
        while left:
            yield filling[:left]
            left -= len(filling[:left])
        first = b""


def endless_packets() -> Iterator[bytes]:
    """Announce 4 GiB in a header."""
    log = started()
    return endless(log, header(log, b.WRITE_ROWS, 0xFFFFFFFF))


def endless_continuation() -> Iterator[bytes]:
    """Announce 40 MiB and go on."""
    log = started()
    return endless(log, header(log, b.WRITE_ROWS, 40 * MIB))


def endless_error() -> Iterator[bytes]:
    """Send an error packet of very many."""
    yield from (b.in_packets(event) for event in started().events)
    while True:
        yield b"\xff\xff\xff\0" + b"\xff" * 0xFFFFFF


def long_event() -> Iterator[bytes]:
    """Send a whole event above the limit."""
    log = started()
    log.add(b.QUERY, b.query_body(b"x" * (9 * MIB)))
    return iter((log.as_stream(),))


def payload_of(log: Binlog, data: bytes, size: int, **options: int) -> Iterator[bytes]:
    """Return a binlog that ends with a compressed transaction."""
    algorithm = options.get("algorithm", 0)
    log.add(b.PAYLOAD, b.payload_body(data, algorithm=algorithm, size=size))
    return iter((log.as_stream(),))


def zeros(head: bytes, size: int) -> bytes:
    """Compress a head and very many zeros."""
    inflater = zstandard.ZstdCompressor(level=1).compressobj()
    parts = [inflater.compress(head)]
    parts += [inflater.compress(bytes(MIB)) for _ in range(size // MIB)]
    return b"".join([*parts, inflater.flush()])


def payload_with_large_event() -> Iterator[bytes]:
    """Hide an event of 4 GiB in some KB."""
    log = started()
    data = zeros(header(log, b.WRITE_ROWS, 0xFFFFFFFF), 800 * MIB)
    return payload_of(log, data, 800 * MIB)


def payload_beyond_its_size() -> Iterator[bytes]:
    """Announce 1 MiB and inflate to more, in an event below the limit."""
    log = started()
    data = zeros(header(log, b.WRITE_ROWS, 800 * MIB), 800 * MIB)
    return payload_of(log, data, MIB)


def large_transaction() -> Iterator[bytes]:
    """Compress what is allowed: 300 MiB of inserts in one transaction."""
    log = Binlog(checksums=False)
    log.add(b.FORMAT, b.format_body(checksum=0))
    table = b.inner(b.TABLE_MAP, b.table_map_body([BLOB]))
    value = bytes(range(256)) * 4096  # 1 MiB
    row = b"\0" + len(value).to_bytes(TEXT_LENGTH, "little") + value
    piece = table + b.inner(b.WRITE_ROWS, b.rows_body(1, row))
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    first = b.inner(b.QUERY, b.query_body(b"BEGIN"))
    last = b.inner(b.XID, (9).to_bytes(8, "little"))
    data = [packer.compress(first)]
    data += [packer.compress(piece) for _ in range(300)]
    data += [packer.compress(last), packer.flush()]
    size = len(first) + 300 * len(piece) + len(last)
    return payload_of(log, b"".join(data), size)


def wide_table(width: int) -> Iterator[bytes]:
    """Send the table map of a table with very many columns."""
    log = started()
    log.add(b.TABLE_MAP, b.table_map_body([INT] * width))
    return iter((log.as_stream(),))


def many_names() -> Iterator[bytes]:
    """Send a table map with a million names for one column."""
    log = started()
    names = b"\4" + b.packed(MIB) + bytes(MIB)
    log.add(b.TABLE_MAP, b.table_map_body([INT], optional=names))
    return iter((log.as_stream(),))


def many_tables() -> Iterator[bytes]:
    """Send large table maps of very many tables in one statement."""
    log = started()
    yield log.as_stream()
    optional = b"\x20" + b.packed(MIB) + bytes(MIB)
    for number in range(1, 2000):
        log.events.clear()
        body = b.table_map_body([INT], table_id=number, optional=optional)
        log.add(b.TABLE_MAP, body)
        yield log.as_stream()


def null_rows(
    width: int = 8, size: int = 10 * MIB
) -> tuple[list[tuple[int, bytes]], bytes]:
    """Return columns and the body of a row event in which all of them are NULL."""
    row = b"\xff" * (width // 8)
    return [INT] * width, b.rows_body(width, row * (size // len(row)))


def null_event() -> Iterator[bytes]:
    """Send 10 MiB of rows that are all NULL."""
    log = started()
    columns, body = null_rows()
    log.add(b.TABLE_MAP, b.table_map_body(columns))
    log.add(b.WRITE_ROWS, body)
    log.xid()
    return iter((log.as_stream(),))


def compressed_null_event() -> Iterator[bytes]:
    """Send such rows compressed as MariaDB does, some KB."""
    log = started(version="11.4.2-MariaDB")
    columns, body = null_rows()
    at = len(b.rows_body(8, b""))
    data = zlib.compress(body[at:])
    size = (len(body) - at).to_bytes(4, "big")
    log.add(b.TABLE_MAP, b.table_map_body(columns))
    log.add(169, body[:at] + b"\x84" + size + data)  # WRITE_ROWS_COMPRESSED
    log.xid()
    return iter((log.as_stream(),))


def compressed_event_above() -> Iterator[bytes]:
    """Announce more inflated bytes than an event may have."""
    log = started(version="11.4.2-MariaDB")
    data = b"\x84" + (900 * MIB).to_bytes(4, "big") + zlib.compress(bytes(MIB))
    log.add(b.QUERY_COMPRESSED, b.query_body(b"") + data)
    return iter((log.as_stream(),))


def compressed_values() -> Iterator[bytes]:
    """Send a row of values that each inflate to 6 MiB, 300 MiB together."""
    log = started(version="11.4.2-MariaDB")
    size = 6 * MIB
    value = b"\x84" + size.to_bytes(4, "big") + zlib.compress(bytes(size))
    column = len(value).to_bytes(TEXT_LENGTH, "little") + value
    log.add(b.TABLE_MAP, b.table_map_body([COMPRESSED_COLUMN] * 50))
    log.add(b.WRITE_ROWS, b.rows_body(50, bytes(7) + column * 50))
    return iter((log.as_stream(),))


def compressed_value_above() -> Iterator[bytes]:
    """Announce a value that inflates to more than an event may have."""
    log = started(version="11.4.2-MariaDB")
    size = 600 * MIB
    value = b"\x84" + size.to_bytes(4, "big") + zlib.compress(bytes(MIB))
    column = len(value).to_bytes(TEXT_LENGTH, "little") + value
    log.add(b.TABLE_MAP, b.table_map_body([COMPRESSED_COLUMN]))
    log.add(b.WRITE_ROWS, b.rows_body(1, b"\0" + column))
    return iter((log.as_stream(),))


def long_file_name() -> Iterator[bytes]:
    """Rotate to a file whose name has a MiB."""
    log = started()
    log.add(b.ROTATE, (4).to_bytes(8, "little") + b"x" * MIB)
    return iter((log.as_stream(),))


def blob_row() -> Iterator[bytes]:
    """Send what is allowed: a row with a BLOB of 200 MiB."""
    log = started()
    value = bytes(200 * MIB)
    row = b"\0" + len(value).to_bytes(TEXT_LENGTH, "little") + value
    log.add(b.TABLE_MAP, b.table_map_body([BLOB]))
    log.add(b.WRITE_ROWS, b.rows_body(1, row))
    log.xid()
    return iter((log.as_stream(),))


INTS = ("int",) * 8
BLOBS = ("longblob",)
# What is sent, the limit of an event, and the types of the table's columns.
CASES: dict[str, tuple[Callable[[], Iterator[bytes]], int, tuple[str, ...]]] = {
    "endless_packets": (endless_packets, 1 << 30, INTS),
    "endless_continuation": (endless_continuation, 1 << 30, INTS),
    "endless_error": (endless_error, 1 << 30, INTS),
    "long_event": (long_event, 8 * MIB, INTS),
    "payload_with_large_event": (payload_with_large_event, 1 << 30, INTS),
    "payload_beyond_its_size": (payload_beyond_its_size, 1 << 30, INTS),
    "large_transaction": (large_transaction, 1 << 30, BLOBS),
    "wide_table": (partial(wide_table, 1_000_000), 1 << 30, INTS),
    "many_names": (many_names, 1 << 30, INTS),
    "many_tables": (many_tables, 1 << 30, ("int",)),
    "null_event": (null_event, 1 << 30, INTS),
    "compressed_null_event": (compressed_null_event, 1 << 30, INTS),
    "compressed_event_above": (compressed_event_above, 8 * MIB, INTS),
    "compressed_values": (compressed_values, 8 * MIB, BLOBS * 50),
    "compressed_value_above": (compressed_value_above, 8 * MIB, BLOBS),
    "long_file_name": (long_file_name, 1 << 30, INTS),
    "blob_row": (blob_row, 1 << 30, BLOBS),
}


class AnyTable(Images):
    """The same columns for each table."""

    def find(self, schema: str, table: str, position: object = None):
        """Return them."""
        return super().find(schema, "t", position)


def main(case: str) -> None:
    """Read one of the cases."""
    make, bytes_max, types = CASES[case]
    source = Source(make())
    seen = {"entries": 0, "rows": 0, "bytes": 0}

    def deliver(spans: list[Span]) -> bool:
        for block, first, stop in spans:
            records = [block.record(i) for i in range(first, stop)]
            kinds = [each for each in records if each["event_type"]]
            seen["entries"] += len(kinds)
            seen["rows"] += sum(each["rows"] for each in kinds)
            seen["bytes"] += block.size_of(first, stop)
        return True

    reader = Reader(
        BlockPool(),
        TableIds(),
        AnyTable(t=types),
        table_filter=lambda _names: True,
        columns=ColumnFilter("", ""),
        filters=FilterConfig(),
        events=EventConfig(bytes_max=bytes_max),
        error_of_packet=lambda body: DecodeError(f"refused with {len(body)} bytes"),
    )
    reader.start("bin.000001", 4)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_MAX, ADDRESS_SPACE_MAX))
    error = ""
    try:
        reader.run(source, deliver, lambda: None, Stop())
    except (DecodeError, MemoryError) as raised:
        error = f"{type(raised).__name__}: {raised}"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({**seen, "error": error, "given": source.given,
                      "grown": grown * 1024}))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
