"""Table maps and row events in the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog, in_packets
from binlog_driver import INT, Driven, meta, small_log, transaction, values_of

from canal_server.core.blocks import BlockPool
from canal_server.decoder.events import engine
from canal_server.decoder.events.engine import Decoder
from canal_server.errors import DecodeError
from canal_server.model.columns_known import ColumnMeta, TableMeta
from canal_server.model.entry import EventType

if TYPE_CHECKING:
    import random


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


def test_rows_of_tables_that_are_not_selected() -> None:
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
    """Installing a table that was not requested is an error of the caller."""
    with pytest.raises(ValueError, match="no table map is requested"):
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


@pytest.mark.parametrize("rest", [b"", b"\3", b"\3\0", b"\3\0ab", b"\xff\xff"])
@pytest.mark.parametrize("kind", [b.WRITE_ROWS, b.UPDATE_ROWS])
def test_rows_that_end_in_a_text(rest: bytes, kind: int) -> None:
    """A last text that lacks bytes of its length or of itself is no empty text."""
    log = Binlog()
    log.start()
    varchar = (b.VARCHAR, (800).to_bytes(2, "little"))
    log.add(b.TABLE_MAP, b.table_map_body([INT, varchar]))
    row = b"\0" + (1).to_bytes(4, "little")
    images = 1 if kind == b.WRITE_ROWS else 2
    rows = (row + b"\3\0abc") * (images - 1) + row + rest
    log.add(kind, b.rows_body(2, rows, images=images))
    driven = Driven()
    columns = (ColumnMeta("a", "int"), ColumnMeta("b", "varchar(200)"))
    driven.meta = TableMeta("db", "t", columns)
    with pytest.raises(DecodeError, match="its rows end early, in column 2"):
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
    options: dict[str, Any] = {option: True}
    driven = Driven(**options)
    driven.feed(log.as_stream())
    assert [entry.header.event_type for entry in driven.entries] == left * 2


def test_pause_within_a_long_feed() -> None:
    """A long input is returned in parts, and nothing is lost."""
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
    expected: list[str] = []
    for _ in range(rng.randint(1, 40)):
        values = [
            rng.randint(-(1 << 31), (1 << 31) - 1) for _ in range(rng.randint(1, 300))
        ]
        transaction(log, *values, table_id=rng.randint(1, 9))
        expected += map(str, values)
    packets = rng.random() < 0.5
    stream = log.as_stream() if packets else b"".join(log.events)
    driven = Driven(packets=packets)
    at = 0
    while at < len(stream):
        size = rng.choice((1, 7, 100, 5000, 100_000))
        driven.feed(stream[at : at + size])
        at += size
    assert values_of(driven.entries) == expected
    assert driven.decoder.position == log.position
