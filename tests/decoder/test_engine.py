"""Framing of streams, checksums, positions, and kinds of events."""

from __future__ import annotations

import struct

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog, in_packets
from binlog_driver import INT, Driven, small_log, transaction, values_of
from golden_form import entries_of

from canal_server.core.blocks import BlockPool
from canal_server.decoder import engine
from canal_server.decoder.engine import Decoder
from canal_server.errors import DecodeError
from canal_server.model.entry import EntryType, EventType
from canal_server.model.table import ColumnMeta, TableMeta

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


def test_missing_tells_what_the_packet_lacks() -> None:
    """While an event is incomplete, `missing` is what it still wants."""
    event = small_log().as_stream()[:100]
    driven = Driven()
    assert driven.decoder.missing == 4
    driven.feed(event[:4])
    wanted = int.from_bytes(event[:3], "little")
    assert driven.decoder.missing == wanted
    driven.feed(event[4:20])
    assert driven.decoder.missing == wanted - 16


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
            "a length of 99 that is not its packet's",
        ),
    ],
)
def test_broken_packets(stream: bytes, message: str) -> None:
    """A stream that is none of events is refused with the reason."""
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
    """One flipped bit is noticed, its event is named, what came before is good."""
    log = small_log()
    at = 4 + sum(len(event) for event in log.events[:6])
    damaged = bytearray(log.events[6])
    damaged[30] ^= 4
    driven = Driven()
    with pytest.raises(DecodeError, match="checksum") as caught:
        driven.feed(
            b"".join(map(in_packets, log.events[:6])) + in_packets(bytes(damaged))
        )
    assert caught.value.position == at
    assert f"bin.000001:{at}" in str(caught.value)
    assert values_of(driven.entries) == ["1", "2"]


def test_without_checksums() -> None:
    """A format description that says so turns checksums off."""
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
    with pytest.raises(DecodeError, match="checksum"):
        Driven().feed(log.as_stream())


def test_short_format_description() -> None:
    """A format description without its list is refused, not read past."""
    log = Binlog()
    log.add(b.FORMAT, b.format_body()[:40])
    with pytest.raises(DecodeError, match="format description"):
        Driven().feed(log.as_stream())


@pytest.mark.parametrize("version", ["5.1.73", "5.5.62"])
def test_old_servers_have_no_checksums(version: str) -> None:
    """What stands at the checksum's place of an old server is not taken for one."""
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
    """Behind a rotate, entries name the new file, and their block is another."""
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
    """Each record tells where its event begins, how long it is, and when it was."""
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
    """Decoding ends at the limit, before the first event behind it."""
    log = small_log()
    limit = 4 + sum(map(len, log.events[:5]))
    driven = Driven()
    driven.decoder.set_limit(limit)
    driven.feed(log.as_stream())
    assert driven.last_halt == engine.HALT_LIMIT
    assert driven.decoder.position == limit
    assert values_of(driven.entries) == ["1", "2"]


# --- kinds of events ----------------------------------------------------------------


@pytest.mark.parametrize("kind", [43, 99, 159, 172, 255])
def test_unknown_events(kind: int) -> None:
    """An unknown event is an error unless its flag says that it may be ignored."""
    log = Binlog()
    log.start()
    log.add(kind, b"abc", flags=b.IGNORABLE)
    transaction(log, 1)
    driven = Driven()
    driven.feed(log.as_stream())
    assert values_of(driven.entries) == ["1"]
    log.add(kind, b"abc")
    with pytest.raises(DecodeError, match=rf"event type {kind}: unknown"):
        Driven().feed(log.as_stream())
    tolerant = Driven(skip_unknown=True)
    tolerant.feed(log.as_stream())
    assert values_of(tolerant.entries) == ["1"]


@pytest.mark.parametrize("kind", [20, 21, 22])
def test_row_events_of_ancient_servers(kind: int) -> None:
    """Row events that nobody reads any more are refused, not left out."""
    log = Binlog()
    log.add(kind, b"abc")
    with pytest.raises(DecodeError, match=r"before MySQL 5\.1"):
        Driven().feed(log.as_stream())


@pytest.mark.parametrize("packets", [True, False])
def test_encryption(*, packets: bool) -> None:
    """An encrypted file is refused; a server decrypts what it sends."""
    log = Binlog()
    log.start()
    log.add(b.START_ENCRYPTION, bytes(17))
    driven = Driven(packets=packets)
    if packets:
        driven.feed(log.as_stream())
        return
    with pytest.raises(DecodeError, match="encrypted"):
        driven.feed(b"".join(log.events))


def test_heartbeats_are_counted() -> None:
    """A heartbeat moves the position and delivers nothing."""
    log = small_log()
    at = log.position
    log.position -= 19 + 10 + 4
    log.add(b.HEARTBEAT, b"bin.000001")
    driven = Driven()
    driven.feed(log.as_stream())
    assert driven.decoder.heartbeats == 1
    assert driven.decoder.position == at


@pytest.mark.parametrize(
    ("sql", "kinds"),
    [
        (b"BEGIN", [EntryType.TRANSACTIONBEGIN]),
        (b"COMMIT", [EntryType.TRANSACTIONEND]),
        (b"SAVEPOINT `a`", []),
        (b"XA START X'31',X'',1", [EntryType.TRANSACTIONBEGIN]),
        (b"XA END X'31',X'',1", [EntryType.TRANSACTIONEND]),
        (b"XA COMMIT X'31',X'',1", [EntryType.ROWDATA]),
        (b"XA ROLLBACK X'31',X'',1", [EntryType.ROWDATA]),
    ],
)
def test_transaction_control(sql: bytes, kinds: list[EntryType]) -> None:
    """Statements that delimit transactions never reach Python."""
    log = Binlog()
    log.start()
    log.add(b.QUERY, b.query_body(sql, thread=300))
    driven = Driven()
    driven.feed(log.as_stream())
    assert [entry.entry_type for entry in driven.entries] == kinds
    assert driven.halts == []


def test_content_of_begin_and_end() -> None:
    """BEGIN tells its thread, END its XID; that of COMMIT is 0."""
    log = Binlog()
    log.start()
    log.add(b.QUERY, b.query_body(b"BEGIN", thread=300))
    log.xid((1 << 64) - 1)
    log.add(b.QUERY, b.query_body(b"BEGIN", thread=0))
    log.add(b.QUERY, b.query_body(b"COMMIT"))
    driven = Driven()
    driven.feed(log.as_stream())
    first, last, anonymous, commit = driven.entries
    assert first.transaction_begin().thread_id == 300
    assert last.transaction_end().transaction_id == str((1 << 64) - 1)
    assert anonymous.store_value == b""
    assert commit.transaction_end().transaction_id == "0"


def test_content_of_xa() -> None:
    """XA entries tell the kind and the xid as the statement has it."""
    log = Binlog()
    log.start()
    words = ("XA START", "XA END", "XA COMMIT", "XA ROLLBACK")
    for word in words:
        log.add(b.QUERY, b.query_body(f"{word} X'31',X'',1".encode()))
    log.add(b.QUERY, b.query_body(b"xa start 'low'"))
    driven = Driven()
    driven.feed(log.as_stream())
    start, end, commit, rollback, lower = driven.entries
    props = [
        start.transaction_begin().props,
        end.transaction_end().props,
        commit.row_change().props,
        rollback.row_change().props,
    ]
    for word, pairs in zip(words, props, strict=True):
        assert [(pair.key, pair.value) for pair in pairs] == [
            ("XA_TYPE", word),
            ("XA_XID", " X'31',X'',1"),
        ]
    assert commit.row_change().event_type == EventType.XACOMMIT
    assert rollback.header.event_type == EventType.XAROLLBACK
    assert rollback.row_change().sql == "XA ROLLBACK X'31',X'',1"
    assert [pair.value for pair in lower.transaction_begin().props] == ["XA START", ""]


def test_overlong_xa() -> None:
    """An XA statement longer than any xid is refused."""
    log = Binlog()
    log.add(b.QUERY, b.query_body(b"XA START '" + b"x" * 600 + b"'"))
    with pytest.raises(DecodeError, match="an XA statement of 611 bytes"):
        Driven().feed(log.as_stream())


def test_other_statements_halt() -> None:
    """DDL and the like are asked about; `emit` writes what Python answers."""
    log = Binlog()
    log.start()
    log.add(b.QUERY, b.query_body(b"CREATE TABLE t (a INT)"))
    decoder = Decoder(BlockPool())
    decoder.start("bin.000001", 4)
    stream = log.as_stream()
    with decoder.feed.space(len(stream)) as space:
        space[: len(stream)] = stream
    decoder.feed.filled(len(stream))
    assert decoder.decode() == engine.HALT_QUERY
    assert decoder.body == b.query_body(b"CREATE TABLE t (a INT)")
    assert (decoder.event_type, decoder.event_server_id) == (b.QUERY, 1)
    assert (decoder.event_time, decoder.event_offset) == (
        log.time,
        4 + len(log.events[0]),
    )
    decoder.emit(b"\x10\x04", event_type=4, names=b"\x42\x02db\x4a\x01t", subject=3)
    assert decoder.decode() == engine.HALT_NEED_INPUT
    ((block, first, stop),) = decoder.take()
    (entry,) = entries_of(bytes(block.slice(first, stop)))
    assert entry.header.event_type == EventType.CREATE
    assert (entry.header.schema_name, entry.header.table_name) == ("db", "t")
    assert entry.row_change().event_type == EventType.CREATE
    assert block.record(first)["subject"] == 3


def test_rare_events_halt() -> None:
    """Each event that Python reads is handed over with its body."""
    log = Binlog()
    kinds = (5, 13, 14, 18, 26, 29, 35, 160, 163, 165, 166, 171)
    for kind in kinds:
        log.add(kind, b"body of %d" % kind)
    driven = Driven()
    driven.feed(log.as_stream())
    assert driven.halts == [engine.HALT_EVENT] * len(kinds)
    assert driven.bodies == [b"body of %d" % kind for kind in kinds]


def test_short_events() -> None:
    """Events that the engine reads itself are refused when they end early."""
    for kind, size in (
        (b.QUERY, 12),
        (b.XID, 7),
        (b.TABLE_MAP, 7),
        (b.WRITE_ROWS, 9),
        (b.WRITE_ROWS_V1, 7),
    ):
        log = Binlog()
        log.add(kind, bytes(size))
        with pytest.raises(DecodeError, match=f"event type {kind}"):
            Driven().feed(log.as_stream())


def test_statement_whose_lengths_lie() -> None:
    """A statement with more status variables than bytes is refused."""
    log = Binlog()
    body = bytearray(b.query_body(b"BEGIN"))
    body[11:13] = b"\xff\xff"
    log.add(b.QUERY, bytes(body))
    with pytest.raises(DecodeError, match="a statement of 21 bytes ends early"):
        Driven().feed(log.as_stream())
