"""What processes hold is reported, written, read again and drawn."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest
from soak.drawing import drawn
from soak.sampler import Limit, Sample, Sampler, excesses, read_samples

if TYPE_CHECKING:
    from collections.abc import Iterator

HOLDER = """
import os, subprocess, sys, threading
held = bytearray(b"x" * (64 << 20))
files = [open(os.devnull) for _ in range(50)]
stop = threading.Event()
for _ in range(7):
    threading.Thread(target=stop.wait, daemon=True).start()
child = subprocess.Popen(["sleep", "600"])
print("ready", flush=True)
sys.stdin.read()
child.kill()
"""


@pytest.fixture
def holder() -> Iterator[int]:
    """Give a process with 64 MiB, 50 files and 8 threads that has a child."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        assert process.stdin
        process.stdin.close()


def test_what_a_process_holds(holder, tmp_path):
    """Memory, threads and descriptors of a process count, and of its children."""
    sampler = Sampler(
        tmp_path / "s", 1.0, lambda: {"it": holder}, lambda: {"lag": 1.25}
    )
    it, lag = sampler.look()
    assert it.memory_mib >= 64
    assert it.threads >= 8 + 1  # that of the child
    assert it.descriptors >= 50
    assert (lag.part, lag.lag_s) == ("lag", 1.25)


def test_a_process_that_ended(tmp_path):
    """Of a process that has ended, or has not started, there is nothing."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    pids = {"gone": process.pid, "none": None}
    assert Sampler(tmp_path / "s", 1.0, lambda: pids, dict).look() == []


def test_the_file_says_what_was_seen(tmp_path):
    """The file holds all samples."""
    file = tmp_path / "samples.csv"
    pids = {"we": os.getpid()}
    with Sampler(file, 60.0, lambda: pids, lambda: {"lag": 2.0}) as sampler:
        pass
    assert sampler.samples
    assert read_samples(file) == sampler.samples


def test_excesses():
    """Who held more than it may is named, with the most that it held."""
    samples = [
        Sample(1, "server one", 10, 5, 5),
        Sample(2, "server one", 90, 5, 7),
        Sample(3, "server one", 80, 5, 5),
        Sample(3, "Spark", 9999, 5, 5),
    ]
    assert excesses(samples, [Limit("server", 50, 5, 6)]) == [
        "server one had 90 memory_mib at second 2, more than 50",
        "server one had 7 descriptors at second 2, more than 6",
    ]
    assert excesses(samples, [Limit("server", 90, 5, 7)]) == []


def test_the_picture():
    """The picture is an SVG with each part, and a bar for each fault in each panel."""
    samples = [
        Sample(second, part, 100.0 + second, 9, 30)
        for second in range(100)
        for part in ("server one", "mirror")
    ] + [Sample(5, "slow client of mysql", lag_s=3.5)]
    text = drawn(samples, [(20.0, "rotate"), (50.0, "kill a server")])
    root = ET.fromstring(text)
    written = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"server one", "mirror", "lag, mysql", "slow client", "fault"} <= set(
        written
    )
    bars = [each for each in root.iter() if "fill: #bbbbbb" in each.get("style", "")]
    assert len(bars) == 2 * 5 + 5  # two faults in each of five frames, and the legends


def test_the_picture_of_nothing():
    """A run that ended at once has a picture, too."""
    ET.fromstring(drawn([], []))
