"""Rewrites files of a Delta table in the order of its key.

No row changes. Leaves out which files (`file_groups`), when this is done, and tables
without a key (`delta_upkeep`).
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import PyFileSystem

from canal_server.mirror.lake.delta import delta_properties as properties
from canal_server.mirror.lake.delta.delta_layout import files_of
from canal_server.mirror.lake.delta.delta_rows import complete
from canal_server.mirror.lake.file_groups import KeyedFile, groups_of
from canal_server.mirror.lake.file_stats import FileStats
from canal_server.mirror.lake.lake_table import Compacted
from canal_server.mirror.lake.partition_values import folder_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import CommitProperties, DeltaTable
    from deltalake.fs import DeltaStorageHandler

    from canal_server.mirror.lake.delta.delta_layout import DataFile, Layout

HELD_BYTES_MAX: Final = 512 << 20  # of rows in memory
COMPRESSION: Final = ("zstd", 1)


def compact(
    delta: DeltaTable,
    store: DeltaStorageHandler,
    key: Sequence[str],
    layout: Layout,
    commit: CommitProperties,
) -> Compacted | None:
    """Separate overlapping files of a partition and merge small ones, as one commit.

    None if that is impossible: the log lacks the files' key ranges, or the rows need
    too much memory.
    """
    first = layout.prefix_of(key)
    files = None if first is None else _files(delta, first)
    if files is None:
        return None
    configuration = delta.metadata().configuration
    size = int(configuration.get(properties.FILE_SIZE) or properties.FILE_BYTES_UNKNOWN)
    data_files = {each.name: each for each in files_of(delta)}
    by_partition: dict[tuple[str | None, ...], list[KeyedFile]] = {}
    for file in files:
        partition = tuple(data_files[file.path].partition.values())
        by_partition.setdefault(partition, []).append(file)
    chosen = list(groups_of(by_partition.values(), size))
    with_statistics = properties.statistics_columns(configuration)
    writer = _Writer(
        delta,
        store,
        key,
        layout,
        with_statistics=with_statistics,
        data_files=data_files,
    )
    done = [(group, writer.written(group, size)) for group in chosen]
    added = [action for _, actions in done for action in actions]
    if not added:
        return None if chosen else Compacted()
    now_ms = int(time.time() * 1000)
    removed = [
        RemoveAction(
            file.path, False, now_ms, file.size, data_files[file.path].partition
        )
        for group, actions in done
        if actions
        for file in group
    ]
    delta.create_write_transaction(
        [*added, *removed], "append", delta.schema(), commit_properties=commit
    )
    return Compacted(len(removed), len(added))


def _files(delta: DeltaTable, column: str) -> list[KeyedFile] | None:
    with_statistics = pa.table(delta.get_add_actions(flatten=True))
    names = (f"min.{column}", f"max.{column}", "path", "size_bytes", "num_records")
    if any(name not in with_statistics.column_names for name in names):
        return None
    found = [
        KeyedFile(*row)
        for row in zip(
            *(with_statistics[name].to_pylist() for name in names), strict=True
        )
    ]
    if any(None in file for file in found):
        return None
    return found


class _Writer:
    """Writes the rows of files in the key's order."""

    def __init__(
        self,
        delta: DeltaTable,
        store: DeltaStorageHandler,
        key: Sequence[str],
        layout: Layout,
        *,
        with_statistics: Sequence[str] | None,
        data_files: Mapping[str, DataFile],
    ) -> None:
        self._schema = layout.stored(pa.schema(delta.schema().to_arrow()))
        self._data_files = data_files
        self._files = PyFileSystem(store)
        self._key = [name for name in key if name not in layout.names]
        self._with_statistics = (
            self._schema.names if with_statistics is None else with_statistics
        )

    def written(self, group: Sequence[KeyedFile], size: int) -> list[AddAction]:
        """Write files of about this size; returns their entries for the log.

        None if the rows need too much memory.
        """
        rows = self._rows(group)
        if rows is None:
            return []
        rows = rows.sort_by([(name, "ascending") for name in self._key])
        count = max(1, round(sum(file.size for file in group) / size))
        each = max(1, -(-len(rows) // count))
        partition = self._data_files[group[0].path].partition
        return [
            self._write(rows.slice(first, each), partition)
            for first in range(0, len(rows), each)
        ]

    def _rows(self, group: Sequence[KeyedFile]) -> pa.Table | None:
        parts, held = [], 0
        for each in group:
            path = self._data_files[each.path].path
            with self._files.open_input_file(path) as file:
                part = complete(pq.ParquetFile(file).read(), self._schema)
            parts.append(part)
            held += part.nbytes
            if held > HELD_BYTES_MAX:
                return None
        return pa.concat_tables(parts)

    def _write(self, rows: pa.Table, partition: dict[str, str | None]) -> AddAction:
        name = f"{folder_of(partition)}part-{uuid.uuid4()}.zstd.parquet"
        stats = FileStats(self._schema, self._key)
        codec, level = COMPRESSION
        with self._files.open_output_stream(name) as file:
            pq.write_table(rows, file, compression=codec, compression_level=level)
            size = file.tell()
        for batch in rows.to_batches():
            stats.add(batch)
        text = properties.statistics(stats.to_json(), self._with_statistics)
        return AddAction(name, size, partition, int(time.time() * 1000), False, text)
