"""Records in blocks: end to end, canonical, moved when they do not fit."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog
from binlog_driver import INT, Driven
from golden_form import raw_entries_of

from canal_server.core.blocks import BlockPool
from canal_server.decoder.events import engine
from canal_server.decoder.events.engine import Decoder
from canal_server.decoder.events.entry_writer import RecordWriter
from canal_server.model.columns_known import ColumnMeta, TableMeta
from canal_server.model.positions import LogIdentity
from canal_server.protocol.entry_messages import decode_entry, encode

if TYPE_CHECKING:
    from fix_blocks import Span

BLOB = (b.BLOB, b"\4")


def insert(log: Binlog, *sizes: int) -> None:
    """Append a transaction with rows of so many bytes in one event."""
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([BLOB]))
    rows = b"".join(b"\0" + size.to_bytes(4, "little") + b"x" * size for size in sizes)
    log.add(b.WRITE_ROWS, b.rows_body(1, rows))
    log.xid()


def driven_by(
    log: Binlog, pool: BlockPool, source: LogIdentity | None = None
) -> tuple[Driven, list[Span]]:
    """Decode a log; returns the spans, too."""
    driven = Driven(Decoder(pool, source=source))
    driven.meta = TableMeta("db", "t", (ColumnMeta("a", "longblob"),))
    spans = []
    take = driven.decoder.take

    class Noted:
        """The decoder, with what it gives out noted."""

        def __getattr__(self, name: str) -> object:
            return getattr(decoder, name)

        def take(self) -> list[Span]:
            found = take()
            spans.extend(found)
            return found

    decoder = driven.decoder
    driven.decoder = Noted()  # type: ignore[assignment]
    driven.feed(log.as_stream())
    return driven, spans


def test_positions_name_their_source() -> None:
    """Each position names the decoder's server, in every block."""
    log = Binlog()
    insert(log, 10, 3000)
    source = LogIdentity("db", 3306)
    _, spans = driven_by(log, BlockPool(block_size=1024), source)
    assert len(spans) > 1
    for block, first, _ in spans:
        assert block.source is source
        assert block.position(first)[-1] is source


@pytest.mark.parametrize("block_size", [1024, 4096, 65536])
def test_entries_of_all_sizes(block_size: int) -> None:
    """Whatever the sizes of entries and blocks, records are contiguous and whole."""
    log = Binlog()
    log.start()
    sizes = [0, 1, 126, 127, 128, 129, 500, 1000, 4000, 5000, 16_383, 16_384, 70_000, 3]
    for size in sizes:
        insert(log, size)
    insert(log, *sizes)
    driven, spans = driven_by(log, BlockPool(block_size))
    assert len(spans) > 3
    for block, first, stop in spans:
        ends = [block.record(i) for i in range(first, stop)]
        for before, after in itertools.pairwise(ends):
            assert after["begin"] == before["end"]
    found = []
    for raw in raw_entries_of(bytes(driven.fields)):
        entry = decode_entry(raw)
        assert encode(entry) == raw
        if entry.store_value and entry.header.event_type is not None:
            change = entry.row_change()
            assert encode(change) == entry.store_value
            found.append([len(row.after_columns[0].value) for row in change.row_datas])
            rows = {pair.key: pair.value for pair in entry.header.props}["rowsCount"]
            assert rows == str(len(change.row_datas))
    assert found == [[size] for size in sizes] + [sizes]


def test_front_that_was_guessed_wrong() -> None:
    """Rows are moved when the part before them has another size than estimated."""
    log = Binlog()
    log.start()
    counts = [1, 9, 10, 99, 100, 1000, 1, 100, 9, 1000]
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    for count in counts:
        rows = b"".join(b.int_row(n) for n in range(count))
        log.add(b.WRITE_ROWS, b.rows_body(1, rows))
    driven = Driven()
    driven.feed(log.as_stream())
    changes = [entry.row_change() for entry in driven.entries[1:]]
    assert [len(change.row_datas) for change in changes] == counts
    for raw in raw_entries_of(bytes(driven.fields)):
        assert encode(decode_entry(raw)) == raw
    for record, count in zip(driven.records[1:], counts, strict=True):
        assert record["rows"] == count


def test_a_block_per_file() -> None:
    """Records of two files never share a block."""
    log = Binlog()
    log.start()
    insert(log, 5)
    log.add(b.ROTATE, (4).to_bytes(8, "little") + b"bin.000002")
    log.position = 4
    insert(log, 5)
    _, spans = driven_by(log, BlockPool())
    blocks = list(dict.fromkeys(block for block, _, _ in spans))
    assert [(block.file, block.file_number) for block in blocks] == [
        ("bin.000001", 1),
        ("bin.000002", 2),
    ]


def test_records_that_stay_valid() -> None:
    """Fetched records stay unchanged while the block is extended."""
    log = Binlog()
    log.start()
    insert(log, 100)
    driven, spans = driven_by(log, BlockPool())
    block, first, stop = spans[-1]
    before = bytes(block.slice(first, stop))
    more = Binlog(position=log.position)
    insert(more, 100)
    driven.feed(more.as_stream())
    assert spans[-1][0] is block
    assert spans[-1][1] == stop
    assert bytes(block.slice(first, stop)) == before


def test_many_small_records_fill_a_block() -> None:
    """When a block has no room for another index record, the next one is opened."""
    log = Binlog()
    log.start()
    for _ in range(600):
        log.add(b.QUERY, b.query_body(b"BEGIN", thread=0))
        log.add(b.QUERY, b.query_body(b"COMMIT"))
    driven, spans = driven_by(log, BlockPool(4096))
    assert len(driven.records) == 1200
    assert len({id(block) for block, _, _ in spans}) > 5


def test_writer_by_itself() -> None:
    """A new writer has an empty block; naming the file again keeps it."""
    pool = BlockPool()
    writer = RecordWriter(pool)
    writer.set_file("bin.000007")
    held = pool.held
    writer.set_file("bin.000007")
    assert pool.held == held
    assert writer.take() == []
    assert writer.pending_bytes == 0
    assert writer.pool is pool


def test_spans_after_a_broken_event() -> None:
    """What was decoded before a broken event is not lost with it."""
    log = Binlog()
    log.start()
    insert(log, 5)
    log.add(b.XID, b"")
    decoder = Decoder(BlockPool())
    driven = Driven(decoder)
    driven.meta = TableMeta("db", "t", (ColumnMeta("a", "longblob"),))
    with pytest.raises(Exception, match="a body of 0 bytes"):
        driven.feed(log.as_stream())
    assert len(driven.records) == 3
    assert engine.HALT_TABLE in driven.halts
