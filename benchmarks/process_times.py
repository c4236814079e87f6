"""Processor time of groups of processes, as Linux counts it.

A group is a process, or all that descend from one; of those that ended, what their
parents waited for counts as well.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class _Times:
    parent: int
    own: int  # ticks, user and system
    waited: int  # the same of children that ended


def seconds_of(pid: int) -> float:
    """Return the seconds that a process took itself; 0 once it has ended."""
    times = _times(pid)
    return times.own / _TICKS if times else 0.0


def seconds_below(pid: int) -> float:
    """Return the seconds of all that descend from a process, which is left out."""
    every = {
        int(path.name): times
        for path in Path("/proc").iterdir()
        if path.name.isdigit() and (times := _times(int(path.name)))
    }
    ticks = every[pid].waited if pid in every else 0
    parents = {pid}
    while parents:
        found = {child for child, times in every.items() if times.parent in parents}
        ticks += sum(every[child].own + every[child].waited for child in found)
        parents = found
    return ticks / _TICKS


class Stopwatch:
    """Seconds of groups since it was made, by their names."""

    def __init__(self, groups: Mapping[str, Callable[[], float]]) -> None:
        self._groups = groups
        self._at_start = {name: seconds() for name, seconds in groups.items()}

    def seconds(self) -> dict[str, float]:
        """Return what each group took since then."""
        return {
            name: seconds() - self._at_start[name]
            for name, seconds in self._groups.items()
        }


def _times(pid: int) -> _Times | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, which may hold anything, stands in brackets in front of these.
    fields = text.rpartition(")")[2].split()
    user, system, user_waited, system_waited = map(int, fields[11:15])
    return _Times(int(fields[1]), user + system, user_waited + system_waited)
