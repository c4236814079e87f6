"""The partitions of a Delta table: where its files have which values.

A file has the rows of one partition, without the partition's columns: the log has their
values. Some of these columns are derived from others (`partition_values`), and are no
columns of the mirror's rows. Leaves out how rows are written.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction

from canal_server.mirror.lake import fold, hashes
from canal_server.mirror.lake.delta import delta_properties as properties
from canal_server.mirror.lake.file_bounds import literal, quoted
from canal_server.mirror.lake.keyless import as_array
from canal_server.mirror.lake.partition_values import serialized, with_derived

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deltalake import DeltaTable

    from canal_server.mirror.settings.table_values import CopiedFile, LakePartition

    Values = Mapping[str, pa.Scalar]

VALUES_MAX: Final = 100  # in one condition


class DataFile(NamedTuple):
    """A file of a version."""

    name: str  # in the log, where a folder's name is encoded
    size: int
    values: Values  # of its partition

    @property
    def path(self) -> str:
        """The file's path below the table's folder."""
        return unquote(self.name)

    @property
    def partition(self) -> dict[str, str | None]:
        """The values of its partition as the log has them."""
        return {name: serialized(value) for name, value in self.values.items()}


@dataclass(frozen=True)
class Layout:
    """By what a table is partitioned, as its rule says."""

    partitions: tuple[LakePartition, ...] = ()

    @property
    def names(self) -> list[str]:
        """The partition columns."""
        return [each.name for each in self.partitions]

    @property
    def sources(self) -> list[str]:
        """The columns by which it is partitioned."""
        return [each.column for each in self.partitions]

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of files."""
        return pa.schema([each for each in schema if each.name not in self.names])

    def fits(self, delta: DeltaTable) -> bool:
        """Check whether a table is partitioned in this way."""
        return list(delta.metadata().partition_columns) == self.names

    def rows(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of rows: without those that are derived."""
        derived = {each.name for each in self.partitions if each.is_derived}
        return pa.schema([each for each in schema if each.name not in derived])

    def whole(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns that are derived."""
        return with_derived(rows, self.partitions)

    def prefix_of(self, key: Sequence[str]) -> str | None:
        """Return the first column of a key that files have; None without one."""
        return next((name for name in key if name not in self.names), None)

    def near(
        self, delta: DeltaTable, source: pa.Table, key: Sequence[str], condition: str
    ) -> list[str] | None:
        """Return conditions on the partitions that have rows with some keys.

        They are those of the alias `t`. `condition` limits the files that are read.
        None if no partition has such a row.
        """
        wanted = _key_hashes(source, key)
        columns = list(dict.fromkeys([*key, *self.names]))
        schema = pa.schema(delta.schema().to_arrow())
        kinds = pa.schema([schema.field(name) for name in columns])
        found = []
        for batch in pa.RecordBatchReader.from_stream(
            delta.scan(columns, condition or None)
        ):
            rows = pa.table(batch).select(columns).cast(kinds)
            hits = pc.is_in(_key_hashes(rows, key), wanted)
            found.append(rows.filter(hits).select(self.names))
        partitions = pa.concat_tables([*found, kinds.empty_table().select(self.names)])
        if not len(partitions):
            return None
        return [_among(partitions[name], f"t.{quoted(name)}") for name in self.names]


def files_of(delta: DeltaTable) -> list[DataFile]:
    """Return the files of a version."""
    shown = pa.table(delta.get_add_actions(flatten=True))
    names = delta.metadata().partition_columns
    found = []
    for number, name in enumerate(shown["path"].to_pylist()):
        values = {each: shown[f"partition.{each}"][number] for each in names}
        found.append(DataFile(name, shown["size_bytes"][number].as_py(), values))
    return found


def values_of(
    files: Iterable[CopiedFile], schema: pa.Schema
) -> list[dict[str, pa.Scalar]]:
    """Return the values of the partitions of a copy's files."""
    return [
        {
            name: pa.scalar(text, pa.string()).cast(schema.field(name).type)
            for name, text in file.partition.items()
            if name in schema.names
        }
        for file in files
    ]


def added(
    files: Iterable[CopiedFile], configuration: Mapping[str, str]
) -> list[AddAction]:
    """Return the files of a copy as the log names them."""
    now_ms = int(time.time() * 1000)
    chosen = properties.statistics_columns(configuration) or []
    return [
        AddAction(
            file.path,
            file.size,
            dict(file.partition),
            now_ms,
            True,
            properties.statistics(file.stats, chosen),
        )
        for file in files
    ]


def _key_hashes(rows: pa.Table, key: Sequence[str]) -> pa.Int64Array:
    columns = [as_array(fold.comparable(rows[name])) for name in key]
    return hashes.row_hashes(columns, len(rows), hashes.SEED)


def _among(column: pa.ChunkedArray, target: str) -> str:
    """Return a condition that holds for the values of a column."""
    values = pc.unique(column)
    known = values.drop_null()
    parts = ["false"] if not len(known) else []
    if len(known) > VALUES_MAX:
        ends = pc.min_max(known)
        least, greatest = (
            literal(ends[n].as_py(), column.type) for n in ("min", "max")
        )
        parts.append(f"({target} >= {least} AND {target} <= {greatest})")
    else:
        parts += [f"{target} = {literal(v, column.type)}" for v in known.to_pylist()]
    if values.null_count:
        parts.append(f"{target} IS NULL")
    return f"({' OR '.join(parts)})"
