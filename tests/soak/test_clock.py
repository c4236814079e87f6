"""A process's clock is turned while it runs, and nothing else of it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fix_pipeline import UNIT_S
from soak.clock import Clock

CLOCKS = "import time; print(time.time(), time.monotonic(), flush=True)"
PROGRAM = f"""
import sys
{CLOCKS}
for line in sys.stdin:
    time.sleep(0.01)  # as the clock is wrong, too
    {CLOCKS}
"""


@pytest.mark.parametrize("seconds", [7200, -7200])
def test_turned(tmp_path, seconds):
    """The wall clock is ahead or behind inside, and right again afterwards."""
    clock = Clock(tmp_path)
    with subprocess.Popen(
        ["env", *clock.environ, sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        said, asked = process.stdout, process.stdin
        assert said
        assert asked

        def now():
            wall, monotonic = said.readline().split()
            return float(wall), float(monotonic)

        first = now()
        with clock.turned(seconds):
            print(file=asked, flush=True)
            turned = now()
        print(file=asked, flush=True)
        last = now()
        asked.close()
    assert turned[0] - first[0] == pytest.approx(seconds, abs=UNIT_S + 60)
    assert last[0] - first[0] == pytest.approx(0, abs=UNIT_S + 60)
    assert first[1] < turned[1] < last[1]
