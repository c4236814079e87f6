"""Framing of streams, events, and what the engine asks for; rows are elsewhere."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog, in_packets
from binlog_driver import INT, Driven, meta
from golden_form import entries_of

from canal_server.core.blocks import BlockPool
from canal_server.core.gtid import GtidSet
from canal_server.core.maria_gtid import MariaGtidSet
from canal_server.decoder import engine
from canal_server.decoder.engine import Decoder
from canal_server.errors import DecodeError
from canal_server.model.entry import EntryType, EventType
from canal_server.model.table import ColumnMeta, TableMeta

if TYPE_CHECKING:
    import random

    from canal_server.protocol.entries import Entry

SID = bytes(range(16))


def transaction(log: Binlog, *values: int, table_id: int = 5) -> None:
    """Append a transaction that inserts rows of one INT column."""
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT], table_id=table_id))
    rows = b"".join(map(b.int_row, values))
    log.add(b.WRITE_ROWS, b.rows_body(1, rows, table_id=table_id))
    log.xid()


def values_of(entries: list[Entry]) -> list[str]:
    """Return the first column's new value of every row."""
    return [
        row.after_columns[0].value
        for entry in entries
        if entry.entry_type == EntryType.ROWDATA
        for row in entry.row_change().row_datas
    ]


def small_log(*, checksums: bool = True) -> Binlog:
    """Return a binlog of two transactions."""
    log = Binlog(checksums=checksums)
    log.start()
    transaction(log, 1, 2)
    transaction(log, 3)
    return log


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
        driven.feed(b"".join(map(in_packets, log.events[:6])) + in_packets(damaged))
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


# --- GTIDs --------------------------------------------------------------------------


def test_gtids_of_mysql() -> None:
    """In GTID mode all of a transaction's entries carry the set and its own GTID."""
    log = Binlog()
    log.start()
    log.add(b.GTID, b.gtid_body(SID, 6, committed=11, sequence=12))
    transaction(log, 1)
    driven = Driven(gtids=GtidSet.parse("00010203-0405-0607-0809-0a0b0c0d0e0f:1-5"))
    driven.feed(log.as_stream())
    sid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    for entry in driven.entries:
        assert entry.header.gtid == f"{sid}:1-6"
        props = {pair.key: pair.value for pair in entry.header.props}
        props.pop("rowsCount", None)
        assert props == {
            "curtGtid": f"{sid}:6",
            "curtGtidSn": "12",
            "curtGtidLct": "11",
        }
    assert all(record["flags"] & 1 for record in driven.records)


def test_gtid_without_logical_clock() -> None:
    """A GTID event of an old server gives zeros for its clock."""
    log = Binlog()
    log.start()
    log.add(b.GTID, b.gtid_body(SID, 6)[:25])
    log.begin()
    driven = Driven(gtids=GtidSet())
    driven.feed(log.as_stream())
    props = {pair.key: pair.value for pair in driven.entries[0].header.props}
    assert (props["curtGtidSn"], props["curtGtidLct"]) == ("0", "0")


def test_anonymous_transactions_do_not_enter_the_set() -> None:
    """The transaction behind an anonymous GTID has no GTID, nor that before it."""
    log = Binlog()
    log.start()
    log.add(b.GTID, b.gtid_body(SID, 6))
    transaction(log, 1)
    log.add(b.ANONYMOUS_GTID, b.gtid_body(bytes(16), 0))
    transaction(log, 2)
    driven = Driven(gtids=GtidSet())
    driven.feed(log.as_stream())
    gtids = [bool(entry.header.gtid) for entry in driven.entries]
    assert gtids == [True] * 3 + [False] * 3


def test_gtids_outside_gtid_mode() -> None:
    """Without GTID mode no entry says anything of GTIDs."""
    log = Binlog()
    log.start()
    log.add(b.GTID, b.gtid_body(SID, 6))
    transaction(log, 1)
    driven = Driven()
    driven.feed(log.as_stream())
    assert not any(entry.header.gtid for entry in driven.entries)
    assert {pair.key for e in driven.entries for pair in e.header.props} == {
        "rowsCount"
    }


def test_gtids_of_mariadb() -> None:
    """MariaDB's set follows its events; entries carry the set and nothing else."""
    log = Binlog()
    log.start()
    log.server_id = 11
    for number in (7, 8):
        log.add(b.MARIA_GTID, struct.pack("<QIB", number, 0, 0) + bytes(6))
        log.xid()
    driven = Driven(gtids=MariaGtidSet.parse("0-11-6,1-5-9"))
    driven.feed(log.as_stream())
    assert [entry.header.gtid for entry in driven.entries] == [
        "0-11-7,1-5-9",
        "0-11-8,1-5-9",
    ]
    assert not any(entry.header.props for entry in driven.entries)


@pytest.mark.parametrize(
    ("kind", "gtids"),
    [
        (b.GTID, GtidSet()),
        (b.GTID_TAGGED, GtidSet()),
        (b.MARIA_GTID, MariaGtidSet()),
    ],
)
def test_short_gtids(kind: int, gtids: GtidSet | MariaGtidSet) -> None:
    """A GTID event that ends early is refused in GTID mode."""
    log = Binlog()
    log.add(kind, bytes(12))
    with pytest.raises(DecodeError, match=f"event type {kind}"):
        Driven(gtids=gtids).feed(log.as_stream())


def test_gtids_must_be_a_set() -> None:
    """A text in the place of a set is our own mistake and says so."""
    with pytest.raises(TypeError, match="no GTID set"):
        Decoder(BlockPool(), gtids="a:1")  # type: ignore[arg-type]


def test_long_sets_grow() -> None:
    """A set of many ranges is rendered whole for every transaction."""
    gtids = GtidSet.parse(
        "00010203-0405-0607-0809-0a0b0c0d0e0f:"
        + ":".join(str(2 * n + 1) for n in range(2000))
    )
    log = Binlog()
    log.start()
    for number in (5001, 5003):
        log.add(b.GTID, b.gtid_body(SID, number))
        log.begin()
    driven = Driven(gtids=gtids)
    driven.feed(log.as_stream())
    texts = [entry.header.gtid for entry in driven.entries]
    assert texts[0].endswith(":3999:5001")
    assert texts[1].endswith(":3999:5001:5003")


# --- table maps and rows ------------------------------------------------------------


def test_tables_are_asked_for_once() -> None:
    """The same table map again does not ask; another body with the same id does."""
    log = small_log()
    driven = Driven()
    driven.feed(log.as_stream())
    assert driven.tables_asked == 1
    more = Binlog(position=log.position)
    more.add(b.TABLE_MAP, b.table_map_body([INT, INT]))
    more.add(b.WRITE_ROWS, b.rows_body(2, b.int_row(4, 5)))
    driven.meta = meta("a", "b")
    driven.feed(more.as_stream())
    assert driven.tables_asked == 2
    assert values_of(driven.entries)[-1] == "4"


def test_rows_of_tables_that_are_not_wanted() -> None:
    """No image, no entry; the table map's rows are left out without reading them."""
    log = Binlog()
    log.start()
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    log.add(b.WRITE_ROWS, b.rows_body(1, b"nonsense"))
    log.xid()
    decoder = Decoder(BlockPool())
    stream = log.as_stream()
    with decoder.feed.space(len(stream)) as space:
        space[: len(stream)] = stream
    decoder.feed.filled(len(stream))
    assert decoder.decode() == engine.HALT_TABLE
    decoder.install_table(None)
    assert decoder.decode() == engine.HALT_NEED_INPUT
    ((block, first, stop),) = decoder.take()
    assert [block.record(i)["kind"] for i in range(first, stop)] == [3]


def test_forgotten_tables_still_serve_their_rows() -> None:
    """After `forget_tables` the next table map asks; rows before it do not suffer."""
    log = small_log()
    driven = Driven()
    driven.feed(b"".join(map(in_packets, log.events[:3])))
    driven.decoder.forget_tables()
    driven.feed(b"".join(map(in_packets, log.events[3:])))
    assert values_of(driven.entries) == ["1", "2", "3"]
    assert driven.tables_asked == 2


def test_more_tables_than_the_cache_holds() -> None:
    """Thousands of tables come and go; rows always find theirs."""
    log = Binlog()
    log.start()
    for number in range(9000):
        transaction(log, number, table_id=number * 3 + 1)
    driven = Driven()
    driven.feed(log.as_stream())
    assert values_of(driven.entries) == [str(number) for number in range(9000)]


def test_many_tables_in_one_transaction() -> None:
    """A transaction of more tables than are kept reads all its rows."""
    log = Binlog()
    log.start()
    log.begin()
    for number in range(3000):
        log.add(b.TABLE_MAP, b.table_map_body([INT], table_id=number))
    for number in range(3000):
        log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(number), table_id=number))
    driven = Driven()
    driven.feed(log.as_stream())
    assert len(values_of(driven.entries)) == 3000


def test_image_without_a_question() -> None:
    """Installing a table when none is asked for is our own mistake and says so."""
    with pytest.raises(ValueError, match="no table map is asked for"):
        Decoder(BlockPool()).install_table(None)


def test_rows_without_table_map() -> None:
    """Rows whose table map was not seen halt; the dummy that ends a statement not."""
    log = Binlog()
    log.start()
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(1)))
    driven = Driven()
    driven.feed(log.as_stream())
    assert driven.halts == [engine.HALT_NO_TABLE_MAP]
    log = Binlog()
    log.start()
    log.add(b.WRITE_ROWS, b.rows_body(1, b"", table_id=0xFFFFFF))
    driven = Driven()
    driven.feed(log.as_stream())
    assert driven.halts == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b.rows_body(2, b.int_row(1)), "rows of 2 columns"),
        (b.rows_body(1, b.int_row(1)[:-1]), "end early, in column 1"),
        (b.rows_body(1, b.int_row(1) + b"\0"), "end early, in column 1"),
        (b.rows_body(1, b"")[:-1], "ends early"),
        ((5).to_bytes(6, "little") + b"\1\0\1\0", "extra data of 1 bytes"),
        ((5).to_bytes(6, "little") + b"\1\0\xff\xff", "ends early"),
    ],
)
def test_broken_rows(body: bytes, message: str) -> None:
    """Rows that contradict their table map or end early are refused."""
    log = Binlog()
    log.start()
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    log.add(b.WRITE_ROWS, body)
    driven = Driven()
    with pytest.raises(DecodeError, match=message):
        driven.feed(log.as_stream())


@pytest.mark.parametrize(
    ("option", "left"),
    [
        ("skip_inserts", [EventType.UPDATE, EventType.DELETE]),
        ("skip_updates", [EventType.INSERT, EventType.DELETE]),
        ("skip_deletes", [EventType.INSERT, EventType.UPDATE]),
        ("skip_rows", []),
    ],
)
def test_kinds_of_rows_that_are_left_out(option: str, left: list[EventType]) -> None:
    """Each option leaves out its kind of row event, in both versions."""
    log = Binlog()
    log.start()
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    for version, first in ((1, b.WRITE_ROWS_V1), (2, b.WRITE_ROWS)):
        row = b.int_row(1)
        log.add(first, b.rows_body(1, row, version=version))
        log.add(first + 1, b.rows_body(1, row + row, images=2, version=version))
        log.add(first + 2, b.rows_body(1, row, version=version))
    driven = Driven(**{option: True})
    driven.feed(log.as_stream())
    assert [entry.header.event_type for entry in driven.entries] == left * 2


def test_pause_within_a_long_feed() -> None:
    """A long stretch of input is handed out in parts, and nothing is lost."""
    log = Binlog()
    log.start()
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    rows = b"".join(b.int_row(n) for n in range(1000))
    for _ in range(30):
        log.add(b.WRITE_ROWS, b.rows_body(1, rows))
    decoder = Decoder(BlockPool())
    driven = Driven(decoder)
    driven.feed(log.as_stream())
    assert len(values_of(driven.entries)) == 30_000
    assert decoder.decode() == engine.HALT_NEED_INPUT


def test_random_streams_decode_alike_in_any_pieces(rng: random.Random) -> None:
    """Random transactions cut into random pieces give what they were made of."""
    log = Binlog(checksums=rng.random() < 0.5)
    log.start()
    wanted = []
    for _ in range(rng.randint(1, 40)):
        values = [
            rng.randint(-(1 << 31), (1 << 31) - 1) for _ in range(rng.randint(1, 300))
        ]
        transaction(log, *values, table_id=rng.randint(1, 9))
        wanted += map(str, values)
    packets = rng.random() < 0.5
    stream = log.as_stream() if packets else b"".join(log.events)
    driven = Driven(packets=packets)
    at = 0
    while at < len(stream):
        size = rng.choice((1, 7, 100, 5000, 100_000))
        driven.feed(stream[at : at + size])
        at += size
    assert values_of(driven.entries) == wanted
    assert driven.decoder.position == log.position


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
    """Inner events have the place of the payload, and are numbered within it."""
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
        assert [record["ordinal"] for record in driven.records] == [0, 1, 2, 3]
        assert driven.decoder.position == log.position


def test_inner_events_that_end_early() -> None:
    """Bytes left behind the last whole inner event are an error."""
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
    with pytest.raises(DecodeError, match="inside of a compressed event"):
        driven.decode()


def test_inner_event_with_an_impossible_length() -> None:
    """An inner length below the header's is refused."""
    driven, _ = at_payload()
    inner_feed(driven, struct.pack("<IBIIIH", 1, b.XID, 1, 3, 0, 0))
    with pytest.raises(DecodeError, match="an inner event with a length of 3"):
        driven.decode()
