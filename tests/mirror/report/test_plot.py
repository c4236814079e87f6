"""The plot of a run: what the history has, in slices of time."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from some_settings import settings_of

from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.report.plot import Plot, plot
from canal_server.mirror.state.run_history import Batch, History

if TYPE_CHECKING:
    from pathlib import Path

BEGIN_MS = 1_800_000_000_000
BATCHES = tuple(
    Batch(BEGIN_MS + 1000 * n, n, rows=100 * n, seconds=1.0, delay_ms=500 + n)
    for n in range(1, 101)
)


def test_slices() -> None:
    """All batches are in one of at most so many slices, in the order of time."""
    found = Plot(BATCHES)
    assert (found.begin_ms, found.seconds) == (BEGIN_MS, 100.0)
    slices = found.slices(10)
    assert len(slices) == 10
    assert sum(each.rows for each in slices) == sum(each.rows for each in BATCHES)
    assert [each.begin_s for each in slices] == sorted(each.begin_s for each in slices)
    assert sum(len(each.delays_ms) for each in slices) == len(BATCHES)


def test_text() -> None:
    """Each line has delay and rate of a slice, the last all figures."""
    *_, last = lines = Plot(BATCHES).text().splitlines()
    assert "since 2027-01-15 08:00:00 UTC" in lines[0]
    assert "100 batches, 505,000 rows" in last
    assert "median 550 ms, 95 % within 596 ms, at most 600 ms" in last
    assert len(lines) <= 44
    assert "no batch" in Plot(()).text()
    assert "no batch" in Plot((Batch(BEGIN_MS),)).text()


def test_picture() -> None:
    """Is XML, with a frame for delays and one for rows; also of nothing."""
    for batches in (BATCHES, ()):
        root = ET.fromstring(Plot(batches).picture())
        frames = [g.get("id", "") for g in root.iter("{http://www.w3.org/2000/svg}g")]
        assert [each for each in frames if each.startswith("axes_")] == [
            "axes_1",
            "axes_2",
        ]


def test_history(tmp_path: Path) -> None:
    """It is read as a mirror wrote it, or only its last hours."""
    settings = settings_of(tmp_path)
    history = History(open_folder(settings.lake, settings.folder))
    for batch in BATCHES:
        history.add(batch)
    history.flush()
    assert plot(settings).batches == BATCHES
    assert plot(settings, hours=10 / 3600).batches == BATCHES[-11:]
