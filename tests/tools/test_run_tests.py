"""The runner of the suite: failures count, and what passes alone is named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[2] / "tools/run_tests.py"
SPARK = """
import pytest
@pytest.mark.slow
@pytest.mark.spark_session
def test_spark(): pass
"""
MARKED = """
import pytest
def test_quick(): pass
@pytest.mark.slow
def test_slow(): pass
"""
FLAKY = """
from pathlib import Path
def test_flaky():
    path = Path("ran")
    first = not path.exists()
    path.touch()
    assert not first
"""
BROKEN = "def test_broken(): assert 0\n"
MANY = """
from pathlib import Path
import pytest
@pytest.mark.parametrize("n", range(11))
def test_flaky(n):
    path = Path(f"ran{n}")
    first = not path.exists()
    path.touch()
    assert not first
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "options", "status", "output"),
    [
        (
            FLAKY,
            ["--second-try"],
            0,
            "UNSTABLE test_suite.py::test_flaky: failed, then",
        ),
        (FLAKY, [], 1, "1 failed"),
        (FLAKY + BROKEN, ["--second-try"], 1, "UNSTABLE test_suite.py::test_flaky"),
        (BROKEN, ["--second-try"], 1, "1 failed and run once more"),
        (MANY, ["--second-try"], 1, "11 failed"),
        ("", ["--second-try"], 5, "1 deselected"),
    ],
)
def test_what_counts(tmp_path: Path, suite, options, status, output) -> None:
    """A test that fails twice fails the run; one that passes alone is named."""
    (tmp_path / "test_suite.py").write_text(suite)
    (tmp_path / "test_spark.py").write_text(SPARK)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  slow\n  spark_session\n"
    )
    ended = subprocess.run(
        [sys.executable, RUNNER, "-n", "0", "--spark-n", "0", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert output in ended.stdout
    assert "1 passed" in ended.stdout  # the other group had its turn


@pytest.mark.slow
@pytest.mark.parametrize(
    ("only", "ran"),
    [
        ((), {"test_quick", "test_slow", "test_spark"}),
        (("--only", "quick"), {"test_quick"}),
        (("--only", "slow"), {"test_slow", "test_spark"}),
    ],
)
def test_a_part(tmp_path: Path, only, ran) -> None:
    """The two parts are the whole, and no test is in both."""
    (tmp_path / "test_suite.py").write_text(MARKED)
    (tmp_path / "test_spark.py").write_text(SPARK)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -v\nmarkers =\n  slow\n  spark_session\n"
    )
    ended = subprocess.run(
        [sys.executable, RUNNER, "-n", "0", "--spark-n", "0", *only],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(re.findall(r"::(\w+) PASSED", ended.stdout)) == ran
