"""Tests of the fixture file that remembers crashes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support_paths import PYTHONPATH

if TYPE_CHECKING:
    from pathlib import Path


def run_pytest(folder: Path, test: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one test with the plugin, in a process of its own."""
    (folder / "test_it.py").write_text(test)
    (folder / "pytest.ini").write_text("[pytest]\n")  # the root is here
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "fix_crash",
            "--rootdir=.",
            "test_it.py",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


CRASH = "import os\ndef test_crash(): os.abort()\n"
PASS = "def test_pass(): pass\n"


def test_green_without_crash(tmp_path: Path) -> None:
    """A run after a run that ended well ends well."""
    assert [run_pytest(tmp_path, PASS).returncode for _ in range(2)] == [0, 0]


def test_not_green_after_crash(tmp_path: Path) -> None:
    """Runs after a crash fail and show its trace until the trace is removed."""
    assert run_pytest(tmp_path, CRASH).returncode < 0

    after = run_pytest(tmp_path, PASS)
    assert after.returncode == pytest.ExitCode.TESTS_FAILED
    assert "in test_crash" in after.stdout
    assert "1 passed" in after.stdout

    (trace,) = (tmp_path / ".pytest_cache/d/crashes").iterdir()
    assert str(trace) in after.stdout
    trace.unlink()
    assert run_pytest(tmp_path, PASS).returncode == 0
