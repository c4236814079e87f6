"""Kinds of events: what is read, left out, refused, or handed to Python."""

from __future__ import annotations

import struct

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog
from binlog_driver import Driven, small_log, transaction, values_of
from golden_form import entries_of

from canal_server.core.blocks import BlockPool
from canal_server.decoder.events import engine
from canal_server.decoder.events.engine import Decoder
from canal_server.errors import DecodeError
from canal_server.model.entry import EventType


@pytest.mark.parametrize("kind", [43, 99, 159, 173, 255])
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


@pytest.mark.parametrize("skips_unknown", [False, True])
def test_fragments_of_rows(*, skips_unknown: bool) -> None:
    """MariaDB's fragments of rows are refused with the variable, and never skipped."""
    log = Binlog()
    log.start()
    log.add(b.PARTIAL_ROW_DATA, struct.pack("<IIBQ", 2, 1, 1, 100) + bytes(50))
    with pytest.raises(DecodeError, match="binlog_row_event_fragment_threshold"):
        Driven(skip_unknown=skips_unknown).feed(log.as_stream())


@pytest.mark.parametrize("kind", [20, 21, 22])
def test_row_events_of_ancient_servers(kind: int) -> None:
    """Obsolete row events are refused, not skipped."""
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


def test_heartbeats_of_the_second_kind() -> None:
    """A heartbeat with the position in its body moves the position forward."""
    log = small_log()
    far = log.position + (5 << 32)
    for offset in (far, 4):
        value = b.packed(offset)
        name = b"bin.000001"
        fields = bytes((1, len(name))) + name + bytes((2, len(value))) + value
        log.add(b.HEARTBEAT_V2, fields + b"\0", placed=False)
    for broken in (b"", b"\2", b"\1\xff", b"\2\1\xfe", b"\1\xfe\xff\xff"):
        log.add(b.HEARTBEAT_V2, broken, placed=False)
    driven = Driven()
    driven.feed(log.as_stream())
    assert driven.decoder.heartbeats == 7
    assert driven.decoder.position == far


def _statement(sql: bytes) -> tuple[int, bytes]:
    return b.QUERY, b.query_body(sql)


GTID = (b.GTID, b.gtid_body(bytes(16), 7))
ALONE = (b.MARIA_GTID, bytes(12) + b"\1")
GROUP = (b.MARIA_GTID, bytes(13))
XID = (b.XID, bytes(8))
BEGIN, COMMIT, ROLLBACK = map(_statement, (b"BEGIN", b"COMMIT", b"ROLLBACK"))
DDL, SAVEPOINT = map(_statement, (b"DROP TABLE t", b"SAVEPOINT a"))
CREATES = _statement(b"CREATE TABLE t (a INT) START TRANSACTION")
XA_START, XA_END = map(_statement, (b"XA START 'a'", b"XA END 'a'"))
XA_COMMIT = _statement(b"XA COMMIT 'a'")
INTVAR = (b.INTVAR, bytes(9))
FORMAT = (b.FORMAT, b.format_body())
MAP = (b.TABLE_MAP, b.table_map_body([(b.LONG, b"")]))


@pytest.mark.parametrize(
    ("events", "settled"),
    [
        ([], False),
        ([DDL], False),
        ([INTVAR, DDL], False),
        ([FORMAT], True),
        ([FORMAT, BEGIN], False),
        ([GTID], False),
        ([GTID, DDL], True),
        ([GTID, INTVAR, DDL], True),
        ([GTID, INTVAR], False),
        ([FORMAT, INTVAR], False),
        ([GTID, BEGIN], False),
        ([GTID, BEGIN, MAP, XID], True),
        ([GTID, BEGIN, DDL], False),
        ([GTID, BEGIN, SAVEPOINT], False),
        ([GTID, BEGIN, COMMIT], True),
        ([GTID, BEGIN, ROLLBACK], True),
        ([GTID, CREATES], False),
        ([GTID, CREATES, MAP, XID], True),
        ([GTID, XA_START, XA_END], False),
        ([GTID, XA_START, XA_END, (b.XA_PREPARE, bytes(13))], True),
        ([GTID, XA_COMMIT], True),
        ([XID], True),
        ([XID, MAP], False),
        ([ALONE], False),
        ([ALONE, DDL], True),
        ([GROUP, DDL], False),
        ([GROUP, DDL, MAP, XID], True),
        ([GTID, BEGIN, FORMAT], True),
        ([XID, (b.STOP, b"")], True),
        ([XID, (b.PREVIOUS_GTIDS, bytes(8))], True),
    ],
)
def test_a_position_between_transactions(events, settled) -> None:
    """Each event shows whether reading can start at the current end."""
    log = Binlog()
    log.start(placed=False)
    for kind, body in events:
        log.add(kind, body)
    driven = Driven()
    driven.feed(log.as_stream())
    assert driven.decoder.is_settled == settled
    assert driven.decoder.position == log.position


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
    decoder.emit(
        b"\x10\x04", event_type=4, names=b"\x42\x02db\x4a\x01t", table_ordinal=3
    )
    assert decoder.decode() == engine.HALT_NEED_INPUT
    ((block, first, stop),) = decoder.take()
    (entry,) = entries_of(bytes(block.slice(first, stop)))
    assert entry.header.event_type == EventType.CREATE
    assert (entry.header.schema_name, entry.header.table_name) == ("db", "t")
    assert entry.row_change().event_type == EventType.CREATE
    assert block.record(first)["table_ordinal"] == 3


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
