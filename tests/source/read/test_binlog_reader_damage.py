"""Recordings with changed bytes: either readable, or refused with their position."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest
from byte_source import Bytes
from golden_form import (
    DATA,
    RecordedImages,
    entries_of,
    load_workload,
    make_reader,
)

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import (
    CanalError,
    DecodeError,
)
from canal_server.model.entry import EntryType
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fix_blocks import Span


def with_right_checksums(events: list[bytearray]) -> bytes:
    """Return events end to end with recomputed checksums."""
    return b"".join(
        bytes(event[:-4]) + zlib.crc32(event[:-4]).to_bytes(4, "little")
        for event in events
    )


def events_of(binlog: bytes) -> list[bytearray]:
    """Split a file into its events."""
    found = []
    at = 4
    while at < len(binlog):
        length = int.from_bytes(binlog[at + 9 : at + 13], "little")
        found.append(bytearray(binlog[at : at + length]))
        at += length
    return found


SMALL = [
    path.name.partition(".")[0]
    for path in sorted(DATA.iterdir())
    if path.stat().st_size < 6000
]


def damage(rng: random.Random, events: list[bytearray]) -> None:
    """Change some bytes of some events, after their headers."""
    for _ in range(rng.randint(1, 4)):
        event = rng.choice(events[1:])
        if len(event) <= 24:
            continue
        if rng.random() < 0.2:
            # Another length: the tail is cut off or bytes are inserted.
            at = rng.randrange(19, len(event) - 4)
            event[at : at + rng.randint(0, 8)] = rng.randbytes(rng.randint(0, 8))
            event[9:13] = len(event).to_bytes(4, "little")
        else:
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(19, len(event) - 4)
                event[at] = rng.choice((0, 1, 127, 128, 254, 255, rng.randrange(256)))


@pytest.mark.parametrize("name", SMALL)
def test_damaged_recordings(name: str, rng: random.Random) -> None:
    """Any damage inside events is readable or reported with its position."""
    workload = load_workload(name)
    binlog = next(iter(workload.binlogs.values()))
    outcomes = set()
    for _ in range(25):
        events = events_of(binlog)
        damage(rng, events)
        gtids = rng.choice((None, GtidSet(), MariaGtidSet()))
        images = RecordedImages(list(workload.history))
        reader = make_reader(images, gtids=gtids)
        reader.start("binlog.000001", 4)
        delivered = bytearray()

        def deliver(spans: list[Span], into: bytearray = delivered) -> bool:
            for block, first, stop in spans:
                into += block.slice(first, stop)
            return True

        source = Bytes([with_right_checksums(events)])
        try:
            reader.run(source, deliver, lambda: None, Stop())
            outcomes.add("read")
        except CanalError as error:
            assert "binlog.000001" in str(error)  # noqa: PT017
            outcomes.add("refused")
        for entry in entries_of(bytes(delivered)):
            if entry.entry_type == EntryType.ROWDATA:
                entry.row_change()
    assert outcomes


def read_all(change: Callable[[bytearray], None]) -> set[type[Exception]]:
    """Return the errors for every event when it is changed in the same way."""
    found: set[type[Exception]] = set()
    workload = load_workload("ev_txn")
    binlog = next(iter(workload.binlogs.values()))
    for number in range(1, len(events_of(binlog))):
        events = events_of(binlog)
        change(events[number])
        events[number][9:13] = len(events[number]).to_bytes(4, "little")
        reader = make_reader(RecordedImages(list(workload.history)), gtids=GtidSet())
        reader.start("binlog.000001", 4)
        source = Bytes([with_right_checksums(events)])
        try:
            reader.run(source, lambda _: True, lambda: None, Stop())
        except CanalError as error:
            found.add(type(error))
    return found


def test_events_without_a_body() -> None:
    """An event of any type without its body is readable or refused."""

    def empty(event: bytearray) -> None:
        del event[19:-4]

    assert DecodeError in read_all(empty)


def test_events_cut_in_half() -> None:
    """An event of any type without its second half is readable or refused."""

    def halve(event: bytearray) -> None:
        del event[19 + (len(event) - 23) // 2 : -4]

    assert DecodeError in read_all(halve)
