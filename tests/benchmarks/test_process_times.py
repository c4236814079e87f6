"""Processor time by process: what children took counts, whether they live or not."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from process_times import Stopwatch, seconds_below, seconds_of

# Works for so many seconds of the processor, says so, and waits for its input to end.
WORK_S = 0.2
WORK = (
    f"import sys, time\nwhile time.process_time() < {WORK_S}: pass\n"
    "print(flush=True); sys.stdin.read()"
)
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def test_children_count_alive_and_dead():
    """What is below a process is what its child took, then and after it ended."""
    before = seconds_below(os.getpid())
    child = subprocess.Popen(
        [sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    assert seconds_of(child.pid) >= WORK_S - 2 * TICK_S
    assert seconds_below(os.getpid()) - before >= WORK_S - 2 * TICK_S
    child.communicate()
    assert seconds_below(os.getpid()) - before >= WORK_S - 2 * TICK_S
    assert seconds_of(child.pid) == 0


def test_a_stopwatch_begins_at_nothing():
    """It shows what each group took since it was made."""
    watch = Stopwatch({"we": lambda: seconds_of(os.getpid())})
    until = time.process_time() + WORK_S
    while time.process_time() < until:
        pass
    assert watch.seconds()["we"] >= WORK_S - 2 * TICK_S
