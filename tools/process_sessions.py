"""Kills all processes of a session, which a machine that goes away ends at once."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def kill_session(leader: int) -> None:
    """Kill a process that leads a session, and what it and its children started.

    Some of them have process groups of their own.
    """
    for pid in [leader, *_members(leader)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _members(leader: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(folder.name)) == leader:
                found.append(int(folder.name))
    return found
