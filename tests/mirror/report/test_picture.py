"""Pictures and texts of figures."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from canal_server.mirror.report.picture import (
    Panel,
    Series,
    picture,
    step_of,
    text_plot,
)

NAME = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("highest", "step"), [(1, 0.2), (7, 2), (30, 10), (46_321, 10_000), (100, 20)]
)
def test_ticks_are_round(highest: float, step: float) -> None:
    """They are 1, 2 or 5 of some power of ten apart, five or fewer of them."""
    assert step_of(highest) == pytest.approx(step)


def test_a_picture() -> None:
    """Is XML; each point is a mark within its panel, bars stand on the axis."""
    dots = Series("row", "#000", [(0.0, 0.0), (5.0, 90.0), (10.0, 100.0)])
    bars = Series("batch", "#f00", [(2.0, 50.0)], bar_s=1.0)
    panels = [Panel("delay", " ms", [dots]), Panel("rows", "", [bars])]
    root = ET.fromstring(picture(panels, 10.0))
    first, second = root.findall(f"{NAME}g")
    circles = [
        (float(c.get("cx", 0)), float(c.get("cy", 0)))
        for c in first.iter(f"{NAME}circle")
    ]
    assert [x for x, _ in circles] == sorted(x for x, _ in circles)
    assert [y for _, y in circles] == sorted((y for _, y in circles), reverse=True)
    (bar,) = second.iter(f"{NAME}rect")
    assert float(bar.get("height", 0)) > 0
    assert "100 ms" in [text.text for text in first.iter(f"{NAME}text")]


def test_a_picture_of_nothing() -> None:
    """Where no figure came there is an empty frame."""
    assert ET.fromstring(picture([Panel("none", "", [Series("a", "#000", [])])], 1.0))


def test_a_text() -> None:
    """The longest bar is the highest value's."""
    lines = text_plot([(0, 50, "x"), (1, 100, "")], "ms").splitlines()
    assert lines[0].endswith(" x")
    assert lines[1].count("█") == 2 * lines[0].count("█") == 40
