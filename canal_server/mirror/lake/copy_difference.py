"""What differs between a table and a new copy of it, found by hashes of rows.

::

    files of the table ──► hashes ─┐
                                   ├─ bucket by bucket ──► what differs ──► rows
    files of the copy ───► hashes ─┘

Two rows are equal if the source's columns are; the mirror's own (`_seq` and others) are
not compared. A bucket with the same number of rows on both sides, and the same sums of
their hashes, has the same rows, in any order; so has a part of a bucket. Memory holds
the hashes of two buckets, and the rows that differ. Leaves out how files are read
(`Files`) and how the changes are committed (`delta`, `iceberg`).
"""

from __future__ import annotations

import logging
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.errors import ConnectionLost
from canal_server.mirror.lake import fold, hashes
from canal_server.mirror.lake.keyless import as_array, repeated
from canal_server.mirror.lake.lake_table import (
    ADDED,
    DELETED,
    HASH,
    ROW,
    SEQ,
    TIME,
    UnusableTableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from canal_server.mirror.lake.lake_table import Files
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

ROWS_MAX: Final = 250_000  # that differ; of more, a copy replaces the table's files
BYTES_MAX: Final = 128 << 20  # of these rows in memory
BUCKET_ROWS: Final = 500_000  # whose hashes are in memory, of each side and thread
PARTS: Final = 1 << 12  # of a bucket, of which only those that differ are compared

# What reading a file raises that is missing or damaged.
_UNREADABLE: Final = (FileNotFoundError, pa.ArrowInvalid, UnusableTableError)
_THREADS: Final = 2  # that read files of both sides, and then compare
_OP: Final = "_change_type"
_INSERT: Final = "insert"
_PARTS_AT: Final = 40  # bits of a key's hash below the number of its part
_AT_BITS: Final = 32  # of a row's number in its file; above them, the file's number
_WHOLE: Final = (1 << 64) - 1
_KEYS: Final = ["k1", "k2"]
_DERIVED: Final = (DELETED.name, HASH.name)  # which changes do not have
_HASHED: Final = pa.schema(
    [("k1", pa.int64()), ("k2", pa.int64()), ("h", pa.int64()), ("at", pa.int64())]
)
_NOWHERE: Final = pa.array([], pa.int64())


def difference(  # noqa: PLR0917  # both sides, and what they are compared by
    table: Files,
    copy: Files,
    rows: int,
    key: Sequence[str],
    seq: int,
    stop: Stop | None = None,
) -> pa.Table | None:
    """Return the changes that make a table equal to the files of a copy.

    They have columns like those of `LakeTable.apply`, with the lake's names: a row of
    the copy that the table has not is an insert, which replaces a row with the same
    key. `rows` is about the number of rows of the larger side, `seq` the number of the
    copy's position. None if there are more than `ROWS_MAX` or `BYTES_MAX`, if a side
    has a key twice among rows that differ, or if a file of the table is missing or
    damaged. Raises ConnectionLost when a stop is requested.
    """
    schema = table.schema
    ours, theirs = _Side(table, key, stop), _Side(copy, key, stop)
    buckets = 1 << max(0, -(-rows // BUCKET_ROWS) - 1).bit_length()
    with ExitStack() as stack:
        pair = [stack.enter_context(_Buckets(each, buckets)) for each in (ours, theirs)]
        pool = ThreadPoolExecutor(_THREADS, "canal-lake-compare")
        # The rest is dropped if one fails, or if it is known that too much differs.
        stack.callback(pool.shutdown, cancel_futures=True)
        # By file, so that no thread waits for the other one on a larger side.
        read = [
            (side is pair[0], pool.submit(side.read, number))
            for side in pair
            for number in range(side.files)
        ]
        for is_ours, done in read:
            try:
                done.result()
            except _UNREADABLE as error:
                if not is_ours:
                    raise
                log.info("the copy replaces all files, as one is unreadable: %s", error)
                return None
        compared = [
            pool.submit(_compared_buckets, pair, number, bool(key))
            for number in range(buckets)
        ]
        removed, added, count = [], [], 0
        for each in compared:
            found = each.result()
            if found is None:
                return None
            count += len(found[0]) + len(found[1])
            if count > ROWS_MAX:
                return None
            removed.append(found[0])
            added.append(found[1])
    changes = [schema.empty_table().append_column(_OP, pa.array([], pa.string()))]
    size = 0
    for side, numbers, kind in (
        (theirs, pa.concat_arrays(added), _INSERT),
        (ours, pa.concat_arrays(removed), fold.DELETE),
    ):
        for part in side.rows(numbers):
            if (size := size + part.nbytes) > BYTES_MAX:
                return None
            changed = _as_removed(part, seq) if kind == fold.DELETE else part
            changes.append(changed.append_column(_OP, pa.repeat(kind, len(part))))
    whole = pa.concat_tables(changes)
    return whole.drop_columns([n for n in _DERIVED if n in whole.column_names])


def _compared_buckets(
    pair: Sequence[_Buckets], number: int, has_key: bool
) -> tuple[pa.Array, pa.Array] | None:
    one, other = (side.sums[number] for side in pair)
    if one == other:
        return _NOWHERE, _NOWHERE
    ours, theirs = _unequal_parts(*(side.bucket(number) for side in pair))
    return _compared(ours, theirs, has_key)


def _unequal_parts(*sides: pa.Table) -> list[pa.Table]:
    """Return the rows of both sides in those parts of a bucket that differ."""
    parts = [
        pc.bit_wise_and(pc.shift_right(side["k1"], _PARTS_AT), PARTS - 1)
        for side in sides
    ]
    ours, theirs = (
        pa.table([part, side["h"], side["k2"]], ["part", "h", "k2"])
        .group_by("part")
        # Sums of 64-bit numbers wrap around.
        .aggregate([("part", "count"), ("h", "sum"), ("k2", "sum")])
        for part, side in zip(parts, sides, strict=True)
    )
    equal = ours.join(theirs, ours.column_names, join_type="inner")["part"]
    return [
        side.filter(pc.invert(pc.is_in(part, equal)))
        for part, side in zip(parts, sides, strict=True)
    ]


def _compared(
    ours: pa.Table, theirs: pa.Table, has_key: bool
) -> tuple[pa.Array, pa.Array] | None:
    """Return where rows are that only one side has, each as often as it has it more.

    None if a side has a key twice, whose rows cannot be distinguished, or if rows
    without a key differ too often.
    """
    if has_key:
        is_distinct = True
        for side in (ours, theirs):
            if pc.count_distinct(side["k1"]).as_py() < side.num_rows:
                is_distinct = False
                if side.group_by(_KEYS).aggregate([]).num_rows != side.num_rows:
                    return None
        if is_distinct:
            # Faster, as what follows takes several times as long for each row.
            ours, theirs = _without_equal(ours, theirs), _without_equal(theirs, ours)
    each = [
        side.group_by([*_KEYS, "h"]).aggregate([("at", "min"), ("at", "count")])
        for side in (ours, theirs)
    ]
    both = each[0].join(
        each[1], [*_KEYS, "h"], join_type="full outer", right_suffix="_copy"
    )
    more = pc.subtract(
        pc.fill_null(both["at_count_copy"], 0), pc.fill_null(both["at_count"], 0)
    )
    added = both.filter(pc.greater(more, 0))
    removed = both.filter(pc.less(more, 0))
    if has_key:
        # A row whose key the copy has is replaced by it.
        removed = removed.join(added.select(_KEYS), _KEYS, join_type="left anti")
        return as_array(removed["at_min"]), as_array(added["at_min_copy"])
    surplus = pc.abs(more)
    if (pc.sum(surplus).as_py() or 0) > ROWS_MAX:
        return None
    return (
        repeated(removed["at_min"], surplus.filter(pc.less(more, 0))),
        repeated(added["at_min_copy"], surplus.filter(pc.greater(more, 0))),
    )


def _without_equal(side: pa.Table, other: pa.Table) -> pa.Table:
    """Return the rows that the other side does not have with equal values.

    `k1` is distinct in both sides.
    """
    at = pc.index_in(side["k1"], other["k1"])
    equal = [pc.equal(side[name], other[name].take(at)) for name in ("k2", "h")]
    return side.filter(pc.invert(pc.fill_null(pc.and_(*equal), False)))


def _as_removed(rows: pa.Table, seq: int) -> pa.Table:
    """Return rows with the mirror's columns of a deletion that a copy has found."""
    for field, value in ((SEQ, seq), (ROW, 0), (TIME, datetime.now(UTC))):
        index = rows.schema.get_field_index(field.name)
        values = pa.repeat(pa.scalar(value, field.type), len(rows))
        rows = rows.set_column(index, rows.schema.field(index), values)
    return rows


class _Side:
    """The rows of some files, in the lake's columns."""

    def __init__(self, files: Files, key: Sequence[str], stop: Stop | None) -> None:
        self._files = files
        self._schema = files.schema
        self._own = pa.schema([f for f in self._schema if f.name not in ADDED])
        self._key = key
        self._stop = stop

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._files)

    def hashed(self, number: int) -> Iterator[pa.Table]:
        """Yield the hashes of a file's rows, without those marked as deleted."""
        names = [*self._own.names]
        if DELETED.name in self._schema.names:
            names.append(DELETED.name)
        at = number << _AT_BITS
        for batch in self._files.batches(number, names):
            self._check_stop()
            if len(batch) == 0:
                continue
            rows = batch.select(self._own.names)
            # From `at` on; faster than the numbers of a range.
            locations = pc.cumulative_sum(pa.repeat(1, len(rows)), start=at - 1)
            at += len(rows)
            hashed = self._of(rows, locations)
            if DELETED.name in names:
                live = pc.invert(pc.fill_null(batch.column(DELETED.name), False))
                hashed = hashed.filter(live)
            yield hashed

    def rows(self, locations: pa.Array) -> Iterator[pa.Table]:
        """Yield rows by their locations, with all of the lake's columns."""
        order = pc.sort_indices(locations)
        locations = locations.take(order)
        numbers = pc.shift_right(locations, _AT_BITS)
        for number in pc.unique(numbers).to_pylist():
            self._check_stop()
            within = pc.bit_wise_and(
                locations.filter(pc.equal(numbers, number)), (1 << _AT_BITS) - 1
            )
            yield self._taken(number, within)

    def _taken(self, number: int, within: pa.Array) -> pa.Table:
        """Return rows of a file by their numbers, which are sorted."""
        first, parts = 0, [self._schema.empty_table()]
        for batch in self._files.batches(number):
            end = first + len(batch)
            here = pc.and_(pc.greater_equal(within, first), pc.less(within, end))
            wanted = pc.subtract(within.filter(here), first)
            if len(wanted):
                parts.append(pa.table(batch.take(wanted)))
            first = end
        return pa.concat_tables(parts)

    def _of(self, rows: pa.RecordBatch, locations: pa.Array) -> pa.Table:
        every = [rows.column(name) for name in self._own.names]
        of_rows = hashes.row_hashes(every, len(rows))
        keys = [fold.comparable(rows.column(name)) for name in self._key]
        first = hashes.row_hashes(keys, len(rows)) if keys else of_rows
        second = hashes.row_hashes(keys or every, len(rows), hashes.OTHER_SEED)
        return pa.table([first, second, of_rows, locations], schema=_HASHED)

    def _check_stop(self) -> None:
        if self._stop is not None and self._stop.requested():
            raise ConnectionLost("the comparison was interrupted by a stop")


@dataclass
class _Sums:
    """What is equal for the same rows in any order, and differs by chance else."""

    rows: int = 0
    hashes: int = 0
    others: int = 0  # of rows without a key, by the second hash

    def add(self, hashed: pa.Table) -> None:
        """Count more rows."""
        self.rows += len(hashed)
        self.hashes = (self.hashes + _sum_of(hashed["h"])) & _WHOLE
        self.others = (self.others + _sum_of(hashed["k2"])) & _WHOLE


def _sum_of(numbers: pa.ChunkedArray) -> int:
    """Return the sum of 64-bit numbers without a sign, modulo 2**64."""
    return sum(pc.sum(chunk.view(pa.uint64())).as_py() or 0 for chunk in numbers.chunks)


class _Buckets:
    """The hashes of one side by bucket: in memory if there is one, else in files.

    Several threads read files of the side; no bucket is used before all were read.
    """

    def __init__(self, side: _Side, count: int) -> None:
        self.files = len(side)
        self.sums = [_Sums() for _ in range(count)]
        self._side = side
        self._count = count
        self._lock = Lock()  # of the sums, and of what holds the hashes
        self._ending = ExitStack()
        self._writers: list[pa.ipc.RecordBatchStreamWriter] = []
        self._folder = Path()
        self._whole = [_HASHED.empty_table()]

    def __enter__(self) -> Self:
        if self._count > 1:
            with ExitStack() as stack:
                folder = tempfile.TemporaryDirectory(prefix="canal-mirror-")
                self._folder = Path(stack.enter_context(folder))
                self._writers = [
                    stack.enter_context(pa.ipc.new_stream(self._path(number), _HASHED))
                    for number in range(self._count)
                ]
                self._ending = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def read(self, number: int) -> None:
        """Add the hashes of a file's rows."""
        for hashed in self._side.hashed(number):
            parts = [*self._parts(hashed)]
            with self._lock:
                for bucket, part in parts:
                    self._add(bucket, part)

    def _parts(self, hashed: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Yield rows by bucket: sorted once, as each filter looks at all of them."""
        if self._count == 1:
            yield 0, hashed
            return
        buckets = pc.bit_wise_and(hashed["k1"], self._count - 1)
        # Few different numbers are counted, not compared, if they are short.
        short = pc.cast(buckets, pa.uint16() if self._count <= 1 << 16 else pa.int64())
        order = pc.sort_indices(short)
        hashed, begin = hashed.take(order), 0
        for count in pc.value_counts(short.take(order)).to_pylist():
            yield int(count["values"]), hashed.slice(begin, count["counts"])
            begin += count["counts"]

    def _add(self, bucket: int, part: pa.Table) -> None:
        """Count and keep rows of a bucket. Requires holding the lock."""
        self.sums[bucket].add(part)
        if self._writers:
            self._writers[bucket].write_table(part)
        else:
            self._whole.append(part)

    def bucket(self, number: int) -> pa.Table:
        """Return the hashes of a bucket."""
        if not self._writers:
            return pa.concat_tables(self._whole)
        with self._lock:
            self._writers[number].close()
        with pa.ipc.open_stream(self._path(number)) as reader:
            return reader.read_all()

    def _path(self, number: int) -> Path:
        return self._folder / str(number)
