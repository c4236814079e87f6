"""What comes of a comparison, as values, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

EQUAL: Final = "equal"
DIFFERENT: Final = "different"
FAILED: Final = "not compared"
LOG: Final = "a log"  # of changes, which is no copy
GONE: Final = "gone"  # from the source; what is in the lake stays


@dataclass(frozen=True, slots=True)
class Side:
    """Rows of a table on one side, and the sum of their hashes in hex."""

    rows: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A column whose values are not the same; None: there is no such row."""

    column: str
    source: str | None
    copy: str | None


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that is not the same on both sides, or is on one of them only."""

    key: str
    what: str
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """What came of one table.

    `left_out` counts keys that changed behind the copy's place while it was read.
    `differing` counts rows; `is_all`: there are not more.
    """

    table: str
    target: str
    outcome: str
    place: str = ""  # at which both sides were compared
    source: Side | None = None
    copy: Side | None = None
    left_out: int = 0
    differing: int = 0
    is_all: bool = True
    first: tuple[RowDifference, ...] = ()
    problem: str = ""  # why it was not compared
    warnings: tuple[str, ...] = ()  # of what may make them differ
    seconds: float = 0.0


def exit_status(reports: Sequence[TableReport]) -> int:
    """Return 0 when all tables that the source has were compared and are equal.

    A log of changes is no copy, and one of a table that was dropped has nothing that it
    could differ from.
    """
    return int(any(report.outcome not in (EQUAL, LOG, GONE) for report in reports))


def as_json(reports: Sequence[TableReport]) -> str:
    """Return all of it."""
    tables = [asdict(report) for report in reports]
    told = {"equal": not exit_status(reports), "tables": tables}
    return json.dumps(told, indent=2, ensure_ascii=False)


def as_text(reports: Sequence[TableReport]) -> str:
    """Return a table with a line for each, and below it what differs."""
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
    """Return lines whose columns are as wide as what stands in them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rights = {2, 3, 6}  # numbers
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
            f"{report.table}: {_many(report.left_out, 'key')} left out, which changed "
            f"behind {report.place}, the place of the copy"
        )
    if not report.differing:
        return lines
    least = "" if report.is_all else "at least "
    lines.append(
        f"{report.table}: {least}{_many(report.differing, 'row')} not the same"
    )
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


def side_of(sums: Any) -> Side:
    """Return sums as they are told."""
    return Side(sums.rows, f"{sums.checksum:016x}")
