"""Cutting long lists of spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.ports import Span


def count_of(spans: Sequence[Span]) -> int:
    """Return how many entries the spans have."""
    count = 0
    for _, first, stop in spans:  # asked for with each chunk: no generator
        count += stop - first
    return count


def parts_of(spans: Sequence[Span], count_max: int) -> Iterator[list[Span]]:
    """Cut spans into parts of `count_max` entries; the last one may be smaller."""
    part: list[Span] = []
    room = count_max
    for block, begin, stop in spans:
        first = begin
        while first < stop:
            cut = min(stop, first + room)
            part.append((block, first, cut))
            room -= cut - first
            first = cut
            if room == 0:
                yield part
                part, room = [], count_max
    if part:
        yield part
