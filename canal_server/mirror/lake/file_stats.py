"""Statistics of a file for the Delta log: rows, NULLs, least and greatest values.

A reader skips a file whose statistics exclude its condition. So they may be too wide
but never too narrow, even if the reader converts a decimal to a double. They are
omitted only where necessary: some readers treat missing ones as NULL.
"""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

COLUMNS_MAX: Final = 32  # the first columns, as Delta's default
_CHARACTERS_MAX: Final = 32
_LAST_CHARACTER: Final = "\U0010ffff"
# Decimals of this many digits survive a conversion to a double.
_DOWN: Final = Context(prec=15, rounding=ROUND_FLOOR)
_UP: Final = Context(prec=15, rounding=ROUND_CEILING)
_INTEGER_MAX: Final = 2**63 - 1  # beyond this, readers differ


class FileStats:
    """Collects the statistics of one file, batch by batch."""

    def __init__(self, schema: pa.Schema, also: Collection[str] = ()) -> None:
        """Set the file's columns, and those that always have statistics."""
        self.rows = 0
        self._nulls: dict[str, int] = {}
        self._ends: dict[str, tuple[Any, Any]] = {}
        for number, column in enumerate(schema):
            few = number < COLUMNS_MAX or column.name in also
            if few and not pa.types.is_nested(column.type):  # as delta-rs
                self._nulls[column.name] = 0
        self._ordered = {
            name for name in self._nulls if _has_order(schema.field(name).type)
        }

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows that were written to the file."""
        self.rows += batch.num_rows
        for name in self._nulls:
            column = batch.column(name)
            self._nulls[name] += column.null_count
            if name in self._ordered and column.null_count < len(column):
                ends = pc.min_max(column)
                least, most = ends["min"].as_py(), ends["max"].as_py()
                if name in self._ends:
                    before = self._ends[name]
                    least, most = min(least, before[0]), max(most, before[1])
                self._ends[name] = least, most

    def to_json(self) -> str:
        """Return the statistics in the Delta log's form."""
        return stats_json(self.rows, self._ends, self._nulls)


def stats_json(
    rows: int, ends: Mapping[str, tuple[Any, Any]], nulls: Mapping[str, int]
) -> str:
    """Return statistics in the Delta log's form.

    `ends` are the least and the greatest value of columns that have one, or bounds of
    them; `nulls` are numbers of NULLs.
    """
    least, most = [], []
    for name, (low, high) in ends.items():
        if isinstance(low, Decimal) and not _is_plain(low, high):
            continue
        least.append(f"{json.dumps(name)}:{_as_json(low, upwards=False)}")
        most.append(f"{json.dumps(name)}:{_as_json(high, upwards=True)}")
    counts = json.dumps(nulls, separators=(",", ":"))
    return (
        f'{{"numRecords":{rows},"minValues":{{{",".join(least)}}},'
        f'"maxValues":{{{",".join(most)}}},"nullCount":{counts}}}'
    )


def _has_order(kind: pa.DataType) -> bool:
    return not pa.types.is_binary(kind)


def _is_plain(low: Decimal, high: Decimal) -> bool:
    return max(abs(low), abs(high)) < _INTEGER_MAX


def _as_json(value: Any, *, upwards: bool) -> str:
    """Return a value as JSON, rounded up or down if JSON cannot hold it."""
    if isinstance(value, str) and len(value) > _CHARACTERS_MAX:
        value = value[:_CHARACTERS_MAX] + (_LAST_CHARACTER if upwards else "")
    if isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        # Some readers order -0 before 0, for others they are equal.
        return repr(value or (0.0 if upwards else -0.0))
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f'"{text}{"Z" if value.tzinfo else ""}"'
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    if isinstance(value, Decimal):
        return f"{(_UP if upwards else _DOWN).plus(value):f}"
    return repr(value)
