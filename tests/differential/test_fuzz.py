"""Damaged binlogs: whatever the bytes say, there are entries or errors of ours.

The contract: a reader ends, delivers entries that can be unpacked, and raises nothing
but DecodeError, TableMetaError or, for packets that are no events, SourceError. It
neither crashes nor hangs. Checksums are computed again, so that damage reaches the
parsers.
"""

from __future__ import annotations

import contextlib
import random
import zlib
from functools import cache
from typing import TYPE_CHECKING

import pytest
import zstandard
from ddl_event import statement_of
from fix_random import longer
from golden_form import DATA, RecordedImages, Workload, entries_of, load_workload

from canal_server.config.schema import FilterConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.core.table_ids import TableIds
from canal_server.errors import CanalError, DecodeError, SourceError, TableMetaError
from canal_server.filters.column_filters import ColumnFilter
from canal_server.model.entry import EntryType
from canal_server.model.positions import EntryPosition
from canal_server.mysql.server_errors import error_of_packet
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_reader import Reader
from canal_server.source.read.map_columns import MapReader, NoColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.ports import TableSchemas

ALLOWED = (DecodeError, TableMetaError, SourceError)

HEADER_BYTES = 19
CHECKSUM_BYTES = 4
FORMAT_DESCRIPTION, TABLE_MAP, PAYLOAD = 15, 19, 40
ROWS = frozenset({23, 24, 25, 30, 31, 32, 39})
# Numbers that lengths are confused with.
LIES = (
    b"\0", b"\xff", b"\xfa", b"\xfb", b"\xfc\xff\xff", b"\xfd\xff\xff\xff",
    b"\xfe" + b"\xff" * 8, b"\xfe" + b"\xff" * 7 + b"\x7f", b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\x80", b"\x7f",
)  # fmt: skip


@cache
def workload_names() -> list[str]:
    """Return the names of all recorded workloads."""
    return sorted(path.name.partition(".")[0] for path in DATA.glob("*.tar.xz"))


workload = cache(load_workload)


def events_of(binlog: bytes) -> list[bytearray]:
    """Return the events of a file, without their checksums."""
    events = []
    at = 4
    while at < len(binlog):
        length = int.from_bytes(binlog[at + 9 : at + 13], "little")
        events.append(bytearray(binlog[at : at + length]))
        at += length
    if has_checksums(events):
        for event in events:
            del event[-CHECKSUM_BYTES:]
    return events


def has_checksums(events: list[bytearray]) -> bool:
    """Return whether the format description, as it is in the file, promises them."""
    return events[0][-5] == 1


def sealed(event: bytearray, *, checksums: bool, honest: bool) -> bytes:
    """Return an event with its length, unless it is to lie, and a checksum."""
    if honest:
        length = len(event) + (CHECKSUM_BYTES if checksums else 0)
        event[9:13] = length.to_bytes(4, "little")
    if not checksums:
        return bytes(event)
    summed = bytearray(event)
    if event[4] == FORMAT_DESCRIPTION:
        summed[17] &= 0xFE  # the flag of a file in use was set after the checksum
    return bytes(event) + zlib.crc32(summed).to_bytes(4, "little")


# --- damage -----------------------------------------------------------------------


def flip(rng: random.Random, body: bytearray) -> None:
    """Change some bits."""
    for _ in range(rng.choice([1, 1, 2, 8])):
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)


def overwrite(rng: random.Random, body: bytearray) -> None:
    """Put a length that is not true, or any byte, somewhere."""
    at = rng.randrange(len(body))
    lie = rng.choice([*LIES, rng.randbytes(rng.choice([1, 2, 4, 8]))])
    body[at : at + len(lie)] = lie


def insert(rng: random.Random, body: bytearray) -> None:
    """Put bytes in between."""
    at = rng.randrange(len(body))
    body[at:at] = rng.choice([rng.randbytes(rng.randrange(1, 20)), bytes(300)])


def remove(rng: random.Random, body: bytearray) -> None:
    """Take bytes out."""
    at = rng.randrange(len(body))
    del body[at : at + rng.choice([1, 2, rng.randrange(1, 40)])]


def truncate(rng: random.Random, body: bytearray) -> None:
    """End early."""
    del body[rng.randrange(len(body)) :]


DAMAGES = (flip, flip, flip, overwrite, overwrite, insert, remove, truncate)


def damage_body(rng: random.Random, event: bytearray) -> None:
    """Damage what stands after an event's header."""
    body = event[HEADER_BYTES:]
    if event[4] == PAYLOAD and rng.random() < 0.8:
        # It may be damaged already, and cannot be inflated any more.
        with contextlib.suppress(zstandard.ZstdError, ValueError):
            body = damaged_payload(rng, bytes(body))
    elif body:
        rng.choice(DAMAGES)(rng, body)
    event[HEADER_BYTES:] = body


def damaged_payload(rng: random.Random, body: bytes) -> bytearray:
    """Return a compressed transaction with damage inside."""
    at = body.index(b"\x28\xb5\x2f\xfd")  # where zstd's data begin
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(body[at:])
    inner = []
    while len(plain) >= HEADER_BYTES:
        length = max(int.from_bytes(plain[9:13], "little"), HEADER_BYTES)
        inner.append(bytearray(plain[:length]))
        plain = plain[length:]
    damage_events(rng, inner)
    data = b"".join(
        sealed(event, checksums=False, honest=rng.random() < 0.95) for event in inner
    )
    packed = zstandard.ZstdCompressor().compress(data)
    # Fields: 2 algorithm (0), 0 end; those of sizes are left out.
    return bytearray(b"\x02\x01\x00\x00" + packed)


def damage_events(rng: random.Random, events: list[bytearray]) -> None:
    """Damage one to three of the events."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(len(events))
        interesting = [
            i
            for i, e in enumerate(events)
            if e[4] in ROWS or e[4] in (TABLE_MAP, PAYLOAD)
        ]
        if interesting and rng.random() < 0.7:
            at = rng.choice(interesting)
        choice = rng.random()
        if choice < 0.8:
            damage_body(rng, events[at])
        elif choice < 0.86:
            events[at][4] = rng.choice([rng.randrange(256), *ROWS])
        elif choice < 0.9:
            events[at][rng.randrange(HEADER_BYTES)] ^= 1 << rng.randrange(8)
        elif choice < 0.95:
            events.insert(rng.randrange(len(events) + 1), bytearray(events[at]))
        elif len(events) > 1:
            del events[at]


def damaged(rng: random.Random, binlog: bytes, *, packets: bool) -> bytes:
    """Return the bytes of a source: a file's after its magic, or packets."""
    events = events_of(binlog)
    checksums = binlog[4:][int.from_bytes(binlog[13:17], "little") - 5] == 1
    damage_events(rng, events)
    pieces = [
        sealed(event, checksums=checksums, honest=rng.random() < 0.97)
        for event in events
    ]
    if packets:
        pieces = [
            (len(piece) + 1).to_bytes(3, "little")
            + bytes([number & 255, 0 if rng.random() < 0.99 else rng.randrange(256)])
            + piece
            for number, piece in enumerate(pieces)
        ]
    data = b"".join(pieces)
    return data[: rng.randrange(len(data))] if rng.random() < 0.05 else data


# --- reading ----------------------------------------------------------------------


class Pieces:
    """A source that gives its bytes in pieces of random sizes."""

    def __init__(self, data: bytes, rng: random.Random) -> None:
        self._data = memoryview(data)
        self._rng = rng
        self._sizes = rng.choice([(1 << 20,), (1, 7, 100, 5000)])

    def try_receive_into(self, buffer: memoryview) -> int:
        """Give some bytes, 0 at the end."""
        piece = self._data[: min(self._rng.choice(self._sizes), len(buffer))]
        buffer[: len(piece)] = piece
        self._data = self._data[len(piece) :]
        return len(piece)

    def receive_into(self, buffer: memoryview, timeout_s: float | None) -> int:
        """Give some bytes, 0 at the end."""
        return self.try_receive_into(buffer)


def make_reader(
    rng: random.Random, recorded: Workload, file: str, *, packets: bool, by_maps: bool
) -> Reader:
    """Return a reader with the recorded columns, or with those of the table maps."""
    images: TableSchemas = (
        NoColumns() if by_maps else RecordedImages(list(recorded.history))
    )
    images.apply(statement_of("", at=EntryPosition(file, 4)))
    server = recorded.settings["server"]
    gtids = MariaGtidSet() if server == "mariadb" else GtidSet()
    return (MapReader if by_maps else Reader)(
        BlockPool(),
        TableIds(),
        images,
        table_filter=lambda _names: True,
        columns=ColumnFilter("", ""),
        filters=FilterConfig(table_error=rng.random() < 0.3),
        packets=packets,
        gtids=rng.choice([None, gtids]),
        error_of_packet=lambda body: error_of_packet(body, address="a recording"),
    )


def unpack(fields: bytes) -> Iterator[object]:
    """Unpack entries and what they hold."""
    for entry in entries_of(fields):
        if entry.entry_type == EntryType.ROWDATA:
            yield entry.row_change()
        elif entry.entry_type == EntryType.TRANSACTIONBEGIN:
            yield entry.transaction_begin()
        else:
            yield entry.transaction_end()


def read(
    rng: random.Random,
    recorded: Workload,
    change: Callable[..., bytes],
    *,
    by_maps: bool,
) -> tuple[int, CanalError | None]:
    """Read a changed recording; returns the number of entries, and the error if any."""
    packets = rng.random() < 0.4
    name = rng.choice(list(recorded.binlogs))
    data = change(rng, recorded.binlogs[name], packets=packets)
    reader = make_reader(rng, recorded, name, packets=packets, by_maps=by_maps)
    reader.start(name, 4)
    count = 0

    def deliver(spans) -> bool:
        nonlocal count
        for block, first, stop in spans:
            count += sum(1 for _ in unpack(bytes(block.slice(first, stop))))
        return True

    try:
        reader.run(Pieces(data, rng), deliver, lambda: None, Stop())
    except ALLOWED as error:
        return count, error
    return count, None


def as_recorded(_: random.Random, binlog: bytes, *, packets: bool) -> bytes:
    """Return a recording as it is, put together again."""
    checksums = binlog[4:][int.from_bytes(binlog[13:17], "little") - 5] == 1
    pieces = [
        sealed(event, checksums=checksums, honest=True) for event in events_of(binlog)
    ]
    if packets:
        pieces = [
            (len(piece) + 1).to_bytes(3, "little") + b"\0\0" + piece for piece in pieces
        ]
    return b"".join(pieces)


def test_undamaged(rng: random.Random) -> None:
    """What is damaged below is in order before: taken apart and joined, it is read."""
    for name in workload_names():
        count, error = read(rng, workload(name), as_recorded, by_maps=False)
        assert error is None, f"{name}: {error}"
        assert count > 0


def fuzz(rng: random.Random, rounds: int) -> None:
    """Read damaged recordings; prints the result of it."""
    names = workload_names()
    entries = errors = 0
    for number in range(rounds):
        seed = rng.getrandbits(64)
        name = rng.choice(names)
        with reported(f"round {number}: {name}, seed {seed}"):
            count, error = read(
                random.Random(seed), workload(name), damaged, by_maps=seed % 2 == 0
            )
        entries += count
        errors += error is not None
    print(f"{rounds} rounds: {entries} entries, {errors} errors")
    assert entries > 0
    assert errors > rounds // 10


@contextlib.contextmanager
def reported(what: str) -> Iterator[None]:
    """Say in which round an error happened that is not allowed."""
    try:
        yield
    except BaseException as error:
        error.add_note(what)
        raise


@pytest.mark.timeout(longer(120), method="thread")  # ends also a hang in compiled code
def test_damaged(rng: random.Random) -> None:
    """Damaged recordings give entries or errors of ours."""
    fuzz(rng, longer(500))
