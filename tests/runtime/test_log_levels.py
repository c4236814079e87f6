"""Levels of the log, also of single destinations."""

from __future__ import annotations

import logging
import threading

import pytest

from canal_server.errors import ConfigError
from canal_server.runtime.log_context import log_about, logged_subject
from canal_server.runtime.log_levels import LogLevels


@pytest.fixture(autouse=True)
def _root_level():
    """Restore the level of the root logger."""
    root = logging.getLogger()
    before = root.level
    yield
    root.setLevel(before)
    log_about("")


def logged(levels, level, destination="") -> bool:
    """Return whether a line about a destination is logged."""
    log_about(destination)
    record = logging.LogRecord("a", level, "", 1, "m", (), None)
    is_enabled = logging.getLogger().isEnabledFor(level)
    return bool(is_enabled and levels.filter(record))


def test_default():
    """Lines below the level are not logged."""
    levels = LogLevels("warning")
    assert logged(levels, logging.WARNING, "a")
    assert not logged(levels, logging.INFO, "a")
    levels.set("debug")
    assert logged(levels, logging.DEBUG)


def test_of_a_destination():
    """One destination may log more or less than the others."""
    levels = LogLevels("info")
    levels.set("debug", "a")
    levels.set("error", "b")
    assert logged(levels, logging.DEBUG, "a")
    assert not logged(levels, logging.DEBUG)
    assert not logged(levels, logging.WARNING, "b")
    assert levels.as_json() == {
        "level": "info",
        "destinations": {"a": "debug", "b": "error"},
    }
    levels.set(None, "a")
    levels.set(None, "b")
    assert not logged(levels, logging.DEBUG, "a")
    assert logged(levels, logging.INFO, "b")


def test_lines_that_nobody_reads_cost_nothing():
    """The root logger has the lowest level that is asked for."""
    levels = LogLevels("info")
    assert not logging.getLogger().isEnabledFor(logging.DEBUG)
    levels.set("debug", "a")
    assert logging.getLogger().isEnabledFor(logging.DEBUG)
    levels.set(None, "a")
    assert not logging.getLogger().isEnabledFor(logging.DEBUG)


def test_unknown():
    """An unknown level is refused with those that there are."""
    with pytest.raises(ConfigError, match="'loud': expected debug, info"):
        LogLevels("info").set("loud")


def test_subjects_of_threads():
    """Each thread has its own subject; a new one has none."""
    found = []
    log_about("a", 1)
    thread = threading.Thread(target=lambda: found.append(logged_subject()))
    thread.start()
    thread.join()
    assert found[0].destination == ""
    assert logged_subject() == ("a", 1)
