"""What the parts of the mirror tell each other about a table; all of it travels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from canal_server.model.columns_known import ColumnMeta
from canal_server.spark.columns.spark_columns import wanted_column
from canal_server.spark.options.source_options import TableName

if TYPE_CHECKING:
    from canal_server.spark.columns.spark_columns import WantedColumn

__all__ = [
    "CopiedFile",
    "Mask",
    "MirrorColumn",
    "MirrorTable",
    "TableName",
]


@dataclass(frozen=True, slots=True)
class Mask:
    """What a column's values become: `kind` is hash, truncate or null."""

    kind: str
    length: int = 0  # of what truncate leaves, in characters or bytes
    salt: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class MirrorColumn:
    """A column of a table, and its name in the lake."""

    name: str
    mysql_type: str
    charset: str
    is_key: bool
    target: str
    mask: Mask | None = None

    @property
    def wanted(self) -> WantedColumn:
        """Return how the source of Spark delivers it.

        Raises DecodeError for a type that is not known.
        """
        return wanted_column(
            ColumnMeta(self.name, self.mysql_type, self.charset or None)
        )


@dataclass(frozen=True, slots=True)
class MirrorTable:
    """A table that is mirrored. Columns that are left out are not in it."""

    source: TableName
    target: str  # the folder below the lake's root
    columns: tuple[MirrorColumn, ...]
    key: tuple[str, ...] = ()  # names in the source of the primary key's columns
    deletes: str = "hard"  # or soft
    form: str = "delta"  # or parquet, json: logs of changes

    @property
    def is_keyless(self) -> bool:
        """Whether rows can only be told apart by all of their values."""
        return not self.key


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of a copy: path below the table's folder, what is in it, for Delta."""

    path: str
    size: int  # bytes
    rows: int
    stats: str  # JSON of Delta: numRecords, minValues, maxValues, nullCount
