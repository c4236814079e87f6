"""Framing of streams and of compressed transactions, checksums, and positions."""

from __future__ import annotations

import struct

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog, in_packets
from binlog_driver import INT, Driven, small_log, transaction, values_of

from canal_server.decoder.events import engine
from canal_server.errors import DecodeError
from canal_server.model.columns_known import ColumnMeta, TableMeta
from canal_server.model.entry import EntryType

# --- framing ------------------------------------------------------------------------


@pytest.mark.parametrize("packets", [True, False])
def test_split_at_every_byte(*, packets: bool) -> None:
    """Wherever the stream is cut in two, the entries are the same."""
    log = small_log()
    stream = log.as_stream() if packets else b"".join(log.events)
    whole = Driven(packets=packets)
    whole.feed(stream)
    assert values_of(whole.entries) == ["1", "2", "3"]
    for cut in range(1, len(stream)):
        parts = Driven(packets=packets)
        parts.feed(stream[:cut])
        parts.feed(stream[cut:])
        assert parts.fields == whole.fields, cut


@pytest.mark.parametrize("packets", [True, False])
def test_byte_by_byte(*, packets: bool) -> None:
    """A stream that comes one byte at a time gives the same entries."""
    log = small_log()
    stream = log.as_stream() if packets else b"".join(log.events)
    driven = Driven(packets=packets)
    for at in range(len(stream)):
        driven.feed(stream[at : at + 1])
        assert driven.decoder.missing > 0
    assert values_of(driven.entries) == ["1", "2", "3"]
    assert driven.decoder.events == len(log.events)
    assert driven.decoder.bytes_in == len(stream)


def test_missing_says_what_the_packet_lacks() -> None:
    """While an event is incomplete, `missing` is what it still needs."""
    event = small_log().as_stream()[:100]
    driven = Driven()
    assert driven.decoder.missing == 4
    driven.feed(event[:4])
    expected = int.from_bytes(event[:3], "little")
    assert driven.decoder.missing == expected
    driven.feed(event[4:20])
    assert driven.decoder.missing == expected - 16


@pytest.mark.slow
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_event_of_sixteen_mebibytes(extra: int) -> None:
    """An event of more than a packet is put together, at the edge of a packet, too."""
    log = Binlog()
    log.start()
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT, (b.BLOB, b"\4")]))
    head = b.rows_body(2, b"\0" + (7).to_bytes(4, "little"))
    size = 0xFFFFFF - 1 - 19 - 4 - len(head) - 4 + extra
    log.add(b.WRITE_ROWS, head + size.to_bytes(4, "little") + b"x" * size)
    log.xid()
    driven = Driven()
    driven.meta = TableMeta(
        "db", "t", (ColumnMeta("a", "int"), ColumnMeta("b", "blob"))
    )
    stream = log.as_stream()
    half = len(stream) // 2
    driven.feed(stream[:half])
    driven.feed(stream[half:])
    begin, rows, end = driven.entries
    assert (begin.entry_type, end.entry_type) == (
        EntryType.TRANSACTIONBEGIN,
        EntryType.TRANSACTIONEND,
    )
    columns = rows.row_change().row_datas[0].after_columns
    assert columns[0].value == "7"
    assert columns[1].value == "x" * size


@pytest.mark.slow
def test_event_of_three_packets() -> None:
    """An event of more than two packets is put together."""
    log = Binlog()
    log.start()
    log.add(b.TABLE_MAP, b.table_map_body([(b.BLOB, b"\4")]))
    size = 2 * 0xFFFFFF + 12345
    value = bytes(range(97, 122)) * (size // 25 + 1)
    body = b.rows_body(1, b"\0" + size.to_bytes(4, "little") + value[:size])
    log.add(b.WRITE_ROWS, body)
    log.xid()
    driven = Driven()
    driven.meta = TableMeta("db", "t", (ColumnMeta("b", "blob"),))
    driven.feed(log.as_stream())
    rows, end = driven.entries
    assert (
        rows.row_change().row_datas[0].after_columns[0].value.encode() == value[:size]
    )
    assert end.entry_type == EntryType.TRANSACTIONEND


@pytest.mark.parametrize(
    ("packet", "halt"),
    [
        (b"\xff\x48\x04#HY000gone", "HALT_SOURCE_ERROR"),
        (b"\xfe\0\0\2\0", "HALT_SOURCE_END"),
    ],
)
def test_packets_that_are_no_events(packet: bytes, halt: str) -> None:
    """An ERR and an EOF packet halt, with what they say as the body."""
    log = small_log()
    driven = Driven()
    head = len(packet).to_bytes(3, "little") + b"\x20"
    driven.feed(log.as_stream() + head + packet)
    assert driven.halts[-1] == getattr(engine, halt)
    assert driven.bodies[-1] == packet[1:]
    assert values_of(driven.entries) == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"\0\0\0\1", "an empty packet"),
        (b"\1\0\0\1\x05", "begins with 5"),
        (b"\6\0\0\1\0abcde", "a header of 5 bytes"),
        (
            in_packets(struct.pack("<IBIIIH", 1, b.XID, 1, 99, 0, 0)),
            "a length of 99 that differs from its packet's",
        ),
    ],
)
def test_broken_packets(stream: bytes, message: str) -> None:
    """A stream of other data is refused with the reason."""
    driven = Driven()
    with pytest.raises(DecodeError, match=message) as caught:
        driven.feed(stream)
    assert caught.value.file == "bin.000001"


def test_file_event_shorter_than_its_header() -> None:
    """In a file, a length below the header's is refused."""
    driven = Driven(packets=False)
    with pytest.raises(DecodeError, match="a length of 18"):
        driven.feed(struct.pack("<IBIIIH", 1, b.XID, 1, 18, 0, 0))


# --- checksums and positions --------------------------------------------------------


def test_wrong_checksum() -> None:
    """A flipped bit is detected, its event is named, earlier events are valid."""
    log = small_log()
    at = 4 + sum(len(event) for event in log.events[:6])
    damaged = bytearray(log.events[6])
    damaged[30] ^= 4
    driven = Driven()
    with pytest.raises(DecodeError, match="checksum is wrong") as caught:
        driven.feed(
            b"".join(map(in_packets, log.events[:6])) + in_packets(bytes(damaged))
        )
    assert caught.value.position == at
    assert f"bin.000001:{at}" in str(caught.value)
    assert values_of(driven.entries) == ["1", "2"]


@pytest.mark.parametrize("packets", [True, False], ids=["stream", "file"])
@pytest.mark.parametrize("length", [0, 18, 0x7FFFFFFF, 0xFFFFFFFF])
def test_position_of_a_wrong_length(length: int, *, packets: bool) -> None:
    """An event whose header is damaged is where the one before it ended."""
    log = small_log()
    at = 4 + sum(len(event) for event in log.events[:6])
    damaged = bytearray(log.events[6])
    damaged[9:13] = struct.pack("<I", length)
    events = [*log.events[:6], bytes(damaged), *log.events[7:]]
    stream = b"".join(map(in_packets, events) if packets else events)
    driven = Driven(packets=packets)
    with pytest.raises(DecodeError) as caught:
        driven.feed(stream)
    assert caught.value.position == at


@pytest.mark.parametrize("packet", [b"", b"\xfbname", b"\0short"])
def test_position_of_what_is_no_event(packet: bytes) -> None:
    """It is not the event before it, whose end is where the next one begins."""
    log = small_log()
    driven = Driven()
    head = len(packet).to_bytes(3, "little") + b"\x20"
    with pytest.raises(DecodeError, match="event type 0") as caught:
        driven.feed(log.as_stream() + head + packet)
    assert caught.value.position == log.position


@pytest.mark.parametrize("packets", [True, False], ids=["stream", "file"])
def test_position_in_a_damaged_header(*, packets: bool) -> None:
    """A position before the end of the last event is none that an event has."""
    log = small_log()
    at = 4 + sum(len(event) for event in log.events[:6])
    damaged = bytearray(log.events[6])
    damaged[13:17] = struct.pack("<I", 130)
    events = [*log.events[:6], bytes(damaged)]
    driven = Driven(packets=packets)
    with pytest.raises(DecodeError, match="checksum is wrong") as caught:
        driven.feed(b"".join(map(in_packets, events) if packets else events))
    assert caught.value.position == at


def test_without_checksums() -> None:
    """A format description can disable checksums."""
    driven = Driven()
    driven.feed(small_log(checksums=False).as_stream())
    assert values_of(driven.entries) == ["1", "2", "3"]


def test_format_description_of_a_file_in_use() -> None:
    """Its checksum was made before its flag was set."""
    log = Binlog()
    log.start(flags=b.IN_USE)
    transaction(log, 1)
    driven = Driven()
    driven.feed(log.as_stream())
    assert values_of(driven.entries) == ["1"]
    assert driven.decoder.server_version == b.MYSQL


def test_damaged_format_description() -> None:
    """A format description with a wrong checksum is refused, too."""
    log = Binlog()
    log.start(checksum=b"abcd")
    with pytest.raises(DecodeError, match="checksum is wrong"):
        Driven().feed(log.as_stream())


def test_short_format_description() -> None:
    """A format description without its list is refused, not read past."""
    log = Binlog()
    log.add(b.FORMAT, b.format_body()[:40])
    with pytest.raises(DecodeError, match="format description"):
        Driven().feed(log.as_stream())


@pytest.mark.parametrize("version", ["5.1.73", "5.5.62"])
def test_old_servers_have_no_checksums(version: str) -> None:
    """An old server's bytes at the checksum's offset are not a checksum."""
    log = Binlog(checksums=False)
    body = b.format_body(version)[:-1]
    log.events.append(
        struct.pack("<IBIIIH", 1, b.FORMAT, 1, 19 + len(body) + 24, 200, 0)
        + body
        + bytes(24)
    )
    log.position = 200
    transaction(log, 1)
    driven = Driven()
    driven.feed(log.as_stream())
    assert driven.decoder.server_version == version
    assert values_of(driven.entries) == ["1"]


@pytest.mark.parametrize("checksums", [True, False])
def test_artificial_rotate_at_the_head(*, checksums: bool) -> None:
    """The rotate that a server makes up names the file, with a checksum or without."""
    log = Binlog(checksums=checksums)
    log.add(b.ROTATE, struct.pack("<Q", 4) + b"bin.000042", placed=False)
    log.start()
    transaction(log, 1)
    driven = Driven()
    driven.feed(log.as_stream())
    assert driven.decoder.file == "bin.000042"
    header = driven.entries[1].header
    assert header.logfile_name == "bin.000042"
    assert header.logfile_offset == 4 + sum(map(len, log.events[1:4]))


def test_rotate_within_the_stream() -> None:
    """After a rotate, entries name the new file, and use another block."""
    log = small_log()
    log.add(b.ROTATE, struct.pack("<Q", 4) + b"bin.000002")
    log.position = 4
    log.start()
    transaction(log, 9)
    driven = Driven()
    driven.feed(log.as_stream())
    names = [entry.header.logfile_name for entry in driven.entries]
    assert names == ["bin.000001"] * 6 + ["bin.000002"] * 3
    assert driven.decoder.position == log.position


def test_positions_of_records() -> None:
    """Each record has its event's offset, length and time."""
    log = small_log()
    driven = Driven()
    driven.feed(log.as_stream())
    offsets = {}
    at = 4
    for event in log.events:
        offsets[at] = len(event)
        at += len(event)
    for record, entry in zip(driven.records, driven.entries, strict=True):
        assert entry.header.logfile_offset == record["offset"]
        assert offsets[record["offset"]] == record["event_length"]
        assert entry.header.event_length == record["event_length"]
        assert entry.header.execute_time == record["time"] * 1000 == log.time * 1000
        assert entry.header.server_id == log.server_id


def test_offsets_beyond_four_gibibytes() -> None:
    """The 32 bits of a position that wrap around are counted on."""
    log = Binlog(position=(1 << 32) - 150)
    log.begin()
    transaction(log, 1)
    driven = Driven()
    driven.decoder.start("bin.000001", (1 << 32) - 150)
    driven.feed(log.as_stream())
    offsets = [entry.header.logfile_offset for entry in driven.entries]
    assert offsets == sorted(offsets)
    assert offsets[0] == (1 << 32) - 150
    assert offsets[-1] > 1 << 32
    assert driven.decoder.position == log.position > 1 << 32


def test_limit() -> None:
    """Decoding ends at the limit, before the first event after it."""
    log = small_log()
    limit = 4 + sum(map(len, log.events[:5]))
    driven = Driven()
    driven.decoder.set_limit(limit)
    driven.feed(log.as_stream())
    assert driven.last_halt == engine.HALT_LIMIT
    assert driven.decoder.position == limit
    assert values_of(driven.entries) == ["1", "2"]


# --- compressed transactions --------------------------------------------------------


def inner_feed(driven: Driven, data: bytes) -> None:
    """Give bytes to the current payload's feed."""
    inner = driven.decoder.inner
    with inner.space(len(data)) as space:
        space[: len(data)] = data
    inner.filled(len(data))


def at_payload() -> tuple[Driven, Binlog]:
    """Return a decoder that stands at a compressed transaction."""
    log = Binlog()
    log.start()
    log.add(b.PAYLOAD, b"its data, as Python reads it")
    driven = Driven()
    stream = log.as_stream()
    with driven.decoder.feed.space(len(stream)) as space:
        space[: len(stream)] = stream
    driven.decoder.feed.filled(len(stream))
    assert driven.decoder.decode() == engine.HALT_PAYLOAD
    driven.decoder.begin_payload()
    return driven, log


def inner_transaction() -> bytes:
    """Return the events of a transaction as they lie in a payload."""
    return (
        b.inner(b.QUERY, b.query_body(b"BEGIN"))
        + b.inner(b.TABLE_MAP, b.table_map_body([INT]))
        + b.inner(b.WRITE_ROWS, b.rows_body(1, b.int_row(1)))
        + b.inner(b.WRITE_ROWS, b.rows_body(1, b.int_row(2)))
        + b.inner(b.XID, (9).to_bytes(8, "little"))
    )


def test_inner_events() -> None:
    """Inner events have the payload's position, and are numbered within it."""
    events = inner_transaction()
    for cut in (0, 1, 18, 19, 40, len(events) - 1):
        driven, log = at_payload()
        inner_feed(driven, events[:cut])
        driven.decode()
        inner_feed(driven, events[cut:])
        driven.decode()
        driven.decoder.finish_payload()
        driven.decode()
        assert values_of(driven.entries) == ["1", "2"]
        offset = 4 + len(log.events[0])
        assert {entry.header.logfile_offset for entry in driven.entries} == {offset}
        assert {record["event_length"] for record in driven.records} == {
            len(log.events[1])
        }
        assert [record["ordinal"] for record in driven.records] == [0, 2, 3, 4]
        assert driven.decoder.position == log.position


def test_inner_events_that_end_early() -> None:
    """Bytes after the last complete inner event are an error."""
    driven, log = at_payload()
    inner_feed(driven, inner_transaction()[:-1])
    driven.decode()
    with pytest.raises(DecodeError, match="26 bytes left") as caught:
        driven.decoder.finish_payload()
    assert caught.value.position == 4 + len(log.events[0])


@pytest.mark.parametrize(
    "kind", [b.FORMAT, b.ROTATE, b.PAYLOAD, b.QUERY_COMPRESSED, 171]
)
def test_inner_events_that_cannot_be(kind: int) -> None:
    """A payload within a payload and the like are refused."""
    driven, _ = at_payload()
    inner_feed(driven, b.inner(kind, bytes(4)))
    with pytest.raises(DecodeError, match="inside a compressed event"):
        driven.decode()


def test_inner_event_with_an_impossible_length() -> None:
    """An inner length below the header's is refused."""
    driven, _ = at_payload()
    inner_feed(driven, struct.pack("<IBIIIH", 1, b.XID, 1, 3, 0, 0))
    with pytest.raises(DecodeError, match="an inner event with a length of 3"):
        driven.decode()
