"""Loads the fixtures, which live by concern in `support/*/fix_*.py`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# Servers of tests run side by side, and must not compete for these ports. An
# environment variable overrides the file of settings, also of processes that we start.
os.environ["CANAL_METRICS_PULL_PORT"] = "-1"
os.environ["CANAL_HTTP_PORT"] = "-1"
os.environ["CANAL_ADMIN_PORT"] = "-1"

# Shells and nohup start processes in the background with these ignored; processes that
# tests start inherit that, and tests of signals would wait for what never comes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

pytest_plugins = sorted(
    file.stem for file in Path(__file__).parent.glob("support/*/fix_*.py")
)
# At once, as they may import each other in any order.
pytest.register_assert_rewrite(*pytest_plugins)
