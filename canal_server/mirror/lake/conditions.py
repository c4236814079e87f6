"""Conditions on rows of the lake, for either format.

Leaves out how a format excludes files by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.mirror.lake.file_bounds import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

DELETED_NAME: Final = "_deleted"  # the column that marks deleted rows


class Within(NamedTuple):
    """A column has a value from `least` to `greatest`, in the form of Arrow."""

    column: str
    least: Any
    greatest: Any


class Interval(NamedTuple):
    """Values from `least` to `end`; None: no limit. `is_closed`: `end` is in it."""

    least: Any
    end: Any
    is_closed: bool = False

    def holds_any(self, least: Any, greatest: Any) -> bool:
        """Check whether it overlaps with the values between two others."""
        if self.least is not None and greatest < self.least:
            return False
        if self.end is None:
            return True
        return bool(least <= self.end if self.is_closed else least < self.end)


@dataclass(frozen=True, slots=True)
class Among:
    """The rows whose value of a column is in one of some intervals.

    Values have the form of Arrow. `has_null`: rows with NULL belong to them.
    """

    column: str
    kind: pa.DataType
    intervals: tuple[Interval, ...]
    has_null: bool = False

    @property
    def sql(self) -> str:
        """The condition in SQL."""
        name = quoted(self.column)
        parts = []
        for least, end, is_closed in self.intervals:
            sides = []
            if least is not None:
                sides.append(f"{name} >= {literal(least, self.kind)}")
            if end is not None:
                sign = "<=" if is_closed else "<"
                sides.append(f"{name} {sign} {literal(end, self.kind)}")
            parts.append(f"({' AND '.join(sides) or 'true'})")
        if self.has_null:
            parts.append(f"{name} IS NULL")
        return f"({' OR '.join(parts)})"

    def chosen(self, values: pa.Array) -> pa.BooleanArray:
        """Return for each value of the column whether its row is one of them."""
        # A limit may be greater than any value of the type.
        kind = pa.int64() if pa.types.is_integer(self.kind) else self.kind
        values = values.cast(kind)
        found = pa.repeat(pa.scalar(False), len(values))
        for least, end, is_closed in self.intervals:
            inside = pc.is_valid(values)
            if least is not None:
                after = pc.greater_equal(values, pa.scalar(least, kind))
                inside = pc.and_(inside, pc.fill_null(after, False))
            if end is not None:
                compare = pc.less_equal if is_closed else pc.less
                before = compare(values, pa.scalar(end, kind))
                inside = pc.and_(inside, pc.fill_null(before, False))
            found = pc.or_(found, inside)
        return pc.or_(found, pc.is_null(values)) if self.has_null else found

    def may_be_in(self, least: Any, greatest: Any, *, nulls: bool) -> bool:
        """Check whether a file with these bounds may have one of the rows.

        None: the bound is unknown. `nulls`: it may have rows with NULL.
        """
        if least is None or greatest is None or (self.has_null and nulls):
            return True
        return any(each.holds_any(least, greatest) for each in self.intervals)


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


def ranges_of(values: pa.Table) -> Iterator[Within]:
    """Yield the ranges of columns with numbers, which exclude files.

    Each value is in the range of its column.
    """
    for name in values.column_names:
        kind = values.schema.field(name).type
        if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            ends = pc.min_max(values[name]).as_py()
            yield Within(name, ends["min"], ends["max"])
