"""Loads the fixtures, which live by concern in `support/*/fix_*.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = sorted(
    file.stem for file in Path(__file__).parent.glob("support/*/fix_*.py")
)
# At once, as they may import each other in any order.
pytest.register_assert_rewrite(*pytest_plugins)
