"""A table's columns at one position in the binlog."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ColumnMeta:
    """One column, in the order of the table.

    `mysql_type` is the server's COLUMN_TYPE (`bigint unsigned`, `enum('a','b')`).
    `charset` is MySQL's name of the character set, None for types without one.
    """

    name: str
    mysql_type: str
    charset: str | None = None
    is_key: bool = False  # part of the primary key
    nullable: bool = True
    # Computed from other columns, as far as this is known.
    generated: bool = field(default=False, compare=False)

    @property
    def unsigned(self) -> bool:
        """Whether a numeric column is unsigned."""
        head = self.mysql_type.partition("(")[0].lower()
        if head in ("enum", "set"):
            return False
        words = self.mysql_type.lower().replace(")", ") ").split()
        return "unsigned" in words or "zerofill" in words or head == "serial"


@dataclass(frozen=True, slots=True)
class TableMeta:
    """A table's columns as of one position in the binlog."""

    schema: str
    table: str
    columns: tuple[ColumnMeta, ...]

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"
