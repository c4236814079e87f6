"""Each test begins with the log as the one before found it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from canal_server.runtime.log_context import log_about

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Take away what a command logs to: the stream that it was given is closed soon."""
    root = logging.getLogger()
    level = root.level
    yield
    log_about("")
    root.setLevel(level)
    for handler in tuple(root.handlers):
        # pytest's own come and go with each phase of a test.
        if not type(handler).__module__.startswith("_pytest"):
            root.removeHandler(handler)
