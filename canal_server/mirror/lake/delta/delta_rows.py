"""Rows of a Delta table: reads them, and rewrites them with other columns.

Leaves out changes of rows (`delta_changes`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties, write_deltalake
from deltalake.table import TableFeatures
from pyarrow.fs import PyFileSystem

from canal_server.errors import LakeError
from canal_server.mirror.lake.delta.delta_layout import files_of
from canal_server.mirror.lake.keyless import row_hashes
from canal_server.mirror.lake.lake_table import HASH
from canal_server.mirror.lake.reshape import Reshape, are_alike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deltalake import CommitProperties
    from deltalake.fs import DeltaStorageHandler

    from canal_server.mirror.lake.conditions import Where
    from canal_server.mirror.lake.delta.delta_layout import Layout, Values

WRITER: Final = WriterProperties(compression="ZSTD", compression_level=1)
_LOCAL_TIMES: Final = "timestampNtz"


def in_order(before: pa.Schema, after: pa.Schema) -> pa.Schema:
    """Return new columns of a table in the order that they will have there.

    delta-rs does not change columns that differ only by their order.
    """
    return before if are_alike(before, after) else after


def allow_local_times(
    delta: DeltaTable, schema: pa.Schema, commit: CommitProperties
) -> None:
    """Declare the feature of Delta without which no TIMESTAMP_NTZ can be read.

    Most operations of delta-rs do so themselves.
    """
    has_any = any(pa.types.is_timestamp(f.type) and not f.type.tz for f in schema)
    if has_any and _LOCAL_TIMES not in (delta.protocol().writer_features or ()):
        delta.alter.add_feature(
            TableFeatures.TimestampWithoutTimezone,
            allow_protocol_versions_increase=True,
            commit_properties=commit,
        )


def rewrite(
    delta: DeltaTable,
    tables: Iterator[pa.Table],
    reshape: Reshape,
    layout: Layout,
    commit: CommitProperties,
) -> None:
    """Rewrite all rows: `tables` have the columns before."""
    before = layout.rows(pa.schema(delta.schema().to_arrow()))
    schema = in_order(before, reshape.schema)

    def reshaped() -> pa.Table | None:
        table = next(tables, None)
        if table is None:
            return None
        table = reshape.rows(table).select(schema.names)
        if HASH.name in table.column_names:
            index = table.schema.get_field_index(HASH.name)
            table = table.set_column(index, HASH, row_hashes(table))
        return table

    write(delta, reshaped, schema, layout, commit)


def write(
    delta: DeltaTable,
    tables: Callable[[], pa.Table | None],
    schema: pa.Schema,
    layout: Layout,
    commit: CommitProperties,
    *,
    where: str | None = "",
) -> None:
    """Replace all rows, columns and partitions; `tables` returns None after the last.

    `schema`: the columns of these rows. `where`: only rows that fulfil this condition
    are replaced, by rows that fulfil it, too; the columns stay. None: no row is.
    """
    errors: list[LakeError] = []
    whole = layout.whole(schema.empty_table()).schema

    def batches(reader: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
        # Called from within delta-rs, where its own files cannot be read.
        try:
            while (table := reader.submit(tables).result()) is not None:
                yield from layout.whole(table).cast(whole).to_batches()
        except LakeError as error:
            errors.append(error)
            raise

    with ThreadPoolExecutor(1, "canal-lake-reader") as reader:
        try:
            write_deltalake(
                delta,
                pa.RecordBatchReader.from_batches(whole, batches(reader)),
                mode="append" if where is None else "overwrite",
                schema_mode="overwrite" if where == "" else None,
                predicate=where or None,
                partition_by=layout.names,
                writer_properties=WRITER,
                commit_properties=commit,
            )
        except Exception:
            # Depending on the thread, delta-rs replaces an error in a batch with its
            # own or with one without a class.
            if errors:
                raise errors[0] from None
            raise


def files(
    delta: DeltaTable, store: DeltaStorageHandler, key: Sequence[str], layout: Layout
) -> Iterator[pa.Table]:
    """Yield the rows of each file, in the order of the key's first column."""
    schema = layout.rows(pa.schema(delta.schema().to_arrow()))
    shown = pa.table(delta.get_add_actions(flatten=True))
    order = list(range(len(shown)))
    first = layout.prefix_of(key)
    if first is not None and f"min.{first}" in shown.column_names:
        order = pc.sort_indices(shown[f"min.{first}"]).to_pylist()
    found = files_of(delta)
    for file in [found[number] for number in order]:
        with PyFileSystem(store).open_input_file(file.path) as opened:
            for batch in pq.ParquetFile(opened).iter_batches():
                yield complete(pa.table(batch), schema, file.values)


@dataclass(frozen=True)
class FileRows:
    """The rows of files, in a table's columns."""

    store: DeltaStorageHandler
    paths: Sequence[str]
    schema: pa.Schema
    values: Sequence[Values]  # of the partition of each file

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self.paths)

    def batches(
        self, number: int, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, in its order; `names`: only these columns."""
        wanted = self.schema.names if names is None else names
        schema = pa.schema([self.schema.field(name) for name in wanted])
        values = self.values[number]
        with PyFileSystem(self.store).open_input_file(self.paths[number]) as opened:
            file = pq.ParquetFile(opened)
            present = [n for n in wanted if n in file.schema_arrow.names]
            # Callers read several files at once, so more threads only cost time.
            for batch in file.iter_batches(columns=present, use_threads=False):
                # Not of views, as delta-rs writes them: none can be taken.
                arrays = [
                    batch.column(field.name).cast(field.type)
                    if field.name in present
                    else constant(values.get(field.name), len(batch), field.type)
                    for field in schema
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def batches(
    delta: DeltaTable, names: list[str] | None, where: Where | None
) -> Iterator[pa.RecordBatch]:
    """Yield rows, in any order."""
    schema = pa.schema(delta.schema().to_arrow())
    condition = where.sql(schema) if where else None
    for batch in pa.RecordBatchReader.from_stream(delta.scan(names, condition)):
        # delta-rs returns texts as views.
        yield batch.cast(pa.schema([schema.field(name) for name in batch.schema.names]))


def complete(
    rows: pa.Table, schema: pa.Schema, values: Values | None = None
) -> pa.Table:
    """Return rows with all of the lake's columns, in order.

    `values`: of columns that their file does not have, by its partition.
    """
    known = values or {}
    return pa.table(
        [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else constant(known.get(field.name), len(rows), field.type)
            for field in schema
        ],
        schema=schema,
    )


def constant(value: pa.Scalar | None, count: int, kind: pa.DataType) -> pa.Array:
    """Return a column that has one value; NULL if there is none."""
    if value is None or not value.is_valid:
        return pa.nulls(count, kind)
    return pa.repeat(value.cast(kind), count)
