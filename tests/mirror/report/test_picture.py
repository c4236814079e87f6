"""Pictures and texts of figures."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from canal_server.mirror.report.picture import Panel, Series, picture, text_plot

NAME = "{http://www.w3.org/2000/svg}"


def test_a_picture() -> None:
    """Is XML, with a frame for each panel, its title, legend and units as texts."""
    dots = Series("row", "#000", [(0.0, 0.0), (5.0, 90.0), (10.0, 100.0)])
    bars = Series("batch", "#f00", [(2.0, 50.0)], bar_s=1.0)
    panels = [Panel("delay", " ms", [dots]), Panel("rows", "", [bars])]
    root = ET.fromstring(picture(panels, 10.0))
    first, second = (root.find(f".//{NAME}g[@id='axes_{n}']") for n in (1, 2))
    assert first is not None
    assert second is not None
    texts = [
        [each.text for each in frame.iter(f"{NAME}text")] for frame in (first, second)
    ]
    assert {"delay", "row", "100 ms", "10 s"} <= set(texts[0])
    assert {"rows", "batch", "50"} <= set(texts[1])
    assert picture(panels, 10.0) == picture(panels, 10.0)


def test_a_picture_of_nothing() -> None:
    """A panel without figures is an empty frame."""
    assert list(
        ET.fromstring(picture([Panel("none", "", [Series("a", "#000", [])])], 1.0))
    )


def test_a_text() -> None:
    """The longest bar is the highest value's."""
    lines = text_plot([(0, 50, "x"), (1, 100, "")], "ms").splitlines()
    assert lines[0].endswith(" x")
    assert lines[1].count("█") == 2 * lines[0].count("█") == 40
