"""Conditions on rows of the lake, for either format.

Leaves out how a format excludes files by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.mirror.lake.file_bounds import literal, quoted

DELETED_NAME: Final = "_deleted"  # the column that marks deleted rows


class Within(NamedTuple):
    """A column has a value from `least` to `greatest`, in the form of Arrow."""

    column: str
    least: Any
    greatest: Any


@dataclass(frozen=True, slots=True)
class Where:
    """What holds for rows: all of these ranges; `live`: not marked as deleted."""

    ranges: tuple[Within, ...] = ()
    live: bool = False

    def sql(self, schema: pa.Schema) -> str | None:
        """Return it in SQL; None if it holds for all rows."""
        parts = []
        for each in self.ranges:
            name, kind = quoted(each.column), schema.field(each.column).type
            least, greatest = literal(each.least, kind), literal(each.greatest, kind)
            parts.append(f"{name} >= {least} AND {name} <= {greatest}")
        if self.live:
            parts.append(f"NOT {quoted(DELETED_NAME)}")
        return " AND ".join(parts) or None

    @property
    def columns(self) -> list[str]:
        """The columns on which it depends."""
        found = [each.column for each in self.ranges]
        return [*found, DELETED_NAME] if self.live else found

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which it holds."""
        for each in self.ranges:
            kind = batch.schema.field(each.column).type
            at_least = pc.greater_equal(
                batch.column(each.column), pa.scalar(each.least, kind)
            )
            batch = batch.filter(at_least)
            at_most = pc.less_equal(
                batch.column(each.column), pa.scalar(each.greatest, kind)
            )
            batch = batch.filter(at_most)
        if self.live:
            batch = batch.filter(pc.invert(batch.column(DELETED_NAME)))
        return batch
