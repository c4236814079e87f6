"""GTID events with a tag, in MySQL's serialization of fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog, in_packets
from golden_form import entries_of

from canal_server.core.blocks import BlockPool
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.decoder.events import engine
from canal_server.decoder.events.engine import Decoder
from canal_server.errors import DecodeError

if TYPE_CHECKING:
    import random

SID = bytes(range(100, 116))
SID_TEXT = "64656667-6869-6a6b-6c6d-6e6f70717273"


def body_of(**fields: Any) -> bytes:
    """Return the body of a GTID_TAGGED event of our source."""
    return b.tagged_body(SID, **fields)


def read(body: bytes, gtids: GtidSet) -> dict[str, str]:
    """Return properties and set of an entry after a GTID event with this body."""
    log = Binlog()
    log.start()
    log.add(b.GTID_TAGGED, body)
    log.begin()
    decoder = Decoder(BlockPool(), gtids=gtids)
    decoder.start("bin.000001", 4)
    stream = b"".join(map(in_packets, log.events))
    with decoder.feed.space(len(stream)) as space:
        space[: len(stream)] = stream
    decoder.feed.filled(len(stream))
    assert decoder.decode() == engine.HALT_NEED_INPUT
    ((block, first, stop),) = decoder.take()
    (entry,) = entries_of(bytes(block.slice(first, stop)))
    return {
        "gtid": entry.header.gtid,
        **{pair.key: pair.value for pair in entry.header.props},
    }


def test_fields() -> None:
    """Uuid, tag, number and clock are read."""
    assert read(body_of(), GtidSet()) == {
        "gtid": f"{SID_TEXT}:blue:5",
        "curtGtid": f"{SID_TEXT}:blue:5",
        "curtGtidSn": "4",
        "curtGtidLct": "3",
    }


def test_without_a_tag() -> None:
    """An empty tag gives an ordinary GTID."""
    found = read(body_of(tag=b""), GtidSet.parse(f"{SID_TEXT}:1-4"))
    assert found["gtid"] == f"{SID_TEXT}:1-5"
    assert found["curtGtid"] == f"{SID_TEXT}:5"


def test_longest_tag() -> None:
    """A tag of 32 bytes, the longest that there is, is read."""
    assert read(body_of(tag=b"t" * 32), GtidSet())["curtGtid"].count("t") == 32


@pytest.mark.parametrize("bits", range(1, 63))
def test_numbers_of_every_length(bits: int) -> None:
    """Numbers of one to nine bytes are read."""
    gno = (1 << bits) - 1
    found = read(body_of(gno=gno, committed=gno - 1, sequence=gno), GtidSet())
    assert found["curtGtid"] == f"{SID_TEXT}:blue:{gno}"
    assert (found["curtGtidSn"], found["curtGtidLct"]) == (str(gno), str(gno - 1))


def test_impossible_events() -> None:
    """A tag that is too long, and an event without a number, are refused."""
    for body in (body_of(tag=b"t" * 33), body_of(gno=0), b""):
        with pytest.raises(DecodeError, match="inconsistent"):
            read(body, GtidSet())


def readable(body: bytes) -> bool:
    """Check whether an event is read; only a refusal is allowed otherwise."""
    try:
        read(body, GtidSet())
    except DecodeError:
        return False
    return True


def test_cut_anywhere() -> None:
    """An event that ends before its number is refused."""
    body = body_of()
    readable_from = [cut for cut in range(len(body)) if readable(body[:cut])]
    assert readable_from
    assert readable_from[0] > body.index(b.packed_number(SID[-1])) + 1


def test_any_bytes(rng: random.Random) -> None:
    """However an event is damaged, it is read or refused."""
    body = body_of()
    found = []
    for _ in range(1000):
        damaged = bytearray(body)
        damaged[rng.randrange(len(body))] = rng.randrange(256)
        found.append(readable(bytes(damaged)))
    assert True in found
    assert False in found
