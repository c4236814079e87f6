"""The measurement of a group: what is said of the runs."""

from __future__ import annotations

import pytest
from group import Run, costs
from loads import LOADS


def test_costs(capsys):
    """Medians count; what takes a quarter longer does a fifth less per second."""
    single = [Run(1.0, 0.5), Run(9.0, 0.5), Run(0.5, 0.1)]
    group = [Run(1.25, 0.75), Run(0.1, 0.75), Run(7.0, 0.9)]
    assert costs(LOADS[0], 100_000, single, group) == pytest.approx(20.0)
    output = capsys.readouterr().out
    assert (
        "multi-row inserts: 100 k rows/s from one source, 80 from two merged (-20 %)"
        in output
    )
    assert "0.50 and 0.75 s of the processor" in output
