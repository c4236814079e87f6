"""Marks made while reading, compared with a plain list of transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from fix_blocks import BEGIN, END, OTHER, ROWS, Entries

from canal_server.source.begin.boundary_index import BoundaryIndex, FileKey, Mark
from canal_server.source.begin.index_writer import LONG_SET_INTERVAL, IndexWriter

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from fix_blocks import Span

SOURCE = "uuid-1"
MARK_BYTES = 1000
FIRST = 4


@dataclass(frozen=True)
class Transaction:
    """One transaction of a generated binlog."""

    file: int
    start: int
    events: tuple[tuple[int, int], ...]  # kind, length
    time_s: int

    @property
    def stop(self) -> int:
        """Return its end offset."""
        return self.start + sum(length for _, length in self.events)

    @property
    def rows(self) -> int:
        """Return its number of rows."""
        return sum(kind == ROWS for kind, _ in self.events)


def name_of(file: int) -> str:
    """Return the name of a file."""
    return f"bin.{file:06}"


def key_of(file: int) -> FileKey:
    """Return the index's key of a file."""
    return FileKey(SOURCE, name_of(file), file)


def make_binlog(
    rng: random.Random, files: int = 3, count: int = 40
) -> list[Transaction]:
    """Return transactions of several files; times sometimes go back."""
    found: list[Transaction] = []
    for file in range(1, files + 1):
        offset = FIRST
        for _ in range(count):
            rows = [(ROWS, rng.randint(20, 200)) for _ in range(rng.randint(0, 6))]
            events = [(BEGIN, 40), *rows, (END, 31)]
            if rng.random() < 0.1:
                events = [(OTHER, 60)]
            time_s = 1000 * file + rng.randint(0, 500)
            found.append(Transaction(file, offset, tuple(events), time_s))
            offset = found[-1].stop
    return found


def chunks(
    rng: random.Random, transactions: list[Transaction], *, gtid: str = ""
) -> Iterator[list[Span]]:
    """Yield the transactions as a reader does, in random pieces."""
    file = transactions[0].file
    entries = Entries(file=name_of(file), file_number=file)
    for one in transactions:
        if one.file != file:
            file = one.file
            entries.rotate(name_of(file), file)
        offset = one.start
        for kind, length in one.events:
            entries.add(
                kind,
                size=100 + len(gtid),
                offset=offset,
                event_length=length,
                time=one.time_s,
                gtid=gtid,
            )
            offset += length
            if rng.random() < 0.2:
                yield entries.take()
    yield entries.take()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[BoundaryIndex]:
    """Yield an empty index."""
    made = BoundaryIndex(tmp_path / "boundaries.sqlite")
    made.open()
    yield made
    made.close()


def began_s(name: str) -> int:
    """Return when a file was created."""
    return int(name.rpartition(".")[2])


def read(
    index: BoundaryIndex,
    rng: random.Random,
    transactions: list[Transaction],
    **options: object,
) -> None:
    """Let a session read transactions and write the index."""
    gtid = str(options.pop("gtid", ""))
    writer = IndexWriter(index, SOURCE, began_s, mark_bytes=MARK_BYTES, **options)  # type: ignore[arg-type]
    for spans in chunks(rng, transactions, gtid=gtid):
        writer.note(spans)
    writer.flush()


def check(index: BoundaryIndex, binlog: list[Transaction]) -> int:
    """Check that each mark is correct; return the covered bytes."""
    covered = 0
    for file in {one.file for one in binlog}:
        inside = [one for one in binlog if one.file == file]
        reached = 0
        for mark in index.marks(key_of(file)):
            assert mark.start >= reached, "marks overlap"
            reached = mark.stop
            covered += mark.stop - mark.start
            within = [x for x in inside if mark.start <= x.start < mark.stop]
            last = within[-1]
            assert mark.start in (within[0].start, FIRST)
            assert mark == Mark(
                within[0].start,
                last.stop - last.events[-1][1],
                last.stop,
                last.time_s,
                max(x.time_s for x in within),
                len(within),
                sum(x.rows for x in within),
            )
    return covered


def test_whole_binlog(index: BoundaryIndex, rng: random.Random) -> None:
    """From a file's first event on, every byte of transactions is covered."""
    binlog = make_binlog(rng)
    read(index, rng, binlog, boundary=(name_of(1), FIRST))
    assert check(index, binlog) == sum(x.stop - x.start for x in binlog)
    sizes = [m.stop - m.start for m in index.marks(key_of(2))]
    assert all(size >= MARK_BYTES for size in sizes[:-1])
    assert index.sources() == [SOURCE]


def test_sessions_that_begin_anywhere(index: BoundaryIndex, rng: random.Random) -> None:
    """Transactions read before are not counted twice, and gaps are filled."""
    binlog = make_binlog(rng)
    for _ in range(12):
        first = rng.randrange(len(binlog))
        stop = rng.randint(first + 1, len(binlog))
        read(index, rng, binlog[first:stop])
        check(index, binlog)
    read(index, rng, binlog, boundary=(name_of(1), FIRST))
    assert check(index, binlog) == sum(x.stop - x.start for x in binlog)
    for file in (1, 2, 3):
        inside = [one for one in binlog if one.file == file]
        counted = index.count_between(key_of(file), FIRST, inside[-1].stop)
        assert (counted.transactions, counted.missing) == (len(inside), ())
        when = rng.choice(inside).time_s
        mark = index.at_time(key_of(file), when * 1000)
        reached = mark.stop if mark else FIRST
        assert all(x.time_s < when for x in inside if x.stop <= reached)


def test_session_that_continues(index: BoundaryIndex, rng: random.Random) -> None:
    """A start at the last transaction's end leaves no gap."""
    binlog = make_binlog(rng, files=1)
    read(index, rng, binlog[:20], boundary=(name_of(1), FIRST))
    last = binlog[19]
    end = Transaction(1, last.stop - last.events[-1][1], last.events[-1:], last.time_s)
    read(index, rng, [end, *binlog[20:]])
    assert check(index, binlog) == sum(x.stop - x.start for x in binlog)


def test_files_whose_beginning_was_not_seen(
    index: BoundaryIndex, rng: random.Random
) -> None:
    """A file without creation time cannot be identified, and is left out."""
    binlog = make_binlog(rng, files=1)
    writer = IndexWriter(index, SOURCE, lambda _: None, mark_bytes=MARK_BYTES)
    for spans in chunks(rng, binlog):
        writer.note(spans)
    writer.flush()
    assert index.sources() == []


def test_by_gtid(index: BoundaryIndex, rng: random.Random) -> None:
    """Marks start with the first file that is complete, with their sets."""
    binlog = make_binlog(rng)
    read(index, rng, binlog, exact_from=lambda: None)
    assert index.marks(key_of(1)) == []
    read(index, rng, binlog, exact_from=lambda: 2, gtid="u:1-7")
    assert index.marks(key_of(1)) == []
    marks = index.marks(key_of(2))
    assert {each.gtids for each in marks} == {"u:1-7"}
    assert marks[0].start == FIRST


def test_long_sets(index: BoundaryIndex, rng: random.Random) -> None:
    """A set of many parts is stored with few marks only."""
    binlog = make_binlog(rng, files=1, count=200)
    read(index, rng, binlog, boundary=(name_of(1), FIRST), gtid="u:1-7" * 300)
    with_set = [bool(each.gtids) for each in index.marks(key_of(1))]
    assert with_set.index(True) == LONG_SET_INTERVAL
    assert sum(with_set) == len(with_set) // (LONG_SET_INTERVAL + 1)


def test_rows_that_nobody_counted(index: BoundaryIndex, rng: random.Random) -> None:
    """A mere scan of a file does not count its rows."""
    read(index, rng, make_binlog(rng, files=1), counts_rows=False)
    assert {each.rows for each in index.marks(key_of(1))} == {None}
