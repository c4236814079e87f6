"""A range cut into parts of about as many rows each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.model.ranges import EpochPosition, RangePart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.ranges.selection import Cut


def parts_of(
    start: EpochPosition,
    end: EpochPosition,
    totals: tuple[int, int],
    cuts: Sequence[Cut],
    parts: int,
) -> list[RangePart]:
    """Split a range into at most that many parts, fewer where there are too few cuts.

    `totals` are its rows and bytes.
    """
    chosen = _chosen(cuts, totals[0], parts)
    found = []
    before, rows_before, bytes_before = start, 0, 0
    for file, offset, begin, rows, size, commit, time_s in chosen:
        position = EpochPosition(start.epoch, file, offset, begin)
        found.append(
            RangePart(
                before,
                position,
                rows - rows_before,
                size - bytes_before,
                EpochPosition(start.epoch, file, commit) if begin else None,
                time_s * 1000 if begin else 0,
            )
        )
        before, rows_before, bytes_before = position, rows, size
    rows, size = totals
    found.append(RangePart(before, end, rows - rows_before, size - bytes_before))
    return found


def _chosen(cuts: Sequence[Cut], rows: int, parts: int) -> list[Cut]:
    """Return the first cut after each equal share of the rows."""
    found: list[Cut] = []
    share = 1
    for cut in cuts:
        if share < parts and cut[3] * parts >= rows * share:
            found.append(cut)
            while share < parts and cut[3] * parts >= rows * share:
                share += 1
    return found
