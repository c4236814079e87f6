"""Keeps the suite from reporting success after a crash of the compiled core.

What `faulthandler` writes when the process dies goes to a file per process in
pytest's cache. While such a file has content, every run ends with status 1 and shows
it: a crash that went unseen, or went away when the test was run again, stays known
until a person removes the file.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
from io import TextIOWrapper
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_trace = pytest.StashKey[TextIOWrapper]()


def _folder(config: pytest.Config) -> Path:
    """Return the folder of the traces, which outlives the run."""
    return config.rootpath / ".pytest_cache" / "d" / "crashes"


def _crashes(config: pytest.Config) -> list[Path]:
    """Return the traces that processes left when they died."""
    found = []
    for file in sorted(_folder(config).glob("*")):
        with contextlib.suppress(FileNotFoundError):  # of a run that just ended
            if file.stat().st_size:
                found.append(file)
    return found


# Last, as pytest's own plugin sends the trace to the terminal.
@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Send the trace of a crash of this run to a file."""
    _folder(config).mkdir(parents=True, exist_ok=True)
    file = (_folder(config) / f"{os.getpid()}.txt").open("w")
    config.stash[_trace] = file
    faulthandler.enable(file)


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove this run's file, which is empty when we get here."""
    faulthandler.disable()
    config.stash[_trace].close()
    (_folder(config) / f"{os.getpid()}.txt").unlink(missing_ok=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn success into failure when an earlier run crashed."""
    succeeded = session.exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    )
    if succeeded and _crashes(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show what crashed and how to go on."""
    for file in _crashes(config):
        terminalreporter.section("a run of the tests crashed", red=True)
        terminalreporter.line(file.read_text(errors="replace"))
        terminalreporter.line(f"this counts as a failure until you remove {file}")
