"""What a DDL means for the table in the lake: the steps that make it follow.

Names are those of the lake. Leaves out how steps are found and how they are done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.model.columns_known import ColumnMeta
from canal_server.spark.columns.spark_columns import wanted_column

if TYPE_CHECKING:
    from canal_server.spark.columns.spark_columns import WantedColumn


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A column that no row has yet; all that are there get `fill`."""

    name: str
    mysql_type: str
    charset: str
    fill: str | None = None  # as entries carry values: binary as ISO-8859-1

    @property
    def wanted(self) -> WantedColumn:
        """Return how the source delivers it. Raises DecodeError for unknown types."""
        return _wanted(self.name, self.mysql_type, self.charset)


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column that goes, and its values."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """A column that keeps its values under another name."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """A column of a type that holds all of its values, and more."""

    name: str
    mysql_type: str
    charset: str

    @property
    def wanted(self) -> WantedColumn:
        """Return how the source delivers it. Raises DecodeError for unknown types."""
        return _wanted(self.name, self.mysql_type, self.charset)


Step = AddColumn | DropColumn | RenameColumn | WidenColumn


def _wanted(name: str, mysql_type: str, charset: str) -> WantedColumn:
    return wanted_column(ColumnMeta(name, mysql_type, charset or None))
