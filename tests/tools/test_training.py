"""What a build with CANAL_PROFILE=1 trains the compiled modules with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TRAINING = Path(__file__).parents[2] / "tools/training/train.py"


def test_recorded_binlogs_are_read() -> None:
    """The training reads all rows of both binlogs, from a file and from packets."""
    done = subprocess.run(
        [sys.executable, str(TRAINING), "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "mariadb.binlog: 2552 rows, 1 times",
        "mysql.binlog: 2552 rows, 1 times",
    ]
