"""Turns a chunk into files in the table's folder, as executors do it.

The files are not part of the table until its log names them. A chunk that fails leaves
files that nothing names; vacuum deletes them.
"""

from __future__ import annotations

import contextlib
import importlib
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from canal_server.errors import LakeError
from canal_server.mirror.lake import masks
from canal_server.mirror.lake.file_stats import FileStats
from canal_server.mirror.lake.keyless import row_hashes
from canal_server.mirror.lake.lake_table import (
    ADDED,
    DELETED,
    HASH,
    ROW,
    SEQ,
    TIME,
    added_fields,
)
from canal_server.mirror.lake.partition_values import Collected, folder_of, parted
from canal_server.mirror.lake.row_keys import ManyPartitionsError, check_keys
from canal_server.mirror.rows.chunk_read import read_chunk
from canal_server.mirror.settings.table_values import CopiedFile
from canal_server.mirror.state.manifests import ChunkManifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from canal_server.mirror.lake.lake_storage import Folder
    from canal_server.mirror.rows.chunks import Chunk
    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.mysql.source_settings import Access
    from canal_server.runtime.lifecycle import Stop

FILE_BYTES: Final = 64 << 20
FILE_ROWS: Final = 150_000  # a change of one row rewrites the whole file
PARTITIONS_MAX: Final = 10_000  # of the rows of a chunk, each with a file
STAGED: Final = (
    "_staged"  # below the table's folder; readers skip names with an underscore
)
COMPRESSION: Final = ("zstd", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask:
    """Everything that an executor needs to copy chunks of a table."""

    access: Access
    table: MirrorTable
    copy_id: str
    seq: int  # of the copied rows
    folder: Folder  # of the table
    manifests: Folder
    file_schema: pa.Schema | None = None  # how columns are stored; None: as copied
    rows_per_s: int = 0  # 0: no limit
    file_bytes: int = FILE_BYTES
    file_rows: int = FILE_ROWS

    @property
    def in_partitions(self) -> bool:
        """Whether each file has the rows of one partition."""
        return bool(self.table.partitions)

    @property
    def prefix(self) -> str:
        """Where files are before they are published, below the table's folder.

        A table consists of what it names; readers of a log read every file.
        """
        return f"{STAGED}/" if self.table.is_log else ""


def copy_schema(table: MirrorTable) -> pa.Schema:
    """Return the schema of a copy's files."""
    return pa.schema([*masks.lake_schema(table), *added_fields(table)])


def copy_chunk(task: CopyTask, chunk: Chunk, stop: Stop | None = None) -> ChunkManifest:
    """Copy a chunk and write its manifest, unless the manifest exists.

    Raises SourceError, DecodeError, TableMetaError, NullKeyError, LakeError and
    ManyPartitionsError.
    """
    known = ChunkManifest.read(task.manifests, chunk.number)
    if known is not None and is_whole(known, sizes_of(task)):
        return known
    batches = read_chunk(
        task.access, task.table, chunk, rows_per_s=task.rows_per_s, stop=stop
    )
    files = write_files(task, chunk, batches)
    rows = sum(file.rows for file in files)
    manifest = ChunkManifest(chunk.number, rows, tuple(files))
    manifest.write(task.manifests)
    return manifest


def sizes_of(task: CopyTask) -> dict[str, int]:
    """Return the sizes of all files in a copy's folder, by path."""
    if task.in_partitions:
        return task.folder.sizes_below()
    folder = task.folder.below(STAGED) if task.prefix else task.folder
    return {task.prefix + name: size for name, size in folder.sizes().items()}


def is_whole(manifest: ChunkManifest, sizes: Mapping[str, int]) -> bool:
    """Check whether all files of a manifest exist."""
    return all(sizes.get(file.path) == file.size for file in manifest.files)


def write_files(
    task: CopyTask, chunk: Chunk, batches: Iterable[pa.RecordBatch]
) -> list[CopiedFile]:
    """Write rows of the lake; returns the files, which are stored durably."""
    schema = copy_schema(task.table)
    read_at = datetime.now(UTC)
    if task.in_partitions:
        return _write_partitions(task, chunk, batches, read_at)
    done: list[CopiedFile] = []
    current: _File | None = None
    with contextlib.ExitStack() as stack:
        for batch in batches:
            if current is not None and current.rows + batch.num_rows > task.file_rows:
                done.append(current.finish())
                current = None
            if current is None:
                name = _file_name(task, chunk, len(done))
                current = stack.enter_context(_File(task, name, schema))
            current.add(_as_in_lake(task, batch, schema, read_at))
            if current.size >= task.file_bytes:
                done.append(current.finish())
                current = None
        if current is not None:
            done.append(current.finish())
        stack.pop_all()
    return done


def _write_partitions(
    task: CopyTask, chunk: Chunk, batches: Iterable[pa.RecordBatch], read_at: datetime
) -> list[CopiedFile]:
    """Write rows of a table with partitions: each file has those of one."""
    table, whole = task.table, copy_schema(task.table)
    derived = {each.name for each in table.partitions if each.is_derived}
    left_out = {each.name for each in table.partitions}
    if table.form == "iceberg":
        # Its partitions are no columns, and its files have all columns.
        derived = left_out = set()
    read = pa.schema([each for each in whole if each.name not in derived])
    schema = pa.schema([each for each in whole if each.name not in left_out])
    done: list[CopiedFile] = []
    written: set[Any] = set()
    with contextlib.ExitStack() as stack:

        def write(partition: Any, rows: pa.Table) -> None:
            written.add(partition)
            if len(written) > PARTITIONS_MAX:
                raise ManyPartitionsError(
                    f"table {table.source}: partition_by gives more than "
                    f"{PARTITIONS_MAX:,} partitions in a part of a copy: choose a "
                    "column with fewer values, or month(…) or bucket(16, …) of it"
                )
            values = {} if table.form == "iceberg" else dict(partition)
            for first in range(0, len(rows), task.file_rows):
                name = folder_of(values) + _file_name(task, chunk, len(done))
                file = stack.enter_context(_File(task, name, schema))
                part = rows.slice(first, task.file_rows).select(schema.names)
                for batch in part.combine_chunks().to_batches():
                    file.add(batch)
                done.append(replace(file.finish(), partition=values))

        collected = Collected(_parted_by(table), task.file_bytes, write)
        for batch in batches:
            collected.add(_as_in_lake(task, batch, read, read_at))
        collected.write_all()
        stack.pop_all()
    return done


def _parted_by(table: MirrorTable) -> Callable[[pa.Table], Iterable[Any]]:
    """Return what gives the rows of each partition."""
    if table.form == "iceberg":
        name = "canal_server.mirror.lake.iceberg.iceberg_partitions"
        found: Any = importlib.import_module(name).Partitioning(table.partitions)
        hidden: Callable[[pa.Table], Iterable[Any]] = found.parted
        return hidden
    names = [each.name for each in table.partitions]
    return lambda rows: (
        (tuple(zip(names, values, strict=True)), part)
        for values, part in parted(rows, table.partitions)
    )


def _as_in_lake(
    task: CopyTask, batch: pa.RecordBatch, schema: pa.Schema, read_at: datetime
) -> pa.RecordBatch:
    """Return rows masked and renamed, with the lake's extra columns."""
    count = batch.num_rows
    values = {SEQ.name: task.seq, ROW.name: 0, TIME.name: read_at, DELETED.name: False}
    rows = masks.apply(batch, task.table)
    check_keys(rows, task.table)
    arrays = list(rows.columns)
    for each in list(schema)[len(arrays) :]:
        if each.name == HASH.name:
            order = (task.file_schema or schema).names
            own = [n for n in order if n not in ADDED and n in rows.schema.names]
            arrays.append(row_hashes(pa.Table.from_batches([rows]).select(own)))
        else:
            arrays.append(pa.repeat(pa.scalar(values[each.name], each.type), count))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _file_name(task: CopyTask, chunk: Chunk, number: int) -> str:
    """Return a name that no other attempt at the chunk uses."""
    unique = uuid.uuid4().hex[:12]
    name = f"copy-{task.copy_id}-{chunk.number:06}-{number}-{unique}.zstd.parquet"
    return task.prefix + name


class _File:
    """A Parquet file being written; deleted unless it is finished."""

    def __init__(self, task: CopyTask, name: str, schema: pa.Schema) -> None:
        self._folder = task.folder
        self._name = name
        self._stats = FileStats(schema, task.table.key_targets)
        self._sink = task.folder.create(name)
        codec, level = COMPRESSION
        self._stored = task.file_schema
        if self._stored is not None and task.in_partitions:
            kept = [each for each in self._stored if each.name in schema.names]
            self._stored = pa.schema(kept)
        self._writer = pq.ParquetWriter(
            self._sink,
            self._stored or schema,
            compression=codec,
            compression_level=level,
            # As Iceberg's own writers do; Delta's read both.
            store_decimal_as_integer=task.table.form == "iceberg",
        )
        self.size = 0

    @property
    def rows(self) -> int:
        """Return the number of rows written so far."""
        return self._stats.rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        try:
            stored = batch
            if self._stored is not None:
                stored = batch.select(self._stored.names).cast(self._stored)
            self._writer.write_batch(stored)
            self.size = self._sink.tell()
        except OSError as error:
            raise self._failed(error) from error
        self._stats.add(batch)

    def finish(self) -> CopiedFile:
        """Close the file; returns it once it is stored durably."""
        try:
            self._writer.close()
            self.size = self._sink.tell()
            self._sink.close()
        except OSError as error:
            raise self._failed(error) from error
        self._folder.keep(self._name)
        stats = self._stats
        return CopiedFile(self._name, self.size, stats.rows, stats.to_json())

    def _failed(self, error: OSError) -> LakeError:
        return LakeError(f"cannot write {self._folder}/{self._name}: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Runs only after an error, which is raised: a failure here follows from it.
        with contextlib.suppress(OSError, LakeError):
            if not self._sink.closed:
                self._writer.close()
                self._sink.close()
        with contextlib.suppress(LakeError):
            self._folder.delete(self._name)
