"""Data files of an Iceberg table: their rows, and new ones with their statistics.

Leaves out which files belong to a table (`iceberg_commit`).
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from canal_server.mirror.lake.iceberg.iceberg_columns import (
    Column,
    arrow_schema,
    file_schema,
    ids_of,
    schema_of,
)
from canal_server.mirror.lake.iceberg.iceberg_partitions import Partitioning
from canal_server.mirror.lake.lake_table import UnusableTableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyiceberg.io import FileIO

    from canal_server.mirror.lake.conditions import Where
    from canal_server.mirror.settings.table_values import CopiedFile

FILE_ROWS: Final = 150_000  # a change of one row rewrites the whole file
BATCH_ROWS: Final = 32_768
COMPRESSION: Final = ("zstd", 1)

NOT_PARTITIONED: Final = Partitioning()
WHOLE: Final = Record()  # the only partition of such a table

_MODE: Final = "write.metadata.metrics.column."  # what is known of a column
_EXACT: Final = Context(prec=60)
_KEPT_BOUNDS: Final = 32  # columns with bounds, in addition to those of the key


@dataclass(frozen=True)
class FileRows:
    """The rows of data files, in a table's columns; can be pickled.

    `copied`: they are these files of a copy, which have the columns of the same names,
    or of another table, which has them by other ids.
    """

    io: FileIO
    columns: Sequence[Column]
    paths: Sequence[str]
    copied: Sequence[CopiedFile] = ()

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self.paths)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return arrow_schema(self.columns)

    def batches(
        self, number: int, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, in its order; `names`: only these columns."""
        with self.io.new_input(self.paths[number]).open() as opened:
            file = pq.ParquetFile(opened)
            present = self._present(file.schema_arrow, number)
            wanted = [
                each for each in self.columns if names is None or each.name in names
            ]
            read = [present[each.id] for each in wanted if each.id in present]
            # Without any column there still is a number of rows.
            for batch in file.iter_batches(BATCH_ROWS, columns=read):
                yield _as_columns(batch, wanted, present)

    def _present(self, schema: pa.Schema, number: int) -> dict[int, str]:
        """Return the names of a file's columns by their ids in the table."""
        present = ids_of(schema)
        if self.copied:
            ids = self.copied[number].ids
            if not ids:
                names = set(schema.names)
                return {c.id: c.name for c in self.columns if c.name in names}
            known = [(c.id, ids.get(c.name)) for c in self.columns]
            return {ours: present[its] for ours, its in known if its in present}
        if not present:
            raise UnusableTableError(
                f"{self.paths[number]} has no column ids: another writer added it"
            )
        return present


def _as_columns(
    batch: pa.RecordBatch, wanted: Sequence[Column], present: dict[int, str]
) -> pa.RecordBatch:
    arrays = []
    for each in wanted:
        name = present.get(each.id)
        if name is None:
            arrays.append(pa.nulls(len(batch), each.kind))
        else:
            arrays.append(batch.column(name).cast(each.kind))
    schema = arrow_schema(wanted)
    if not wanted:
        return batch.select([])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class FileWriter:
    """Writes data files of a table, and remembers them."""

    def __init__(
        self,
        io: FileIO,
        location: str,
        columns: Sequence[Column],
        key: Sequence[str],
        partitioning: Partitioning = NOT_PARTITIONED,
    ) -> None:
        """Set the table's folder and its columns; `key` has bounds in any case."""
        self._io = io
        self._location = location
        self._columns = columns
        self.key = [*key, *partitioning.sources]  # columns that have bounds
        self.partitioning = partitioning
        self.written: list[DataFile] = []

    def write(
        self, batches: Iterable[pa.RecordBatch], partition: Record = WHOLE
    ) -> DataFile | None:
        """Write rows of one partition to a file. None if there are none."""
        rows = (each for each in batches if each.num_rows)
        first = next(rows, None)
        if first is None:
            return None
        path = f"{self._location}/data/{uuid.uuid4()}.zstd.parquet"
        schema = file_schema(self._columns)
        found: list[pq.FileMetaData] = []
        output = self._io.new_output(path)
        codec, level = COMPRESSION
        try:
            with (
                output.create() as sink,
                pq.ParquetWriter(
                    sink,
                    schema,
                    compression=codec,
                    compression_level=level,
                    store_decimal_as_integer=True,
                    metadata_collector=found,
                ) as writer,
            ):
                writer.write_batch(_stored(first, schema))
                for each in rows:
                    writer.write_batch(_stored(each, schema))
        except BaseException:
            with suppress(OSError):
                self._io.delete(path)
            raise
        sync(path)
        size = len(output)
        spec_partition = SpecPartition(self.partitioning.spec_id, partition)
        data_file = described(
            path, size, found[0], self._columns, self.key, spec_partition
        )
        self.written.append(data_file)
        return data_file

    def write_table(self, rows: pa.Table) -> list[DataFile]:
        """Write rows to files of a limited size, each of one partition."""
        found = []
        for partition, whole in self.partitioning.parted(rows):
            for first in range(0, len(whole), FILE_ROWS):
                part = whole.slice(first, FILE_ROWS)
                written = self.write(part.to_batches(BATCH_ROWS), partition)
                assert written is not None  # as there are rows
                found.append(written)
        return found

    def discard(self) -> None:
        """Delete the files that were written, as no commit names them."""
        for each in self.written:
            with suppress(OSError):  # a vacuum deletes what is left
                self._io.delete(each.file_path)
        self.written.clear()


class SpecPartition(NamedTuple):
    """The partition of a file, in the spec with this id."""

    spec_id: int = 0
    partition: Record = WHOLE


def described(  # noqa: PLR0917  # of a file, and of its table
    path: str,
    size: int,
    metadata: pq.FileMetaData,
    columns: Sequence[Column],
    key: Sequence[str],
    spec_partition: SpecPartition,
) -> DataFile:
    """Return a file as manifests describe it, with bounds of its columns."""
    modes = {
        f"{_MODE}{each.name}": "counts"
        for number, each in enumerate(columns)
        if number >= _KEPT_BOUNDS and each.name not in key and each.name[:1] != "_"
    }
    try:
        statistics = _statistics(metadata, columns, modes)
    except UnicodeEncodeError:
        # pyiceberg cuts texts, and raises the last character of the upper bound: after
        # U+D7FF there is none.
        modes |= {
            f"{_MODE}{each.name}": "counts"
            for each in columns
            if pa.types.is_string(each.kind)
        }
        statistics = _statistics(metadata, columns, modes)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=spec_partition.partition,
        file_size_in_bytes=size,
        sort_order_id=None,
        spec_id=spec_partition.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics,
    )


def _statistics(
    metadata: pq.FileMetaData, columns: Sequence[Column], modes: Mapping[str, str]
) -> dict[str, Any]:
    found = data_file_statistics_from_parquet_metadata(
        metadata,
        compute_statistics_plan(schema_of(columns), dict(modes)),
        {each.name: each.id for each in columns},
    )
    return found.to_serialized_dict()


def ends(file: DataFile, column: Column) -> tuple[Any, Any]:
    """Return the least and the greatest value of a file's column; None if unknown.

    Those of texts may be wider: they are cut.
    """
    if file.record_count and file.null_value_counts:
        nulls = file.null_value_counts.get(column.id)
        if nulls == file.record_count:
            return None, None
    found = [
        _value(bounds.get(column.id) if bounds else None, column.kind)
        for bounds in (file.lower_bounds, file.upper_bounds)
    ]
    return found[0], found[1]


def nulls(file: DataFile, column: Column) -> int:
    """Return how many rows of a file have NULL in a column; below 0: unknown."""
    if not file.null_value_counts:
        return -1
    return int(file.null_value_counts.get(column.id, -1))


def within(
    files: Sequence[DataFile], columns: Sequence[Column], where: Where
) -> list[DataFile]:
    """Return the files whose bounds do not exclude all of their rows."""
    known = {each.name: each for each in columns}
    found = []
    for file in files:
        for name, low, high in where.ranges:
            least, greatest = ends(file, known[name])
            if (least is not None and least > high) or (
                greatest is not None and greatest < low
            ):
                break
        else:
            found.append(file)
    return found


def _value(bound: bytes | None, kind: pa.DataType) -> Any:
    """Return a bound in the form that Arrow gives the column's values."""
    if bound is None or not _has_order(kind):
        return None
    if pa.types.is_string(kind):
        return bound.decode("utf-8", "surrogatepass")
    if pa.types.is_decimal(kind):
        unscaled = int.from_bytes(bound, "big", signed=True)
        return Decimal(unscaled).scaleb(-kind.scale, _EXACT)
    number = int.from_bytes(bound, "little", signed=True)
    if pa.types.is_temporal(kind):
        plain = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return pa.scalar(number, plain).cast(kind).as_py()
    return number


def _has_order(kind: pa.DataType) -> bool:
    return not (
        pa.types.is_floating(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_boolean(kind)
    )


def copied(
    io: FileIO,
    location: str,
    columns: Sequence[Column],
    files: Iterable[CopiedFile],
    writer: FileWriter,
) -> list[DataFile]:
    """Return the files of a copy as files of the table."""
    found = []
    for each in files:
        found += _copied(io, f"{location}/{each.path}", columns, each, writer)
    return found


def delete_staged(io: FileIO, location: str, files: Iterable[CopiedFile]) -> None:
    """Delete the files of a copy that were compared and are not of the table."""
    for each in files:
        # A vacuum deletes what is left.
        with suppress(OSError):
            io.delete(f"{location}/{each.path}")


def _copied(
    io: FileIO,
    path: str,
    columns: Sequence[Column],
    file: CopiedFile,
    writer: FileWriter,
) -> list[DataFile]:
    """Return a file of a copy as files of the table.

    It is written again if its column ids are not those of the table, or if its rows
    are in several partitions.
    """
    source = io.new_input(path)
    with source.open() as opened:
        metadata = pq.read_metadata(opened)
    if metadata.num_rows == 0:
        return []
    rows = FileRows(io, columns, [path], [file])
    partitions = _partitions_of(rows, writer.partitioning)
    if len(partitions) == 1:
        if _fits(metadata.schema.to_arrow_schema(), columns, file):
            spec_partition = SpecPartition(writer.partitioning.spec_id, partitions[0])
            return [
                described(
                    path, len(source), metadata, columns, writer.key, spec_partition
                )
            ]
        written = writer.write(rows.batches(0), partitions[0])
        return [] if written is None else [written]
    return writer.write_table(pa.Table.from_batches(rows.batches(0), rows.schema))


def _fits(schema: pa.Schema, columns: Sequence[Column], file: CopiedFile) -> bool:
    """Check whether readers of the table read a copy's file as what it is.

    Any other column is one that the file's own table has dropped: here its id may be
    that of a column that is added later.
    """
    if ids_of(schema) != {each.id: each.name for each in columns}:
        return False
    return not file.ids or (
        file.ids == {each.name: each.id for each in columns}
        and all(schema.field(each.name).type == each.stored for each in columns)
    )


def _partitions_of(rows: FileRows, partitioning: Partitioning) -> list[Record]:
    """Return the partitions of a copy's rows."""
    if not partitioning.partitions:
        return [WHOLE]
    wanted = [each for each in rows.columns if each.name in partitioning.sources]
    found = pa.Table.from_batches(
        rows.batches(0, partitioning.sources), arrow_schema(wanted)
    )
    return [partition for partition, _ in partitioning.parted(found)]


def sync(path: str) -> None:
    """Make a file of the file system survive a crash of the machine."""
    if "://" in path:
        return  # an object is stored when it is complete
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stored(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
