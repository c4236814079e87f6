"""Memory of a process and of all that descend from it: each page counts once.

It is the sum of their proportional shares (PSS): what several processes share is
divided among them. Leaves out what the kernel caches of files.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOK_S = 1.0


def tree_of(pid: int) -> set[int]:
    """Return the process and all that descend from it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            text = (path / "stat").read_text()
        except OSError:
            continue  # it has ended
        # The name, which may hold anything, stands in brackets in front of these.
        parents[int(path.name)] = int(text.rpartition(")")[2].split()[1])
    return _below(pid, parents)


def _below(pid: int, parents: Mapping[int, int]) -> set[int]:
    found, new = set[int](), {pid}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new} - found
    return found


def memory_of(pid: int) -> int:
    """Return the bytes of one process; 0 once it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


class TreeMemory:
    """A thread that notes the most that a tree of processes held."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory")
        self.highest = 0
        self.parts: dict[str, int] = {}  # of the moment when it was highest, by name

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def look(self) -> None:
        """Note what it is now."""
        parts: dict[str, int] = {}
        for pid in tree_of(self._pid):
            name = _name_of(pid)
            parts[name] = parts.get(name, 0) + memory_of(pid)
        if sum(parts.values()) > self.highest:
            self.highest, self.parts = sum(parts.values()), parts

    def _run(self) -> None:
        while True:
            self.look()
            if self._ending.wait(LOOK_S):
                return


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"
