"""Every manager that writes, in a process that is killed amid its writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fix_daemon import child_environ
from position_writer import Store

WRITER = Path(__file__).parents[1] / "position_writer.py"
KILLS = 5


@pytest.mark.parametrize("where", ["files", "nodes"])
@pytest.mark.parametrize("kind", ["cursors", "positions"])
def test_killed_amid_writes(request, rng, kind, where):
    """What was stored before the kill is there, or the one that was being stored."""
    place = (
        str(request.getfixturevalue("tmp_path"))
        if where == "files"
        else request.getfixturevalue("zookeeper_root")
    )
    last = 0
    for _ in range(KILLS):
        with subprocess.Popen(
            [sys.executable, str(WRITER), kind, place, str(last + 1)],
            stdout=subprocess.PIPE,
            text=True,
            env=child_environ(),
        ) as process:
            assert process.stdout
            for _ in range(rng.randint(1, 60)):
                last = int(process.stdout.readline())
            process.kill()
            for line in process.stdout:
                last = int(line) if line.endswith("\n") else last
        store = Store(kind, place)
        found = store.get()
        store.close()
        assert found in (last, last + 1)
        last = found
