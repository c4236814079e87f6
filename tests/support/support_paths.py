"""Where the helpers of the tests are, for processes that tests start."""

from __future__ import annotations

import os
from pathlib import Path

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent
ROOT = TESTS.parent
ROOMS = sorted(each for each in SUPPORT.iterdir() if each.is_dir())
# The checkout is in front for those who have no package installed.
PYTHONPATH = os.pathsep.join(map(str, (SUPPORT, *ROOMS, ROOT / "tools")))


def program(name: str) -> Path:
    """Return the path of a helper that is a program, by the name of its file."""
    (path,) = SUPPORT.glob(f"*/{name}")
    return path
