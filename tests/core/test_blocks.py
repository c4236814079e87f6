"""Blocks of finished records, and the memory that they come from."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from fix_blocks import BEGIN, END, FLAG_GTID, OTHER, ROWS, Entries

from canal_server.core.blocks import Block, BlockPool, BlockWriter

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

FLAG_OPEN = 2


def filled(*kinds: int) -> tuple[Block, Entries]:
    """Return a block with an entry of each kind."""
    entries = Entries()
    for kind in kinds:
        entries.add(kind)
    ((block, _, _),) = entries.take()
    return block, entries


def test_slices_lie_end_to_end() -> None:
    """A slice is exactly its records, and neighbours need no copy between them."""
    block, _ = filled(BEGIN, ROWS, ROWS, END)
    whole = bytes(block)
    assert bytes(block.slice(0, 4)) == whole
    parts = [bytes(block.slice(n, n + 1)) for n in range(4)]
    assert b"".join(parts) == whole
    assert [block.size_of(n, n + 1) for n in range(4)] == [len(part) for part in parts]
    assert block.size_of(1, 3) == len(parts[1]) + len(parts[2])
    assert block.size_of(2, 2) == 0
    assert bytes(block.slice(2, 2)) == b""
    assert len(block) == 4


def test_records_outside() -> None:
    """Records that a block does not have are refused, not read."""
    block, _ = filled(BEGIN, END)
    for call in (
        lambda: block.record(2),
        lambda: block.position(2),
        lambda: block.slice(0, 3),
        lambda: block.slice(2, 1),
        lambda: block.size_of(0, 3),
    ):
        with pytest.raises(IndexError):
            call()


def test_buffers_are_read_only() -> None:
    """Readers of a block cannot write into it."""
    block, _ = filled(BEGIN)
    with pytest.raises(TypeError):
        block.slice(0, 1)[0] = 0


def test_index_records() -> None:
    """The index record has what was said of an entry."""
    pool = BlockPool()
    writer = BlockWriter(pool, "bin.000009", 9)
    index = writer.append(
        b"entry", ROWS, offset=1 << 40, ordinal=3, time=(1 << 32) - 1, table_ordinal=7,
        rows=5, event_length=99, event_type=2, flags=FLAG_GTID,
    )  # fmt: skip
    assert writer.block.record(index) == {
        "begin": 0, "end": 7, "offset": 1 << 40, "ordinal": 3, "time": (1 << 32) - 1,
        "table_ordinal": 7, "rows": 5, "event_length": 99, "kind": ROWS,
        "event_type": 2, "flags": FLAG_GTID,
    }  # fmt: skip
    assert (writer.block.file, writer.block.file_number) == ("bin.000009", 9)
    assert repr(writer.block) == "<Block bin.000009 1 records 7 bytes>"


def test_positions() -> None:
    """A record's position is read from its entry's header."""
    entries = Entries()
    entries.add(END, time=1234, offset=567)
    entries.add(END, time=1235, offset=600, gtid="a-b-c:1-5")
    ((block, _, _),) = entries.take()
    assert block.position(0) == ("bin.000001", 567, 1_234_000, 7, "", None)
    assert block.position(1) == ("bin.000001", 600, 1_235_000, 7, "a-b-c:1-5", None)


def test_count_until() -> None:
    """Transactions that end up to a time are counted with their rows, in any order."""
    entries = Entries()
    for time in (102, 100, 101):
        entries.add(BEGIN, time=90)
        entries.add(ROWS, time=90, rows=3)
        entries.add(END, time=time)
    ((block, _, _),) = entries.take()
    assert block.count_until(0, 9, 101, 0) == (2, 6, 0, 102)
    assert block.count_until(0, 8, 101, 0) == (1, 3, 3, 102)
    assert block.count_until(8, 9, 101, 3) == (1, 3, 0, 101)
    assert block.count_until(2, 6, 100, 5) == (1, 3, 0, 102)
    assert block.count_until(0, 99, 99, 0) == (0, 0, 0, 102)


def test_last_boundary() -> None:
    """The last record that ends a transaction, or is one, within a range."""
    block, _ = filled(BEGIN, ROWS, END, OTHER, BEGIN, ROWS)
    assert block.last_boundary(0, 6) == 3
    assert block.last_boundary(0, 3) == 2
    assert block.last_boundary(4, 6) == -1
    assert block.last_boundary(0, 99) == 3
    assert block.last_boundary(3, 3) == -1


def test_last_boundary_inside_of_a_transaction() -> None:
    """A statement inside a transaction is not a boundary."""
    entries = Entries()
    entries.add(END)
    entries.add(BEGIN)
    entries.add(OTHER, flags=FLAG_OPEN)
    ((block, first, stop),) = entries.take()
    assert block.last_boundary(first, stop) == 0


def test_first_boundary() -> None:
    """The first record that ends a transaction, or is one, within a range."""
    block, _ = filled(BEGIN, ROWS, END, OTHER, BEGIN, ROWS)
    assert block.first_boundary(0, 6) == 2
    assert block.first_boundary(3, 99) == 3
    assert block.first_boundary(4, 6) == -1
    assert block.first_boundary(0, 2) == -1


def test_first_since() -> None:
    """The first record that is not older than a time, whatever follows it."""
    entries = Entries()
    for time in (10, 30, 20):
        entries.add(ROWS, time=time)
    ((block, first, stop),) = entries.take()
    assert [block.first_since(first, stop, t) for t in (5, 11, 30, 31)] == [0, 1, 1, 3]
    assert block.first_since(2, 99, 15) == 2
    assert block.first_since(0, 1, 11) == 1


def test_totals() -> None:
    """Transactions, rows and the latest time of a range."""
    entries = Entries()
    entries.add(BEGIN, time=7)
    for _ in range(2):
        entries.add(ROWS, rows=3, time=7)
    entries.add(END, time=8)
    entries.add(OTHER, flags=FLAG_OPEN, time=5_000_000)
    entries.add(OTHER)
    ((block, first, stop),) = entries.take()
    assert block.totals(first, stop) == (2, 6, 5_000_000)
    assert block.totals(1, 2) == (0, 3, 7)
    assert block.totals(4, 4) == (0, 0, 0)
    assert block.totals(3, 99) == block.totals(3, stop)


def test_first_after() -> None:
    """The first record after a position; ordinals distinguish records of one event."""
    entries = Entries()
    for offset, ordinal in ((100, 0), (200, 0), (200, 1), (200, 2), (300, 0)):
        entries.add(ROWS, offset=offset, ordinal=ordinal)
    ((block, first, stop),) = entries.take()
    positions = [
        ((99, 0), 0),
        ((100, 0), 1),
        ((200, 1), 3),
        ((200, 2), 4),
        ((300, 0), 5),
    ]
    for (offset, ordinal), expected in positions:
        assert block.first_after(first, stop, offset, ordinal) == expected
    assert block.first_after(2, 4, 0, 0) == 2
    assert block.first_after(0, 2, 300, 0) == 2


def test_a_full_block_refuses() -> None:
    """A record that does not fit is refused and changes nothing."""
    pool = BlockPool(1024)
    writer = BlockWriter(pool, "f", 1)
    with pytest.raises(ValueError, match="no room for 2003 bytes"):
        writer.append(bytes(2000), ROWS)
    writer.append(bytes(1000), ROWS)
    with pytest.raises(ValueError, match="no room"):
        writer.append(bytes(100), ROWS)
    assert len(writer.block) == 1


def test_index_of_a_block_is_bounded() -> None:
    """Very small records end a block before its memory does."""
    pool = BlockPool(4096)
    writer = BlockWriter(pool, "f", 1)

    def fill() -> None:
        for _ in range(4096):
            writer.append(b"", ROWS)

    with pytest.raises(ValueError, match="no room"):
        fill()
    assert 0 < len(writer.block) < 4096 // 2


# --- the pool -----------------------------------------------------------------------


def test_memory_is_used_again() -> None:
    """A block that is not referenced returns its memory for the next one."""
    pool = BlockPool(1024, 4096)
    for _ in range(10):
        writer = BlockWriter(pool, "f", 1)
        assert pool.held == 1024
        del writer
    assert pool.held == 1024


def test_views_keep_their_block() -> None:
    """As long as a slice is alive its bytes stay, whoever else released them."""
    pool = BlockPool(1024, 0)
    writer = BlockWriter(pool, "f", 1)
    writer.append(b"kept", ROWS)
    view = writer.block.slice(0, 1)
    del writer
    gc.collect()
    assert bytes(view) == b"\x12\4kept"
    assert pool.held == 1024
    view.release()
    assert pool.held == 0


def test_spare_memory_is_bounded() -> None:
    """No more memory is kept for later than the limit."""
    pool = BlockPool(1024, 2048)
    writers = [BlockWriter(pool, "f", 1) for _ in range(5)]
    assert pool.held == 5 * 1024
    del writers
    gc.collect()
    assert pool.held == pool.spare_max == 2048
    assert pool.block_size == 1024


def test_blocks_in_garbage_cycles_come_back() -> None:
    """Memory also returns from blocks, and with the pool, out of reference cycles."""
    pool = BlockPool(1024, 0)
    for _ in range(20):
        cycle: list[object] = [BlockWriter(pool, "f", 1).block, pool]
        cycle.append(cycle)
    del cycle
    gc.collect()
    assert pool.held == 0


def test_random_use(rng: random.Random) -> None:
    """Whatever is written and held, bytes stay unchanged and memory is counted."""
    pool = BlockPool(2048, 4096)
    held: list[tuple[memoryview, bytes]] = []
    actions: list[Callable[[], None]] = []

    def write() -> None:
        writer = BlockWriter(pool, "f", 1)
        expected = b""
        for _ in range(rng.randint(1, 10)):
            entry = rng.randbytes(rng.randint(0, 100))
            writer.append(entry, ROWS)
            expected += b"\x12" + bytes((len(entry),)) + entry
        count = len(writer.block)
        first = rng.randint(0, count)
        begin = writer.block.size_of(0, first)
        held.append((writer.block.slice(first, count), expected[begin:]))

    def drop() -> None:
        if held:
            held.pop(rng.randrange(len(held)))

    actions = [write, write, drop]
    for _ in range(400):
        rng.choice(actions)()
        assert all(view == expected for view, expected in held)
    held.clear()
    gc.collect()
    assert pool.held <= pool.spare_max
