"""The executed set outside of GTID mode, as the engine follows it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog
from binlog_driver import Driven, transaction

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.decoder.events.gtid_tracker import FollowedSet
from canal_server.errors import DecodeError

if TYPE_CHECKING:
    import random

SID = bytes(range(16))
OTHER = bytes(range(1, 17))
SID_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def following(gtids: GtidSet | MariaGtidSet | None) -> Driven:
    """Return a decoder that follows a set outside of GTID mode."""
    driven = Driven()
    driven.decoder.followed.follow(gtids)
    return driven


def executed(driven: Driven, *, whole: bool) -> str:
    """Return the decoder's set."""
    return driven.decoder.followed.executed(whole=whole)


def test_set_of_mysql() -> None:
    """Entries do not have it; it is returned before or with the last transaction."""
    log = Binlog()
    log.start()
    driven = following(GtidSet.parse(f"{SID_TEXT}:1-5"))
    for number in (6, 7):
        position = log.position
        log.add(b.GTID, b.gtid_body(SID, number))
        transaction(log, number)
    driven.feed(log.as_stream())
    assert driven.decoder.gtid_offset == position
    assert executed(driven, whole=False) == f"{SID_TEXT}:1-6"
    assert executed(driven, whole=True) == f"{SID_TEXT}:1-7"
    assert executed(driven, whole=True) == f"{SID_TEXT}:1-7"
    assert not any(entry.header.gtid for entry in driven.entries)
    keys = {pair.key for each in driven.entries for pair in each.header.props}
    assert keys == {"rowsCount"}


def test_set_of_mariadb() -> None:
    """The same holds for MariaDB, whose sets have one number per domain."""
    log = Binlog()
    log.start()
    log.server_id = 11
    driven = following(MariaGtidSet.parse("0-10-4,3-9-9"))

    def write(sequence: int, domain: int) -> None:
        log.add(b.MARIA_GTID, struct.pack("<QIB", sequence, domain, 0) + bytes(6))
        log.xid()

    for sequence in (5, 6):
        write(sequence, 0)
    driven.feed(log.as_stream())
    assert executed(driven, whole=False) == "0-11-5,3-9-9"
    assert executed(driven, whole=True) == "0-11-6,3-9-9"
    assert not any(entry.header.gtid for entry in driven.entries)


def test_domains_in_turn() -> None:
    """The previous number of another domain is included with the next one."""
    log = Binlog()
    log.start()
    log.server_id = 11
    driven = following(MariaGtidSet())
    for sequence, domain in ((5, 0), (6, 0), (1, 7), (7, 0)):
        log.add(b.MARIA_GTID, struct.pack("<QIB", sequence, domain, 0) + bytes(6))
        log.xid()
    driven.feed(log.as_stream())
    assert executed(driven, whole=False) == "0-11-6,7-11-1"
    assert executed(driven, whole=True) == "0-11-7,7-11-1"


def test_any_order(rng: random.Random) -> None:
    """Numbers in any order, of any server and tag, make the set that they are."""
    expected = GtidSet()
    log = Binlog()
    log.start()
    driven = following(GtidSet())
    number = {SID: 0, OTHER: 0}
    fed = 0

    def feed() -> None:
        nonlocal fed
        stream = log.as_stream()
        driven.feed(stream[fed:])
        fed = len(stream)

    for _ in range(300):
        sid = rng.choice((SID, SID, SID, OTHER))
        number[sid] += rng.choice((1, 1, 1, 1, 2, -1))
        number[sid] = max(number[sid], 1)
        before = str(expected)
        expected.add(sid, number[sid])
        log.add(b.GTID, b.gtid_body(sid, number[sid]))
        transaction(log, 1)
        if rng.random() < 0.2:
            feed()
            assert executed(driven, whole=False) == before
            if rng.random() < 0.5:
                assert executed(driven, whole=True) == str(expected)
    feed()
    assert executed(driven, whole=True) == str(expected)


def test_an_anonymous_transaction_ends_it() -> None:
    """An anonymous transaction makes the set unknown."""
    log = Binlog()
    log.start()
    log.add(b.GTID, b.gtid_body(SID, 6))
    transaction(log, 1)
    log.add(b.ANONYMOUS_GTID, b.gtid_body(bytes(16), 0))
    transaction(log, 2)
    driven = following(GtidSet())
    driven.feed(log.as_stream())
    assert executed(driven, whole=True) == ""
    driven.decoder.followed.follow(GtidSet.parse(f"{SID_TEXT}:1-9"))
    assert executed(driven, whole=True) == f"{SID_TEXT}:1-9"


@pytest.mark.parametrize("body", [b.gtid_body(SID, 0), b.gtid_body(SID, 6)[:24]])
def test_a_broken_event(body: bytes) -> None:
    """A GTID that can be none is an error, as it is in GTID mode."""
    log = Binlog()
    log.start()
    log.add(b.GTID, body)
    with pytest.raises(DecodeError, match="inconsistent"):
        following(GtidSet()).feed(log.as_stream())


def test_what_is_no_set() -> None:
    """Only a set can be followed."""
    with pytest.raises(TypeError, match="not a GTID set"):
        FollowedSet().follow("1-2")  # type: ignore[arg-type]
