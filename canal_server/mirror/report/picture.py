"""Plots of figures over time, as an SVG picture (by matplotlib) and as text.

A picture has panels one above the other with a common time axis. Leaves out where the
figures come from.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    Point = tuple[float, float]

WIDTH_INCHES: Final = 9.0
HEIGHT_INCHES: Final = 2.6  # per panel
_UNITS: Final = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))
BAR: Final = 40  # characters of the longest bar in a text


@dataclass(frozen=True, slots=True)
class Series:
    """Points (seconds, value) with a name and a colour; bars have a width in s."""

    name: str
    colour: str
    points: Sequence[Point]
    bar_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Panel:
    """One frame of a picture; `unit` follows each number of its value axis."""

    title: str
    unit: str
    series: Sequence[Series]


def unit_of(seconds: float) -> tuple[float, str]:
    """Return the unit for a duration: its seconds, and its name."""
    return next((each for each in _UNITS if seconds >= 2 * each[0]), (1.0, "s"))


def picture(panels: Sequence[Panel], end_s: float) -> str:
    """Return an SVG of panels from second 0 to the end."""
    text = io.StringIO()
    # Keeps texts as texts, and makes equal figures give equal bytes.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "canal-server"}):
        size = WIDTH_INCHES, HEIGHT_INCHES * len(panels)
        figure = Figure(figsize=size, layout="constrained")
        frames = figure.subplots(len(panels), squeeze=False)[:, 0]
        for axes, panel in zip(frames, panels, strict=True):
            _draw(axes, panel, end_s)
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _draw(axes: Axes, panel: Panel, end_s: float) -> None:
    unit_s, unit = unit_of(end_s)
    for each in panel.series:
        seconds = [second / unit_s for second, _ in each.points]
        values = [value for _, value in each.points]
        colour, label = each.colour, each.name
        if each.bar_s:
            width = each.bar_s / unit_s
            axes.bar(
                seconds,
                values,
                width,
                align="edge",
                color=colour,
                alpha=0.6,
                label=label,
            )
        else:
            axes.plot(seconds, values, ".", markersize=4, color=colour, label=label)
    axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    axes.set_xlim(0, end_s / unit_s)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.3g} {unit}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}{panel.unit}")
    axes.grid(axis="y", color="#ddd")
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, loc="upper right")


def text_plot(rows: Sequence[tuple[float, float, str]], unit: str) -> str:
    """Return a line with a bar for each (second, value, remark)."""
    highest = max((value for _, value, _ in rows), default=0.0) or 1.0
    each_s, name = unit_of(max((second for second, _, _ in rows), default=0.0))
    digits = 0 if each_s == 1 else 1
    return "\n".join(
        f"{second / each_s:5.{digits}f} {name} {value:9,.0f} {unit} "
        f"{'█' * round(BAR * value / highest):{BAR}} {more}".rstrip()
        for second, value, more in rows
    )
