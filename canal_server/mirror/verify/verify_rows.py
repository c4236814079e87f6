"""Rows to be compared, as Spark's executors see them: hashes instead of values.

A share is what one task reads at a time: a chunk of the source, or some files of the
copy. How rows are read is a function that is given; it yields batches of the lake's
columns. Leaves out changes (`verify_changes`), and how hashes are compared
(`verify_compare`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.mirror.lake.hashes import OTHER_SEED, row_hashes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Reader = Callable[[int], Iterator[pa.RecordBatch]]  # of the rows of a share

# k1, k2: two hashes of the key; without a key, of the row. h: hash of the row.
# n: 1; of a change -1 when the row is gone, 0 of a statement. share: where it is from.
HASHED: Final = pa.schema(
    [
        ("k1", pa.int64()),
        ("k2", pa.int64()),
        ("h", pa.int64()),
        ("n", pa.int32()),
        ("share", pa.int32()),
        ("seq", pa.int64()),
        ("row", pa.int32()),
    ]
)
SHOWN: Final = pa.schema(
    [
        ("k1", pa.int64()),
        ("k2", pa.int64()),
        ("h", pa.int64()),
        ("texts", pa.list_(pa.string())),
    ]
)
# The same as Spark tells it.
HASHED_TYPES: Final = "k1 long, k2 long, h long, n int, share int, seq long, row int"
SHOWN_TYPES: Final = "k1 long, k2 long, h long, texts array<string>"
TEXT_MAX: Final = 200  # characters of a value that is shown


@dataclass(frozen=True)
class RowForm:
    """The columns of a table in the lake, as both sides deliver them."""

    names: tuple[str, ...]
    key: tuple[str, ...]
    schema: pa.Schema

    def hashes(
        self, rows: pa.RecordBatch
    ) -> tuple[pa.Int64Array, pa.Int64Array, pa.Int64Array]:
        """Return the hashes of the keys, twice, and of the rows."""
        every = [rows.column(name) for name in self.names]
        of_rows = row_hashes(every, rows.num_rows)
        if not self.key:
            return of_rows, row_hashes(every, rows.num_rows, OTHER_SEED), of_rows
        keys = [rows.column(name) for name in self.key]
        first = row_hashes(keys, rows.num_rows)
        return first, row_hashes(keys, rows.num_rows, OTHER_SEED), of_rows


@dataclass(frozen=True)
class Hashed:
    """A task: numbers of shares in, hashes of their rows out."""

    read: Reader
    form: RowForm

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read each share."""
        for number in _numbers(batches):
            for rows in self.read(number):
                if rows.num_rows:
                    yield self._of(rows, number)

    def _of(self, rows: pa.RecordBatch, number: int) -> pa.RecordBatch:
        count = rows.num_rows
        columns = [
            *self.form.hashes(rows),
            repeated(1, count, pa.int32()),
            repeated(number, count, pa.int32()),
            pa.nulls(count, pa.int64()),
            pa.nulls(count, pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=HASHED)


@dataclass(frozen=True)
class Shown:
    """A task: numbers of shares in, the values of some of their rows out, as texts."""

    read: Reader
    form: RowForm
    wanted: frozenset[int]  # k1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read each share."""
        for number in _numbers(batches):
            for rows in self.read(number):
                yield from picked(rows, self.form, self.wanted)


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def picked(
    rows: pa.RecordBatch, form: RowForm, wanted: frozenset[int]
) -> Iterator[pa.RecordBatch]:
    """Yield the texts of the rows with these keys, if there are some."""
    if not rows.num_rows:
        return
    first, second, of_rows = form.hashes(rows)
    found = pc.is_in(first, value_set=pa.array(wanted, pa.int64()))
    if not pc.any(found).as_py():
        return
    kept = rows.filter(found)
    columns = [kept.column(name).to_pylist() for name in form.names]
    texts = [[text_of(value) for value in row] for row in zip(*columns, strict=True)]
    arrays = [each.filter(found) for each in (first, second, of_rows)]
    arrays.append(pa.array(texts, SHOWN.field("texts").type))
    yield pa.RecordBatch.from_arrays(arrays, schema=SHOWN)


def text_of(value: object) -> str:
    """Return a value as a person reads it, cut where it is long; NULL as NULL."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = f"0x{value[:TEXT_MAX].hex()}"
    else:
        text = repr(value) if isinstance(value, (str, float)) else str(value)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…({len(text)})"


def repeated(value: int, count: int, kind: pa.DataType) -> pa.Array:
    """Return an array of one number."""
    return pa.repeat(pa.scalar(value, kind), count)
