"""Values that describe a table to mirror; all of them can be pickled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from canal_server.arrow.arrow_columns import requested_column
from canal_server.model.columns_known import ColumnMeta
from canal_server.spark.options.source_options import TableName

if TYPE_CHECKING:
    from canal_server.arrow.arrow_columns import RequestedColumn

LOGS = ("parquet", "json")  # formats of logs of changes
# The name that readers of Iceberg tables have for the column `_deleted`: Iceberg
# reserves that one, and its connector for Spark refuses tables that have it.
ICEBERG_DELETED: Final = "_is_deleted"

__all__ = [
    "ARRAY",
    "ICEBERG_DELETED",
    "LOGS",
    "TEXT_TYPES",
    "UNSIGNED",
    "WKB",
    "CopiedFile",
    "LakePartition",
    "Mask",
    "MirrorColumn",
    "MirrorTable",
    "TableName",
]


# Forms of values in the lake that differ from those in the stream.
WKB: Final = "wkb"  # of a geometry, with its SRID in a column beside it
ARRAY: Final = "array"  # of the FLOATs of a vector
UNSIGNED: Final = "unsigned"  # of BIT(64)
_SRID: Final = "_srid"  # ends the name of the column beside a geometry

# Of characters with a length; ENUM and SET have labels.
TEXT_TYPES: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")


@dataclass(frozen=True, slots=True)
class Mask:
    """What a column's values are replaced by: `kind` is hash, truncate or null."""

    kind: str
    length: int = 0  # kept by truncate, in characters or bytes
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
    form: str = ""  # of its values in the lake; empty: that of the stream

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of its columns in the lake, of which `target` is the first."""
        if self.form == WKB:
            return self.target, f"{self.target}{_SRID}"
        return (self.target,)

    @property
    def requested(self) -> RequestedColumn:
        """Return how Spark's source delivers the column.

        Raises DecodeError for an unknown type.
        """
        return requested_column(
            ColumnMeta(self.name, self.mysql_type, self.charset or None)
        )


@dataclass(frozen=True, slots=True)
class LakePartition:
    """By what a table of the lake is partitioned; `column` is one of the lake."""

    function: str
    column: str
    count: int = 0

    @property
    def name(self) -> str:
        """The name of the partition column, or of the field in Iceberg."""
        return f"{self.column}_{self.function}" if self.function else self.column

    @property
    def is_derived(self) -> bool:
        """Whether the values of `column` and of the partition column differ."""
        return bool(self.function)


@dataclass(frozen=True, slots=True)
class MirrorTable:
    """A table to mirror, without the columns that are left out."""

    source: TableName
    target: str  # the folder below the lake's root
    columns: tuple[MirrorColumn, ...]
    key: tuple[str, ...] = ()  # source names of the primary key's columns
    deletes: str = "hard"  # or soft
    form: str = "delta"  # or iceberg; or parquet, json: logs of changes
    partitions: tuple[LakePartition, ...] = ()  # of a Delta or Iceberg table

    @property
    def is_log(self) -> bool:
        """Whether the lake has all changes of the table, instead of its rows."""
        return self.form in LOGS

    @property
    def key_targets(self) -> list[str]:
        """The names of the primary key's columns in the lake."""
        targets = {column.name: column.target for column in self.columns}
        return [targets[name] for name in self.key]

    @property
    def is_keyless(self) -> bool:
        """Whether rows are identified only by all of their values."""
        return not self.key


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of a copy: its path below the table's folder, and what formats need."""

    path: str
    size: int  # bytes
    rows: int
    stats: str  # JSON of Delta: numRecords, minValues, maxValues, nullCount
    # The partition: by column of a Delta table, its value as Delta's log has it.
    partition: dict[str, str | None] = field(default_factory=dict, hash=False)
    # Of a file of another Iceberg table: the ids there of the lake's columns. Names in
    # the file may be older. Empty: the file has the lake's names.
    ids: dict[str, int] = field(default_factory=dict, hash=False)
