"""The result of a comparison, as values, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

EQUAL: Final = "equal"
DIFFERENT: Final = "different"
FAILED: Final = "not compared"
LOG: Final = "a log"  # of changes, not a copy
DROPPED: Final = "gone"  # dropped in the source; its data in the lake stays


@dataclass(frozen=True, slots=True)
class Totals:
    """The number of rows on one side, and the sum of their hashes in hex."""

    rows: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A column whose values differ; None for a side that has no such row."""

    column: str
    source: str | None
    copy: str | None


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that differs, or exists on one side only."""

    key: str
    what: str
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """The result for one table.

    `left_out` counts keys that changed after the copy's position during the read.
    `differing` counts rows, and is a lower bound unless `is_all`.
    """

    table: str
    target: str
    outcome: str
    position: str = ""  # position at which both sides were compared
    source: Totals | None = None
    copy: Totals | None = None
    left_out: int = 0
    differing: int = 0
    is_all: bool = True
    first: tuple[RowDifference, ...] = ()
    problem: str = ""  # why it was not compared
    warnings: tuple[str, ...] = ()  # about causes of differences
    seconds: float = 0.0


def exit_status(reports: Sequence[TableReport]) -> int:
    """Return 0 when all tables of the source were compared and are equal.

    A log of changes is not a copy, and a dropped table has no source to differ from:
    neither counts as a failure.
    """
    return int(any(report.outcome not in (EQUAL, LOG, DROPPED) for report in reports))


def as_json(reports: Sequence[TableReport]) -> str:
    """Return all reports as JSON."""
    tables = [asdict(report) for report in reports]
    found = {"equal": not exit_status(reports), "tables": tables}
    return json.dumps(found, indent=2, ensure_ascii=False)


def as_text(reports: Sequence[TableReport]) -> str:
    """Return one line per table, followed by the differences."""
    head = ["table", "outcome", "rows", "in the copy", "checksum", "of the copy", "s"]
    lines = _aligned([head, *(_line(report) for report in reports)])
    for report in reports:
        lines += _details(report)
    return "\n".join(lines)


def _line(report: TableReport) -> list[str]:
    sides = report.source, report.copy
    return [
        report.table,
        report.outcome,
        *(f"{side.rows:,}" if side else "-" for side in sides),
        *(side.checksum if side else "-" for side in sides),
        f"{report.seconds:.1f}",
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines whose columns are as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rights = {2, 3, 6}  # columns of numbers
    return [
        "  ".join(
            cell.rjust(width) if number in rights else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _details(report: TableReport) -> list[str]:
    lines = []
    if report.problem:
        lines.append(f"{report.table}: {report.problem}")
    lines += [f"warning: {each}" for each in report.warnings]
    if report.left_out:
        lines.append(
            f"{report.table}: {_many(report.left_out, 'key')} left out, changed after "
            f"{report.position} (the position of the copy)"
        )
    if not report.differing:
        return lines
    least = "" if report.is_all else "at least "
    lines.append(f"{report.table}: {least}{_many(report.differing, 'row')} different")
    for row in report.first:
        lines.append(f"  {row.key}: {row.what}")
        lines += [
            f"    {cell.column}: {_value(cell.source)} in the source, "
            f"{_value(cell.copy)} in the copy"
            for cell in row.cells
        ]
    if report.differing > len(report.first):
        lines.append(f"  … {report.differing - len(report.first):,} more")
    return lines


def _value(text: str | None) -> str:
    return "nothing" if text is None else text


def _many(count: int, what: str) -> str:
    if count == 1:
        return f"1 {what} is"
    return f"{count:,} {what}s are"


def totals_of(sums: Any) -> Totals:
    """Return sums in the form of a report."""
    return Totals(sums.rows, f"{sums.checksum:016x}")
