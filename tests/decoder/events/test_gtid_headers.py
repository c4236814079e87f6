"""GTIDs that the engine reads, and what entries say of them."""

from __future__ import annotations

import struct

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog
from binlog_driver import Driven, transaction

from canal_server.core.blocks import BlockPool
from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.decoder.events.engine import Decoder
from canal_server.decoder.events.gtid_headers import gtid_text, is_unfinished_alter
from canal_server.errors import DecodeError

SID = bytes(range(16))
SID_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"


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
    """The transaction of an anonymous GTID has no GTID, not even the previous one."""
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
    """Without GTID mode no entry has a GTID."""
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


@pytest.mark.parametrize(
    ("flags", "more", "expected"),
    [
        (0, bytes(6), False),
        (0, b"\x02" + bytes(5), True),
        (0, b"\x04" + bytes(8), False),
        (0, b"\x08" + bytes(8), True),
        (2, b"\xff" * 8, False),
        (2, b"\xff" * 8 + b"\x02", True),
        (2, bytes(8) + b"\x05\x01" + bytes(8), False),
        (64, b"\x02" * 30, False),
        (0, b"", False),
    ],
)
def test_an_alter_in_two_parts(flags: int, more: bytes, expected: bool) -> None:
    """Begin and failure are recognized, also after a commit's number."""
    body = struct.pack("<QIB", 7, 0, flags) + more
    assert is_unfinished_alter(b.MARIA_GTID, body) is expected
    assert not is_unfinished_alter(b.GTID, body)
    assert not is_unfinished_alter(b.MARIA_GTID, body[:12])


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
    """A text instead of a set is an error of the caller."""
    with pytest.raises(TypeError, match="not a GTID set"):
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


# --- the GTID of one event ----------------------------------------------------------


def test_text_of_an_event() -> None:
    """Each flavour's GTID has its server's form."""
    mysql = b.gtid_body(SID, 1 << 40)
    assert gtid_text(b.GTID, 1, mysql) == f"{SID_TEXT}:{1 << 40}"
    maria = struct.pack("<QIB", 77, 5, 0)
    assert gtid_text(b.MARIA_GTID, 9, maria) == "5-9-77"


def test_text_of_a_tagged_event() -> None:
    """A tag stands between uuid and number, an empty one not at all."""
    blue, plain = b.tagged_body(SID, tag=b"blue"), b.tagged_body(SID, tag=b"")
    assert gtid_text(b.GTID_TAGGED, 1, blue) == f"{SID_TEXT}:blue:5"
    assert gtid_text(b.GTID_TAGGED, 1, plain) == f"{SID_TEXT}:5"


@pytest.mark.parametrize(
    ("kind", "size"), [(b.GTID, 24), (b.MARIA_GTID, 11), (b.GTID_TAGGED, 0)]
)
def test_text_of_a_short_event(kind: int, size: int) -> None:
    """An event that ends early gives none, and is not read past its end."""
    assert gtid_text(kind, 1, bytes(size)) == ""


def test_text_of_other_events() -> None:
    """Events that give no GTID have none, whatever their bytes."""
    assert gtid_text(b.QUERY, 1, b.gtid_body(SID, 5)) == ""
    assert gtid_text(b.ANONYMOUS_GTID, 1, b.gtid_body(SID, 5)) == ""
