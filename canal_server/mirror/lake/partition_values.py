"""By which values rows of the lake are in partitions.

Buckets of a Delta table: `MOD(value, count)` of a number, `CRC32(value) % count` of a
text, as MySQL and Spark compute them for values that are not negative. Iceberg has a
hash of its own (`iceberg_partitions`).
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.mirror.settings.lake_partitions import BUCKET, PART, TIMES

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from canal_server.mirror.settings.table_values import LakePartition

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
PART_MAX: Final = 100  # characters of the part of a path that stands for a text
_HASH_DIGITS: Final = 16  # of a longer one
_Partition = TypeVar("_Partition", bound="Hashable")


def derived_fields(partitions: Sequence[LakePartition]) -> list[pa.Field]:
    """Return the partition columns that a Delta table has in addition to its rows."""
    return [
        pa.field(each.name, _TYPES[each.function])
        for each in partitions
        if each.is_derived
    ]


def with_derived(rows: pa.Table, partitions: Sequence[LakePartition]) -> pa.Table:
    """Return rows with the partition columns that are derived from others."""
    for each in partitions:
        if each.is_derived:
            kind = _TYPES[each.function]
            rows = rows.append_column(pa.field(each.name, kind), _values(rows, each))
    return rows


def parted(
    rows: pa.Table, partitions: Sequence[LakePartition]
) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """Yield the rows of each partition, without columns that are derived.

    The values are those of Delta's log. The order of rows within a partition stays.
    """
    names = [each.name for each in partitions]
    whole = with_derived(rows, partitions)
    for values, part in grouped(rows, [whole[name] for name in names]):
        yield tuple(map(serialized, values)), part


def grouped(
    rows: pa.Table, columns: Sequence[pa.Array | pa.ChunkedArray]
) -> Iterator[tuple[list[pa.Scalar], pa.Table]]:
    """Yield rows that have the same values in `columns`, with these."""
    keys = pa.table({str(number): column for number, column in enumerate(columns)})
    names = keys.column_names
    numbered = keys.append_column("at", pa.array(range(len(keys)), pa.int64()))
    groups = numbered.group_by(names, use_threads=False).aggregate([("at", "list")])
    for number in range(len(groups)):
        values = [groups[name][number] for name in names]
        yield values, rows.take(groups["at_list"][number].values)


class Collected(Generic[_Partition]):
    """Collects rows by partition, and gives those of the largest away when too many."""

    def __init__(
        self,
        parted: Callable[[pa.Table], Iterable[tuple[_Partition, pa.Table]]],
        bytes_max: int,
        write: Callable[[_Partition, pa.Table], None],
    ) -> None:
        """`write` is called with a partition and rows of it, as `parted` gives them."""
        self._parted = parted
        self._bytes_max = bytes_max
        self._write = write
        self._rows: dict[_Partition, list[pa.Table]] = {}
        self._sizes: dict[_Partition, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, without the columns that are derived."""
        for partition, rows in self._parted(pa.table(batch)):
            self._rows.setdefault(partition, []).append(rows)
            self._sizes[partition] = self._sizes.get(partition, 0) + rows.nbytes
        while sum(self._sizes.values()) > self._bytes_max:
            self._give(max(self._sizes, key=lambda each: self._sizes[each]))

    def write_all(self) -> None:
        """Give all rows away."""
        for partition in list(self._rows):
            self._give(partition)

    def _give(self, partition: _Partition) -> None:
        del self._sizes[partition]
        self._write(partition, pa.concat_tables(self._rows.pop(partition)))


def folder_of(partition: Mapping[str, str | None]) -> str:
    """Return the folder of a partition's files, with a slash; "" for a whole table.

    Delta needs none, but some readers take the values from there.
    """
    parts = [f"{name}={value or NULL_FOLDER}/" for name, value in partition.items()]
    return "".join(parts)


def serialized(value: pa.Scalar) -> str | None:
    """Return a partition's value as Delta's log has it; None for NULL."""
    return None if not value.is_valid else str(value.cast(pa.string()).as_py())


def _values(rows: pa.Table, partition: LakePartition) -> pa.ChunkedArray:
    column = rows[partition.column]
    if partition.function == BUCKET:
        return _bucket(column, partition.count)
    if partition.function == PART:
        return _by_distinct(column, _part, pa.string())
    assert partition.function in TIMES
    return truncated(column, partition.function)


def truncated(
    column: pa.Array | pa.ChunkedArray, unit: str
) -> pa.Array | pa.ChunkedArray:
    """Return the first day of the year, month or day of each value, in UTC."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz:
        column = column.cast(pa.timestamp("us"))
    return pc.floor_temporal(column.cast(pa.date32(), safe=False), unit=unit).cast(
        pa.date32()
    )


def _bucket(column: pa.ChunkedArray, count: int) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_integer(kind):
        values = column.cast(pa.int64())
        rest = pc.subtract(values, pc.multiply(pc.divide(values, count), count))
        rest = pc.if_else(pc.less(rest, 0), pc.add(rest, count), rest)
        return rest.cast(pa.int32())
    if pa.types.is_decimal(kind):
        return _by_distinct(column, lambda value: int(value) % count, pa.int32())
    return _by_distinct(
        column, lambda value: zlib.crc32(value.encode()) % count, pa.int32()
    )


def _part(value: str) -> str | None:
    """Return a text of ASCII that stands for a value in the path of a file.

    delta-rs does not find the change feed of a folder with other characters. An empty
    text counts as NULL there.
    """
    text = quote(value, safe="").replace("~", "~7E").replace("%", "~")
    if len(text) > PART_MAX:
        digest = hashlib.sha256(value.encode()).hexdigest()[:_HASH_DIGITS]
        text = f"{text[: PART_MAX - _HASH_DIGITS]}~~{digest}"
    return text or None


def _by_distinct(
    column: pa.ChunkedArray, function: Callable[[Any], Any], kind: pa.DataType
) -> pa.ChunkedArray:
    """Apply a function once to each distinct value; NULL stays."""
    distinct = pc.unique(column)
    values = [None if v is None else function(v) for v in distinct.to_pylist()]
    found = pa.array(values, kind).take(pc.index_in(column, distinct))
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


_TYPES: Final = {
    BUCKET: pa.int32(),
    PART: pa.string(),
    **dict.fromkeys(TIMES, pa.date32()),
}
