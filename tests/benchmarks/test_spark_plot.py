"""What is made of the times of rows and of micro-batches."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from spark_plot import Figures, batch_of, draw, show

FIGURES = Figures(
    began=1000.0,
    written={7: 1000.5, 8: 1000.9, 9: 1001.5, 10: 1001.6},
    received={7: 1000.75, 8: 1001.5, 9: 1002.0},
    batches=[(999.0, 5000, 1.0), (1000.25, 6000, 0.5), (1001.0, 0, 0.25)],
)


def test_delays() -> None:
    """Count from the row's commit; a row that never arrived has none."""
    found = [(round(second, 3), round(ms)) for second, ms in FIGURES.delays()]
    assert found == [(0.5, 250), (0.9, 600), (1.5, 500)]


def test_seconds() -> None:
    """Have the median and the highest delay of the rows written in them."""
    found = [tuple(map(round, each)) for each in FIGURES.by_second()]
    assert found == [(0, 425, 600), (1, 500, 500)]


def test_rates() -> None:
    """Are those of the micro-batches since the writing began."""
    assert FIGURES.rates() == [(0.25, 0.5, 12_000.0), (1.0, 0.25, 0.0)]


def test_a_batch_as_spark_reports_it() -> None:
    """Begins at a time in UTC; one that took no time at all divides nothing by 0."""
    progress = {
        "timestamp": "1970-01-01T00:16:40.500Z",
        "numInputRows": 12,
        "durationMs": {"triggerExecution": 0},
    }
    assert batch_of(progress) == (1000.5, 12, 0.001)


def test_the_whole(capsys) -> None:
    """Figures are printed by second, with the batches of the burst; and drawn."""
    show(FIGURES)
    printed = capsys.readouterr().out
    assert "3 steady rows: median 500 ms" in printed
    assert "12,000 rows/s" in printed
    assert ET.fromstring(draw(FIGURES)).tag.endswith("svg")
