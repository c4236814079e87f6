"""The picture of a run: what its parts held over time, how late changes were, faults.

`python -m soak.drawing samples.csv out.svg` draws it again.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.mirror.report.picture import Panel, Series, picture
from soak.sampler import read_samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from soak.sampler import Sample

COLOURS = ("#c30", "#36a", "#383", "#a5a", "#c90", "#399", "#666", "#930")
FAULT = "#bbb"
OF = " of "  # in a name: who reads, and which source
BARS = 900  # so thin is one that marks a fault
POINTS_MAX = 600  # of a series: the highest of each stretch


def drawn(samples: Sequence[Sample], faults: Iterable[tuple[float, str]]) -> str:
    """Return the picture as SVG; faults are seconds with names."""
    end = max((each.second for each in samples), default=0.0) or 1.0
    marks = [second for second, _ in faults]
    parts = [each for each in samples if each.memory_mib]
    lags: dict[str, list[Sample]] = {}
    for each in samples:
        if not each.memory_mib:
            name, _, of = each.part.rpartition(OF)
            lags.setdefault(of, []).append(replace(each, part=name))
    servers = [each for each in parts if each.part.startswith("server")]
    others = [each for each in parts if not each.part.startswith("server")]
    charts: list[tuple[str, str, str, Sequence[Sample]]] = [
        *((f"lag, {of}", " s", "lag_s", of_part) for of, of_part in lags.items()),
        ("memory of the servers", " MiB", "memory_mib", servers),
        ("memory of the rest", " MiB", "memory_mib", others),
        ("threads", "", "threads", parts),
        ("descriptors", "", "descriptors", parts),
    ]
    panels = []
    for title, unit, figure, of_part in charts:
        series = _series(of_part, figure, end)
        highest = max((v for each in series for _, v in each.points), default=1.0)
        bars = [(second, highest) for second in marks]
        fault = Series("fault", FAULT, bars, bar_s=end / BARS)
        panels.append(Panel(title, unit, [fault, *series]))
    return picture(panels, end)


def _series(samples: Sequence[Sample], figure: str, end: float) -> list[Series]:
    names = list(dict.fromkeys(each.part for each in samples))
    found = []
    for number, name in enumerate(names):
        points = [
            (each.second, float(getattr(each, figure)))
            for each in samples
            if each.part == name
        ]
        colour = COLOURS[number % len(COLOURS)]
        found.append(Series(name, colour, _thinned(points, end)))
    return found


def _thinned(
    points: list[tuple[float, float]], end: float
) -> list[tuple[float, float]]:
    """Return the highest point of each stretch of time."""
    found: dict[int, tuple[float, float]] = {}
    for second, value in points:
        segment = int(POINTS_MAX * second / (end or 1.0))
        if segment not in found or value > found[segment][1]:
            found[segment] = (second, value)
    return list(found.values())


def main(arguments: Sequence[str]) -> None:
    """Draw a file of samples."""
    source, target = map(Path, arguments)
    target.write_text(drawn(read_samples(source), []))


if __name__ == "__main__":
    main(sys.argv[1:])
