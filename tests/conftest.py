"""Loads the fixtures, which live by concern in `support/*/fix_*.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Servers of tests run side by side, and must not compete for the port for metrics. An
# environment variable overrides the file of settings, also of processes that we start.
os.environ["CANAL_METRICS_PULL_PORT"] = "-1"

pytest_plugins = sorted(
    file.stem for file in Path(__file__).parent.glob("support/*/fix_*.py")
)
# At once, as they may import each other in any order.
pytest.register_assert_rewrite(*pytest_plugins)
