"""Plots of figures over time, as an SVG picture and as text; no library is needed.

A picture has panels one above the other with one time axis. Leaves out where the
figures come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Point = tuple[float, float]

WIDTH: Final = 900
HEIGHT: Final = 260  # of a panel
LEFT: Final = 80
RIGHT: Final = 20
TOP: Final = 40
BOTTOM: Final = 40
TICKS: Final = 5  # about so many on an axis
_UNITS: Final = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))
BAR: Final = 40  # characters of the longest bar of a text


@dataclass(frozen=True, slots=True)
class Series:
    """Points (seconds, value) with a name and a colour; bars have a width in s."""

    name: str
    colour: str
    points: Sequence[Point]
    bar_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Panel:
    """What is drawn in one frame; `unit` is said at its value axis."""

    title: str
    unit: str
    series: Sequence[Series]

    def highest(self) -> float:
        """Return the end of the value axis."""
        values = [value for each in self.series for _, value in each.points]
        step = step_of(max(values, default=1.0) or 1.0)
        return math.ceil(max(values, default=1.0) / step) * step or step


def step_of(highest: float) -> float:
    """Return a round distance between the ticks of an axis."""
    rough = highest / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= rough)


def unit_of(seconds: float) -> tuple[float, str]:
    """Return the unit in which so long a time is told: its seconds, and its name."""
    return next((each for each in _UNITS if seconds >= 2 * each[0]), (1.0, "s"))


def picture(panels: Sequence[Panel], end_s: float) -> str:
    """Return an SVG of panels from second 0 to the end."""
    height = HEIGHT * len(panels)
    box = f'viewBox="0 0 {WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif">',
        "<style>text { font-size: 13px }</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate(0 {number * HEIGHT})">')
        parts += _frame(panel, end_s)
        for each in panel.series:
            parts += _marks(each, panel.highest(), end_s)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>\n"])


def _x(second: float, end_s: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * second / end_s


def _y(value: float, highest: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / highest


def _frame(panel: Panel, end_s: float) -> Iterator[str]:
    """Yield titles, axes and what the colours mean."""
    highest, left = panel.highest(), LEFT
    yield f'<text x="{LEFT}" y="18" font-weight="bold">{panel.title}</text>'
    for each in panel.series:
        yield f'<text x="{left}" y="34" fill="{each.colour}">{each.name}</text>'
        left += 8 * len(each.name) + 20
    for value in _ticks(highest):
        y = _y(value, highest)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        text = f"{value:,.0f}{panel.unit}"
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    unit_s, unit = unit_of(end_s)
    for number in _ticks(end_s / unit_s):
        x, y = _x(number * unit_s, end_s), HEIGHT - BOTTOM + 18
        text = f"{number:,.3g} {unit}"
        yield f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{text}</text>'


def _ticks(highest: float) -> list[float]:
    step = step_of(highest)
    return [n * step for n in range(int(highest / step + 1e-9) + 1)]


def _marks(series: Series, highest: float, end_s: float) -> Iterator[str]:
    """Yield a bar for each point, or a dot."""
    floor = _y(0, highest)
    for second, value in series.points:
        x, y = _x(second, end_s), _y(value, highest)
        if series.bar_s:
            width = max(1.0, _x(series.bar_s, end_s) - LEFT)
            yield (
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{floor - y:.1f}" fill="{series.colour}" opacity="0.6"/>'
            )
        else:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{series.colour}"/>'


def text_plot(rows: Sequence[tuple[float, float, str]], unit: str) -> str:
    """Return a line with a bar for each (second, value, what else is told)."""
    highest = max((value for _, value, _ in rows), default=0.0) or 1.0
    each_s, name = unit_of(max((second for second, _, _ in rows), default=0.0))
    digits = 0 if each_s == 1 else 1
    return "\n".join(
        f"{second / each_s:5.{digits}f} {name} {value:9,.0f} {unit} "
        f"{'█' * round(BAR * value / highest):{BAR}} {more}".rstrip()
        for second, value, more in rows
    )
