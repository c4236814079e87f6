"""Relayed rows, rendered elsewhere: the very bytes of who renders them at once."""

# ruff: noqa: RUF009  # the functions that declare fields return dataclass fields

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog
from fix_random import longer
from golden_form import DATA, decode_fields, load_workload, raw_entries_of
from reader_driver import Images, Reading, insert

from canal_server.decoder.rows.relayed_rows import Renderer
from canal_server.decoder.rows.table_shapes import layout_of
from canal_server.decoder.text.time_zone import read_zone
from canal_server.errors import DecodeError
from canal_server.protocol.protobuf import decode, int32, message, octets, varint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKLOADS = sorted(path.name.partition(".")[0] for path in DATA.glob("*.tar.xz"))
DAMAGED = (
    "ev_image",
    "ev_partial_json",
    "maria_compressed_columns",
    "maria_types",
    "types_num",
    "types_str",
    "types_time",
)
LIES = (b"\0", b"\x7f", b"\x80", b"\xff", b"\xff" * 9 + b"\x01", b"\x22", b"\x1a")
FROM_THE_FIRST = (0, 0)


def rendered(data: bytes, bytes_max: int = 1 << 20) -> bytes:
    """Return what becomes of an answer, whose end is that of its memory."""
    renderer = Renderer(layout_of)
    rest = memoryview(bytearray(data))
    found = bytearray()
    while rest:
        received, made = renderer.render(rest, bytes_max)
        rest = rest[received:]
        found += made
    return bytes(found)


@dataclass(frozen=True, slots=True)
class RelayedRows:
    """Field 4 of an entry."""

    code: int = int32(1)
    number: int = int32(2)
    shape: bytes = octets(3)
    body: bytes = octets(4)


@dataclass(frozen=True, slots=True)
class RelayedEntry:
    """An entry with that instead of its content."""

    rows: RelayedRows = message(4, RelayedRows)


def relayed_rows(data: bytes) -> list[RelayedRows]:
    """Return what the entries of an answer hold instead of rendered rows."""
    rows = (decode(RelayedEntry, each).rows for each in raw_entries_of(data))
    return [each for each in rows if each.code]


def body_of(entries: list[bytes]) -> bytes:
    """Return entries as an answer has them."""
    return b"".join(b"\x12" + varint(len(each)) + each for each in entries)


def read(log: Binlog, relay_from: tuple[int, int] | None, **options: Any) -> bytes:
    """Return the records of a log whose tables have one column of type INT."""
    names = [f"t{n}" for n in range(5000)]
    images = Images(t=("int",), **dict.fromkeys(names, ("int",)))
    reading = Reading(images, relay_from=relay_from, **options)
    reading.run(log.as_stream())
    return bytes(reading.fields)


# --- the same bytes -----------------------------------------------------------------


@pytest.mark.parametrize("name", WORKLOADS)
def test_recordings(name: str, tmp_path: Path) -> None:
    """Every recording gives the same bytes either way, in pieces of any size."""
    recorded = partial(decode_fields, load_workload(name), tmp_path)
    expected = recorded()
    relayed = recorded(relay_from=FROM_THE_FIRST)
    assert rendered(relayed) == expected
    assert recorded(relay_from=FROM_THE_FIRST) == relayed
    if len(expected) < 1 << 20:
        assert rendered(relayed, bytes_max=1) == expected


def test_entries_alone_are_not_touched() -> None:
    """A piece without relayed rows is passed on as it is, not copied."""
    log = Binlog()
    log.start()
    insert(log, 7)
    data = memoryview(read(log, None))
    received, made = Renderer(layout_of).render(data, 1)
    assert (received, made) == (len(data), data)
    assert made.obj is data.obj


def test_fewer_bytes() -> None:
    """Many rows in an event are much smaller than as entries."""
    log = Binlog()
    log.start()
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([(b.LONG, b"")]))
    rows = b"".join(b.int_row(n) for n in range(1000))
    log.add(b.WRITE_ROWS, b.rows_body(1, rows))
    log.xid()
    relayed, expected = read(log, FROM_THE_FIRST), read(log, None)
    assert len(relayed) * 4 < len(expected)
    assert rendered(relayed) == expected


# --- shapes -------------------------------------------------------------------------


def test_a_shape_is_reported_once() -> None:
    """Neither another table id nor DDL without effect sends it again."""
    log = Binlog()
    log.start()
    for number in range(3):
        insert(log, number, table_id=5 + number)
        log.add(b.QUERY, b.query_body(b"ALTER TABLE t COMMENT 'x'", b"db"))
    relayed = read(log, FROM_THE_FIRST)
    shown = [(each.number, bool(each.shape)) for each in relayed_rows(relayed)]
    assert shown == [(1, True), (1, False), (1, False)]
    assert rendered(relayed) == read(log, None)


def test_shown_from_where_the_reader_is_given_records() -> None:
    """Earlier events are omitted, so the first event after them sends the shape."""
    log = Binlog()
    log.start()
    insert(log, 1)
    offset = log.position
    insert(log, 2)
    expected, whole, later = (
        body_of(list(raw_entries_of(read(log, relay_from)))[3:])
        for relay_from in (None, FROM_THE_FIRST, (1, offset))
    )
    assert rendered(later) == expected
    with pytest.raises(DecodeError, match="table 1, whose shape is missing"):
        rendered(whole)


def test_more_tables_than_numbers() -> None:
    """Numbers restart, and shapes sent before are sent again with their next use."""
    log = Binlog()
    log.start()
    for turn in range(2):
        for number in range(4200):
            insert(log, turn, table=f"t{number}", table_id=10 + number)
        insert(log, turn, table="t0", table_id=10)
    assert rendered(read(log, FROM_THE_FIRST)) == read(log, None)


def test_columns_that_are_left_out_are_not_relayed() -> None:
    """If a filter excludes columns, rows are rendered at once."""
    log = Binlog()
    log.start()
    insert(log, 1)
    data = read(log, FROM_THE_FIRST, field="db.t:c1")
    assert data == read(log, None, field="db.t:c1")


def test_the_zone_is_that_of_who_relays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TIMESTAMPs are in the server's zone, independent of where they are rendered."""
    recorded = partial(decode_fields, load_workload("types_time"), tmp_path)
    try:
        for name in ("America/New_York", "Asia/Kolkata"):
            monkeypatch.setenv("TZ", name)
            time.tzset()
            read_zone()
            expected = recorded()
            relayed = recorded(relay_from=FROM_THE_FIRST)
            monkeypatch.setenv("TZ", "Europe/Lisbon")
            time.tzset()
            read_zone()
            assert recorded() != expected
            assert rendered(relayed) == expected
    finally:
        monkeypatch.undo()
        time.tzset()
        read_zone()


# --- damage -------------------------------------------------------------------------


def test_errors_name_the_position() -> None:
    """Rows that cannot be read name table, row, file and offset, on both sides."""
    log = Binlog()
    log.start()
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([(b.LONG, b"")]))
    offset = log.position
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(1) + b"\0\1"))
    with pytest.raises(DecodeError, match=rf"row 2 of table db\.t.*:{offset}\)"):
        read(log, FROM_THE_FIRST)

    good = Binlog()
    good.start()
    insert(good, 1)
    relayed = read(good, FROM_THE_FIRST)
    row = b.int_row(1)
    assert relayed.count(row) == 1
    with pytest.raises(DecodeError, match=r"row 3 of table db\.t: .*bin\.000001:\d+"):
        # Its value becomes NULL, and the value's bytes further rows.
        rendered(relayed.replace(row, b"\1" + row[1:]))


def test_shapes_that_contradict_themselves() -> None:
    """What cannot be a table is refused with a reason."""
    for data in (b"", b"\xff", b"\x0a\x03abc"):
        with pytest.raises(DecodeError):
            layout_of(data)


def test_a_value_that_claims_to_be_large(tmp_path: Path) -> None:
    """It is refused with the size that a damaged compressed value says it has."""
    workload = load_workload("maria_compressed_columns")
    data = decode_fields(workload, tmp_path, relay_from=FROM_THE_FIRST)
    value = b"\x8a\x03\x84KL\x1c"  # begins so: two bytes for its size, then five
    claimed = data.replace(value, b"\x8d" + b"\xff" * 5)
    assert claimed != data
    with pytest.raises(DecodeError, match=f"a value of {2**40 - 1} bytes is larger"):
        rendered(claimed)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with some of them changed, inserted or removed."""
    body = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(body) + 1)
        choice = rng.random()
        if choice < 0.4 and at < len(body):
            body[at] ^= 1 << rng.randrange(8)
        elif choice < 0.7:
            lie = rng.choice(LIES)
            body[at : at + len(lie)] = lie
        elif choice < 0.8:
            body[at:at] = rng.choice(LIES)
        elif choice < 0.97:
            del body[at : at + rng.choice([1, 2, rng.randrange(1, 40)])]
        else:
            del body[at:]
    return bytes(body)


def pieces_of(rng: random.Random, entries: list[bytes]) -> Iterator[bytes]:
    """Yield damaged answers: a few of the entries, each maybe damaged."""
    first = rng.randrange(len(entries))
    part = entries[first : first + rng.choice([3, 10, 40])]
    yield body_of([damaged(rng, e) if rng.random() < 0.2 else e for e in part])
    yield damaged(rng, body_of(part))


@pytest.mark.timeout(longer(120), method="thread")  # ends also a hang in compiled code
def test_damaged(rng: random.Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Damaged answers give bytes or DecodeError, whatever they say."""

    @cache
    def recorded(name: str) -> list[bytes]:
        folder = tmp_path_factory.mktemp(name)
        data = decode_fields(load_workload(name), folder, relay_from=FROM_THE_FIRST)
        return list(raw_entries_of(data))

    @cache
    def shapes(name: str) -> list[bytes]:
        return [each for each in recorded(name) if len(each) > 200]

    good = errors = 0
    rounds = longer(1500)
    for number in range(rounds):
        seed = rng.getrandbits(64)
        own = random.Random(seed)
        name = own.choice(DAMAGED)
        entries = recorded(name)
        if own.random() < 0.5:
            entries = shapes(name)  # most of them have a shape
        for data in pieces_of(own, entries):
            try:
                rendered(data, bytes_max=own.choice([1, 1 << 20]))
                good += 1
            except DecodeError:
                errors += 1
            except BaseException as error:
                error.add_note(f"round {number}: {name}, seed {seed}")
                raise
    print(f"{rounds} rounds: {good} good, {errors} errors")
    assert min(good, errors) > rounds // 10
