"""SQL conditions that exclude files of a Delta table which have none of some keys.

A merge reads the files that its condition does not exclude by their least and greatest
values. The condition holds for every given key. Leaves out the merge.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

RANGES_MAX: Final = 32  # of keys per condition

# Statistics in the Delta log are inexact: times are cut to milliseconds; decimals are
# converted to a double or, without a fraction, capped at the greatest 64-bit number.
_TIME_CUT: Final = timedelta(milliseconds=1)
_DOUBLE_DIGITS: Final = 15
_STATISTICS_MAX: Final = Decimal(2**63 - 1)
_DOWN: Final = Context(prec=_DOUBLE_DIGITS, rounding=ROUND_FLOOR)
_UP: Final = Context(prec=_DOUBLE_DIGITS, rounding=ROUND_CEILING)


class FileRange(NamedTuple):
    """The least and the greatest value of a column in a file, and the file's rows."""

    least: Any
    greatest: Any
    rows: int


class Bounds(NamedTuple):
    """A condition on a column's values."""

    condition: str  # empty: no condition
    rows: int  # in the remaining files


def quoted(name: str) -> str:
    """Return a column's quoted name for SQL."""
    return "`" + name.replace("`", "``") + "`"


def bounds(column: pa.ChunkedArray, target: str, files: pa.Table) -> Bounds:
    """Return the condition for the values of a column; `target` is the column in SQL.

    `files` has columns least, greatest and rows, with one row per file.
    """
    kind = column.type
    if len(column) == 0 or not _has_order(kind):
        return Bounds("", pc.sum(files["rows"]).as_py() or 0)
    values = _Sorted(column)
    columns = (files[name].to_pylist() for name in FileRange._fields)
    known = [_as_far_as_true(*row) for row in zip(*columns, strict=True)]
    ends, rows = _separated(values, known)
    ranges = [
        _range(values[first], values[end - 1], kind, target)
        for first, end in zip([0, *ends], [*ends, len(values)], strict=True)
    ]
    return Bounds(f"({' OR '.join(ranges)})", rows)


def literal(value: Any, kind: pa.DataType) -> str:
    """Return a SQL literal of exactly that type."""
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, Decimal):
        # A plain number would be a double.
        return f"CAST('{value:f}' AS DECIMAL({kind.precision},{kind.scale}))"
    if isinstance(value, datetime):
        zone = f'Some("{kind.tz}")' if kind.tz else "None"
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        text += "Z" if kind.tz else ""
        return f"arrow_cast('{text}', 'Timestamp(Microsecond, {zone})')"
    if isinstance(value, date):
        return f"CAST('{value.isoformat()}' AS DATE)"
    return repr(value)


class _Sorted:
    """The sorted values of a column, converted to Python values on access."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._values = pc.unique(column).take(pc.sort_indices(pc.unique(column)))

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> Any:
        return self._values[index].as_py()


def _has_order(kind: pa.DataType) -> bool:
    """Check whether a type has file statistics, and the same order in SQL."""
    return not pa.types.is_binary(kind) and not pa.types.is_floating(kind)


def _range(least: Any, greatest: Any, kind: pa.DataType, target: str) -> str:
    """Return the condition for values between two bounds, if statistics allow it."""
    if isinstance(least, datetime):
        least = _earlier(least)
    sides = [">=", "<="]
    if isinstance(least, Decimal):
        least = min(_rounded(least, _DOWN), _STATISTICS_MAX)
        greatest = max(_rounded(greatest, _UP), -_STATISTICS_MAX)
        limit = Decimal(10) ** (kind.precision - kind.scale)
        sides = [">=" if least > -limit else "", "<=" if greatest < limit else ""]
    conditions = [
        f"{target} {side} {literal(value, kind)}"
        for side, value in zip(sides, (least, greatest), strict=True)
        if side
    ]
    return f"({' AND '.join(conditions) or 'true'})"


def _as_far_as_true(least: Any, greatest: Any, rows: int) -> FileRange:
    """Return a file's range, widened by the inexactness of the Delta log."""
    if least is None or greatest is None:
        return FileRange(None, None, rows)
    if isinstance(greatest, datetime):
        return FileRange(least, _later(greatest), rows)
    if isinstance(least, Decimal):
        if least <= -_STATISTICS_MAX or greatest >= _STATISTICS_MAX:
            return FileRange(None, None, rows)
        return FileRange(_rounded(least, _DOWN), _rounded(greatest, _UP), rows)
    return FileRange(least, greatest, rows)


def _separated(values: _Sorted, files: Sequence[FileRange]) -> tuple[list[int], int]:
    """Return where to split the values, and the rows of the files that remain.

    A file without any value between its bounds lies between two neighbouring values;
    the splits are between the neighbours that exclude the most rows.
    """
    rows = 0
    between: dict[int, int] = {}
    for file in files:
        if file.least is None or file.greatest is None:
            rows += file.rows  # its bounds are unknown
            continue
        index = bisect_left(values, file.least)
        if bisect_right(values, file.greatest) > index:
            rows += file.rows
        else:
            between[index] = between.get(index, 0) + file.rows
    inner = [index for index in between if 0 < index < len(values)]
    inner.sort(key=lambda index: -between[index])
    rows += sum(between[index] for index in inner[RANGES_MAX - 1 :])
    return sorted(inner[: RANGES_MAX - 1]), rows


def _rounded(value: Decimal, how: Context) -> Decimal:
    """Return a decimal that a double can hold, not above or not below the value."""
    return how.plus(value)


def _earlier(time: datetime) -> datetime:
    least = datetime.min.replace(tzinfo=time.tzinfo)
    return time - _TIME_CUT if time - least >= _TIME_CUT else least


def _later(time: datetime) -> datetime:
    greatest = datetime.max.replace(tzinfo=time.tzinfo)
    return time + _TIME_CUT if greatest - time >= _TIME_CUT else greatest
