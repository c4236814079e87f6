"""Loads the fixtures, which live by concern in files named `fix_*.py`."""

from __future__ import annotations

from pathlib import Path

pytest_plugins = sorted(file.stem for file in Path(__file__).parent.glob("fix_*.py"))
