"""Rows to compare, as Spark's executors see them: hashes instead of values.

A share is what one task reads at a time: a chunk of the source, or some files of the
copy. The caller passes the function that reads rows; it yields batches of the lake's
columns. Leaves out changes (`verify_changes`) and the comparison of hashes
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

    Reader = Callable[[int], Iterator[pa.RecordBatch]]  # share number to its rows

# k1, k2: two hashes of the key, or without a key of the row. h: hash of the row.
# n: 1; in changes -1 for a deleted row, 0 for a statement. share: where it was read.
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
# The same schema in Spark's notation.
HASHED_TYPES: Final = "k1 long, k2 long, h long, n int, share int, seq long, row int"
SHOWN_TYPES: Final = "k1 long, k2 long, h long, texts array<string>"
TEXT_MAX: Final = 200  # characters of a shown value


@dataclass(frozen=True)
class RowForm:
    """The columns of a table in the lake, which both sides deliver."""

    names: tuple[str, ...]
    key: tuple[str, ...]
    schema: pa.Schema

    def hashes(
        self, rows: pa.RecordBatch
    ) -> tuple[pa.Int64Array, pa.Int64Array, pa.Int64Array]:
        """Return two hashes of each key, and a hash of each row."""
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
    requested: frozenset[int]  # k1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read each share."""
        for number in _numbers(batches):
            for rows in self.read(number):
                yield from picked(rows, self.form, self.requested)


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def picked(
    rows: pa.RecordBatch, form: RowForm, requested: frozenset[int]
) -> Iterator[pa.RecordBatch]:
    """Yield the texts of the rows with these keys, if any."""
    if not rows.num_rows:
        return
    first, second, of_rows = form.hashes(rows)
    found = pc.is_in(first, value_set=pa.array(requested, pa.int64()))
    if not pc.any(found).as_py():
        return
    kept = rows.filter(found)
    columns = [kept.column(name).to_pylist() for name in form.names]
    texts = [[text_of(value) for value in row] for row in zip(*columns, strict=True)]
    arrays = [each.filter(found) for each in (first, second, of_rows)]
    arrays.append(pa.array(texts, SHOWN.field("texts").type))
    yield pa.RecordBatch.from_arrays(arrays, schema=SHOWN)


def text_of(value: object) -> str:
    """Return a value as readable text, shortened if it is long; NULL as NULL."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = f"0x{value[:TEXT_MAX].hex()}"
    else:
        text = repr(value) if isinstance(value, (str, float)) else str(value)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…({len(text)})"


def repeated(value: int, count: int, kind: pa.DataType) -> pa.Array:
    """Return an array that repeats one number."""
    return pa.repeat(pa.scalar(value, kind), count)
