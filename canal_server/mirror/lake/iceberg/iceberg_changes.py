"""Applies changes to an Iceberg table: by key, or counted without one.

Only the files that have a changed row are written again, each as one new file in its
order: so key ranges of files stay as narrow as they are. Rows of new keys get files of
their own. Leaves out the commit (`iceberg_commit`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.mirror.lake import fold, hashes
from canal_server.mirror.lake.iceberg.iceberg_columns import arrow_schema
from canal_server.mirror.lake.iceberg.iceberg_commit import Change
from canal_server.mirror.lake.iceberg.iceberg_files import FileRows, ends, nulls
from canal_server.mirror.lake.keyless import as_array, difference
from canal_server.mirror.lake.lake_table import (
    ADDED,
    DELETED,
    HASH,
    META,
    Applied,
    UnlikeError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile

    from canal_server.mirror.lake.conditions import Among
    from canal_server.mirror.lake.iceberg.iceberg_columns import Column
    from canal_server.mirror.lake.iceberg.iceberg_files import FileWriter

    _Choice = Callable[[pa.RecordBatch], pa.BooleanArray]

_OP: Final = "_change_type"


class Rewriter:
    """Finds and rewrites the files of one version of a table."""

    def __init__(
        self,
        io: FileIO,
        columns: Sequence[Column],
        files: Sequence[DataFile],
        writer: FileWriter,
    ) -> None:
        """Set the files; the writer writes files of the same columns."""
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._files = files
        self._rows = FileRows(io, columns, [each.file_path for each in files])
        self._writer = writer

    # --- by key -----------------------------------------------------------------------

    def merge(self, changes: pa.Table, key: Sequence[str]) -> tuple[Change, Applied]:
        """Apply changes of a table with a key: the last one of each key."""
        source = self._source(fold.newest(changes, key))
        keys = _Keys(source, key)
        is_delete = as_array(pc.equal(source[_OP], fold.DELETE))
        soft = DELETED.name in source.column_names
        change, updated, deleted = Change(), 0, 0
        found, moved = [], _Moved(self._schema)
        for number in self._candidates(source, key):
            hits = self._hits(number, keys)
            if not len(hits):
                continue
            found.append(hits)
            deletions = 0 if soft else pc.sum(is_delete.take(hits)).as_py() or 0
            deleted += deletions
            updated += len(hits) - deletions
            moved.now = self._writer.partitioning.elsewhere(
                source, self._files[number].partition
            )
            removed = None if soft else is_delete
            rows = self._merged(number, keys, source, removed, moved)
            self._replace(change, number, rows)
        matched = pa.chunked_array(found, pa.int64())
        rest = pc.invert(pc.is_in(pa.array(range(len(source)), pa.int64()), matched))
        if not soft:
            rest = pc.and_(rest, pc.invert(is_delete))
        new = self._complete(source.filter(rest))
        arrived = pa.concat_tables([moved.rows, new])
        change.added += self._writer.write_table(arrived)
        return change, Applied(updated + len(new), deleted)

    def _candidates(self, source: pa.Table, key: Sequence[str]) -> Iterator[int]:
        """Yield the files whose bounds have a value of each column of the key."""
        kinds = {each.name: each for each in self._columns}
        values = [
            (kinds[name], _Sorted(source[name]))
            for name in key
            if _has_order(kinds[name].kind)
        ]
        for number, file in enumerate(self._files):
            if all(each.are_between(*ends(file, column)) for column, each in values):
                yield number

    def _hits(self, number: int, keys: _Keys) -> pa.Array:
        """Return which changes have their row in a file."""
        found = [
            keys.find(batch).drop_null()
            for batch in self._rows.batches(number, keys.names)
        ]
        return pa.concat_arrays([pa.array([], pa.int64()), *found])

    def _merged(
        self,
        number: int,
        keys: _Keys,
        source: pa.Table,
        is_delete: pa.Array | None,
        moved: _Moved,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, as changes leave them, without those that move."""
        for batch in self._rows.batches(number):
            at = keys.find(batch)
            if at.null_count == len(at):
                yield batch
                continue
            hit = at.is_valid()
            arrays = []
            for name in self._schema.names:
                old = batch.column(name)
                if name in source.column_names:
                    new = as_array(source[name]).take(at)
                    old = pc.if_else(hit, new, old)
                arrays.append(old)
            merged = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            if is_delete is not None:
                stay = pc.invert(pc.fill_null(is_delete.take(at), False))
                merged, at = merged.filter(stay), at.filter(stay)
            yield moved.without(merged, at)

    # --- without a key ----------------------------------------------------------------

    def count(self, changes: pa.Table) -> tuple[Change, Applied]:
        """Apply changes of a table without a key."""
        own = [name for name in self._schema.names if name not in ADDED]
        if missing := [name for name in own if name not in changes.column_names]:
            raise UnlikeError(
                f"changes of the table lack column {missing[0]}, without which its "
                "rows cannot be distinguished"
            )
        source = self._typed(changes).select([*own, *META, _OP])
        soft = DELETED.name in self._schema.names
        hit: list[int] = []

        def find(removed: pa.Int64Array) -> pa.Table:
            parts = []
            for number in range(len(self._files)):
                found = list(self._with_hashes(number, removed, soft=soft))
                hit.extend([number] if found else [])
                parts += found
            return pa.Table.from_batches(parts, self._schema)

        made = difference(source, soft=soft, find=find)
        change, deletions = Change(), 0
        for number in hit:
            left = self._without(number, made.removed, soft=soft)
            rows = self._replace(change, number, left)
            deletions += self._files[number].record_count - rows
        change.added += self._writer.write_table(self._complete(made.added))
        repeated = deletions - made.counts[1]
        return change, Applied(made.counts[0] - repeated, made.counts[1])

    def _with_hashes(
        self, number: int, removed: pa.Int64Array, *, soft: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that have one of the hashes."""
        names = [HASH.name, *([DELETED.name] if soft else [])]
        if not any(
            pc.any(_chosen(batch, removed, soft=soft)).as_py()
            for batch in self._rows.batches(number, names)
        ):
            return
        for batch in self._rows.batches(number):
            found = batch.filter(_chosen(batch, removed, soft=soft))
            if len(found):
                yield found

    def _without(
        self, number: int, removed: pa.Int64Array, *, soft: bool
    ) -> Iterator[pa.RecordBatch]:
        for batch in self._rows.batches(number):
            yield batch.filter(pc.invert(_chosen(batch, removed, soft=soft)))

    # --- by a condition ---------------------------------------------------------------

    def without(self, where: Among | None) -> Change:
        """Remove rows; None: all of them."""
        change = Change()
        for number, chosen, count in self._with_rows(where):
            if count == self._files[number].record_count:
                change.removed.add(self._files[number].file_path)
            else:
                rows = (
                    batch.filter(pc.invert(chosen(batch)))
                    for batch in self._rows.batches(number)
                )
                self._replace(change, number, rows)
        return change

    def marked(self, where: Among | None, values: dict[str, pa.Scalar]) -> Change:
        """Give columns of rows that are not marked as deleted these values."""
        change = Change()
        for number, chosen, _ in self._with_rows(where, soft=True):
            self._replace(change, number, self._set(number, chosen, values))
        return change

    def _with_rows(
        self, where: Among | None, *, soft: bool = False
    ) -> Iterator[tuple[int, _Choice, int]]:
        """Yield files that have some of the rows: what finds these, and their number.

        `soft`: only those that are not marked as deleted.
        """
        names = [] if where is None else [where.column]
        names += [DELETED.name] if soft else []

        def chosen(batch: pa.RecordBatch) -> pa.BooleanArray:
            found = pa.repeat(pa.scalar(True), batch.num_rows)
            if where is not None:
                found = where.chosen(batch.column(where.column))
            return _live(found, batch) if soft else found

        for number, file in enumerate(self._files):
            if where is not None and not self._may_have(file, where):
                continue
            if not names:
                yield number, chosen, file.record_count
                continue
            count = sum(
                pc.sum(chosen(batch)).as_py() or 0
                for batch in self._rows.batches(number, names)
            )
            if count:
                yield number, chosen, count

    def _may_have(self, file: DataFile, where: Among) -> bool:
        column = next(each for each in self._columns if each.name == where.column)
        return where.may_be_in(*ends(file, column), nulls=nulls(file, column) != 0)

    def _set(
        self, number: int, chosen: _Choice, values: dict[str, pa.Scalar]
    ) -> Iterator[pa.RecordBatch]:
        for batch in self._rows.batches(number):
            changes = chosen(batch)
            arrays = [
                pc.if_else(changes, values[field.name], batch.column(field.name))
                if field.name in values
                else batch.column(field.name)
                for field in self._schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    # --- columns ----------------------------------------------------------------------

    def _replace(
        self, change: Change, number: int, rows: Iterator[pa.RecordBatch]
    ) -> int:
        """Replace a file by one with other rows; returns how many they are."""
        change.removed.add(self._files[number].file_path)
        written = self._writer.write(rows, self._files[number].partition)
        if written is None:
            return 0
        change.added.append(written)
        return int(written.record_count)

    def _source(self, rows: pa.Table) -> pa.Table:
        """Return changes in the lake's types, with its extra columns."""
        if DELETED.name in self._schema.names:
            deleted = pc.equal(rows[_OP], fold.DELETE)
            rows = rows.append_column(DELETED, deleted)
        return self._typed(rows)

    def _typed(self, rows: pa.Table) -> pa.Table:
        fields = []
        for name in rows.column_names:
            if name != _OP and name not in self._schema.names:
                raise UnlikeError(f"it lacks column {name} of the table's changes")
            schema = rows.schema if name == _OP else self._schema
            fields.append(schema.field(name))
        return rows.cast(pa.schema(fields))

    def _complete(self, rows: pa.Table) -> pa.Table:
        """Return rows with all of the lake's columns, in order."""
        arrays = [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(len(rows), field.type)
            for field in self._schema
        ]
        return pa.table(arrays, schema=self._schema)


class _Moved:
    """Rows whose new values are those of another partition than their file's."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = schema.empty_table()
        self.now: pa.Array = pa.array([], pa.bool_())  # by the number of a change

    def without(self, batch: pa.RecordBatch, at: pa.Array) -> pa.RecordBatch:
        """Return rows that stay, and keep the others; `at`: each row's change."""
        moves = pc.fill_null(self.now.take(at), False)
        if not pc.any(moves).as_py():
            return batch
        self.rows = pa.concat_tables([self.rows, pa.table(batch.filter(moves))])
        return batch.filter(pc.invert(moves))


class _Keys:
    """The keys of changes, found by two hashes of 64 bits each."""

    def __init__(self, source: pa.Table, key: Sequence[str]) -> None:
        self.names = list(key)
        self._seed = hashes.SEED
        first = self._first(source)
        while len(pc.unique(first)) < len(first):  # two keys share a hash
            self._seed += 1
            first = self._first(source)
        self._hashes = first
        self._others = self._second(source)

    def find(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the index of each row's change; NULL for a row without one."""
        rows = pa.table(batch)
        at = pc.index_in(self._first(rows), self._hashes).cast(pa.int64())
        if at.null_count == len(at):
            return at
        same = pc.equal(self._others.take(at), self._second(rows))
        return pc.if_else(pc.fill_null(same, False), at, pa.scalar(None, pa.int64()))

    def _first(self, rows: pa.Table) -> pa.Int64Array:
        return self._of(rows, self._seed)

    def _second(self, rows: pa.Table) -> pa.Int64Array:
        return self._of(rows, hashes.OTHER_SEED)

    def _of(self, rows: pa.Table, seed: int) -> pa.Int64Array:
        columns = [as_array(fold.comparable(rows[name])) for name in self.names]
        return hashes.row_hashes(columns, len(rows), seed)


class _Sorted:
    """The sorted values of a column, converted to Python values on access."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        values = pc.unique(column)
        self._values = values.take(pc.sort_indices(values))

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> Any:
        return self._values[index].as_py()

    def are_between(self, least: Any, greatest: Any) -> bool:
        """Check whether a value may be between two bounds, of which None is unknown."""
        at = 0 if least is None else bisect_left(self, least)
        if at == len(self):
            return False
        return greatest is None or bool(self[at] <= greatest)


def _has_order(kind: pa.DataType) -> bool:
    return not (pa.types.is_binary(kind) or pa.types.is_floating(kind))


def _chosen(
    batch: pa.RecordBatch, removed: pa.Int64Array, *, soft: bool
) -> pa.BooleanArray:
    found = pc.is_in(batch.column(HASH.name), removed)
    return _live(found, batch) if soft else found


def _live(chosen: pa.BooleanArray, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return which of the chosen rows are not marked as deleted."""
    return pc.and_(chosen, pc.invert(batch.column(DELETED.name)))
