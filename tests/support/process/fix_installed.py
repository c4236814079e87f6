"""Shows which canal_server is tested; CANAL_TEST_INSTALLED=1 demands an installed one.

A flat layout makes it easy to test the checkout by mistake, with whatever compiled
modules lie about there, instead of what is shipped.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import canal_server

WHERE = Path(canal_server.__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test the checkout when the installed package is requested."""
    expected = os.environ.get("CANAL_TEST_INSTALLED") == "1"
    if expected and config.rootpath / "canal_server" == WHERE:
        raise pytest.UsageError(
            f"CANAL_TEST_INSTALLED=1, but {WHERE} is the checkout: run `make test`"
        )


def pytest_report_header() -> str:
    """Show where the package under test is."""
    return f"canal_server: {WHERE}"
