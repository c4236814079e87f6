"""Partitions of an Iceberg table: its spec, and the values of rows in it.

They are hidden: files have all columns, and readers derive the values from conditions.
The values are in the form of manifests: numbers of days, months and years since 1970,
and buckets by Iceberg's hash (32-bit Murmur3). Leaves out which files have which rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import (
    PARTITION_FIELD_ID_START,
    PartitionField,
    PartitionSpec,
)
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, LongType, StringType

from canal_server.mirror.lake.keyless import as_array
from canal_server.mirror.lake.partition_values import grouped, truncated
from canal_server.mirror.settings.lake_partitions import BUCKET, DAY, MONTH, YEAR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import IcebergType

    from canal_server.mirror.lake.iceberg.iceberg_columns import Column
    from canal_server.mirror.settings.table_values import LakePartition

_FIRST_YEAR: Final = 1970
_TRANSFORMS: Final[dict[str, Transform[Any, Any]]] = {
    DAY: DayTransform(),
    MONTH: MonthTransform(),
    YEAR: YearTransform(),
}


@dataclass(frozen=True)
class Partitioning:
    """By what a table is partitioned; `spec_id` of its files."""

    partitions: tuple[LakePartition, ...] = ()
    spec_id: int = 0

    @property
    def sources(self) -> list[str]:
        """The columns from which values are derived."""
        return [each.column for each in self.partitions]

    def spec(
        self, columns: Sequence[Column], last_id: int = PARTITION_FIELD_ID_START - 1
    ) -> PartitionSpec:
        """Return it as metadata has it; `last_id` is the last id of a field."""
        ids = {each.name: each.id for each in columns}
        fields = [
            PartitionField(
                ids[each.column], last_id + number, _transform(each), each.name
            )
            for number, each in enumerate(self.partitions, 1)
        ]
        return PartitionSpec(*fields, spec_id=self.spec_id)

    def new_spec(
        self, metadata: TableMetadata, columns: Sequence[Column]
    ) -> PartitionSpec:
        """Return it as another spec of a table: one that it had, or a new one."""
        for each in metadata.partition_specs:
            if self.is_that_of(each, columns):
                return each
        number = 1 + max(each.spec_id for each in metadata.partition_specs)
        last = metadata.last_partition_id or PARTITION_FIELD_ID_START - 1
        return Partitioning(self.partitions, number).spec(columns, last)

    def is_that_of(self, spec: PartitionSpec, columns: Sequence[Column]) -> bool:
        """Check whether a table has this one."""
        ours = self.spec(columns)
        return [_of(each) for each in ours.fields] == [
            _of(each) for each in spec.fields
        ]

    def parted(self, rows: pa.Table) -> Iterator[tuple[Record, pa.Table]]:
        """Yield the rows of each partition, in their order."""
        if not self.partitions:
            yield Record(), rows
            return
        for values, part in grouped(rows, self.values(rows)):
            yield Record(*(each.as_py() for each in values)), part

    def values(self, rows: pa.Table) -> list[pa.Array]:
        """Return the value of each row in each field."""
        return [_values(as_array(rows[p.column]), p) for p in self.partitions]

    def elsewhere(self, rows: pa.Table, partition: Record) -> pa.BooleanArray:
        """Return which rows are not in a partition."""
        found = pa.repeat(pa.scalar(False), len(rows))
        for number, column in enumerate(self.values(rows)):
            value = pa.scalar(partition[number], column.type)
            if value.is_valid:
                differs = pc.fill_null(pc.not_equal(column, value), True)
            else:
                differs = column.is_valid()
            found = pc.or_(found, differs)
        return found


def _of(field: PartitionField) -> tuple[int, str, str]:
    return field.source_id, str(field.transform), field.name


def _transform(partition: LakePartition) -> Transform[Any, Any]:
    if partition.function == BUCKET:
        return BucketTransform(partition.count)
    return _TRANSFORMS.get(partition.function, IdentityTransform())


def _values(column: pa.Array, partition: LakePartition) -> pa.Array:
    if partition.function == BUCKET:
        return _buckets(column, partition.count)
    if partition.function in _TRANSFORMS:
        days = truncated(column, partition.function)
        if partition.function == DAY:
            return days.cast(pa.int32())
        years = pc.subtract(pc.year(days), _FIRST_YEAR)
        if partition.function == MONTH:
            months = pc.add(pc.multiply(years, 12), pc.subtract(pc.month(days), 1))
            return months.cast(pa.int32())
        return years.cast(pa.int32())
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    return column


def _buckets(column: pa.Array, count: int) -> pa.Array:
    distinct = pc.unique(column)
    bucket = BucketTransform(count).transform(_type_of(column.type))
    found = [bucket(value) for value in distinct.to_pylist()]
    return pa.array(found, pa.int32()).take(pc.index_in(column, distinct))


def _type_of(kind: pa.DataType) -> IcebergType:
    """Return the type by which values are hashed: integers of all widths alike."""
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    return LongType() if pa.types.is_integer(kind) else StringType()
