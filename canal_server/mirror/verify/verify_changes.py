"""Changes to compare: packed runs of rows, as Spark's executors see them.

Leaves out rows that are read from source and copy (`verify_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.errors import DecodeError
from canal_server.mirror.lake import masks
from canal_server.mirror.state.xa import is_of_xa
from canal_server.mirror.verify.verify_rows import HASHED, picked, repeated
from canal_server.spark.packed.packed_rows import unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.mirror.verify.verify_rows import RowForm

SHARE: Final = -1  # of rows that come from changes
_REMOVED: Final = pa.array(["delete", "update_preimage"])


@dataclass(frozen=True)
class HashedChanges:
    """A task: packed changes in, hashes of a table's rows out, with their order."""

    table: MirrorTable
    form: RowForm

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Unpack each run."""
        for order, kinds, rows in _changes(batches, self.table):
            count = len(kinds)
            if rows is None:
                first = second = of_rows = repeated(0, count, pa.int64())
                signs = repeated(0, count, pa.int32())
            else:
                first, second, of_rows = self.form.hashes(rows)
                dropped = pc.is_in(kinds, value_set=_REMOVED)
                signs = pc.if_else(
                    dropped, *(pa.scalar(n, pa.int32()) for n in (-1, 1))
                )
            share = repeated(SHARE, count, pa.int32())
            columns = [first, second, of_rows, signs, share, *order]
            yield pa.RecordBatch.from_arrays(columns, schema=HASHED)


@dataclass(frozen=True)
class ShownChanges:
    """A task: packed changes in, the values of some of a table's rows out."""

    table: MirrorTable
    form: RowForm
    requested: frozenset[int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Unpack each run."""
        for _, _, rows in _changes(batches, self.table):
            if rows is not None:
                yield from picked(rows, self.form, self.requested)


def _changes(
    batches: Iterator[pa.RecordBatch], table: MirrorTable
) -> Iterator[tuple[list[pa.Array], pa.Array, pa.RecordBatch | None]]:
    """Yield order, kinds and rows of a table's changes; None for a statement."""
    for batch in batches:
        for run in unpack(pa.Table.from_batches([batch])):
            if run.kind == "statement":
                if is_of_xa(run) or not run.concerns(table.source):
                    continue
                order = [pa.array([run.seq], pa.int64()), pa.array([0], pa.int32())]
                yield order, pa.array(["statement"]), None
            elif run.kind == "problem" and run.table == table.source:
                raise DecodeError(f"table {table.source}: {run.sql}")
            elif run.kind == "rows" and run.table == table.source:
                data = run.data
                assert data is not None  # as it has rows
                for rows in data.to_batches():
                    order = [rows.column("_seq"), rows.column("_row")]
                    yield order, rows.column("_change_type"), masks.apply(rows, table)
