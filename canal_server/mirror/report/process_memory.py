"""The memory of a mirror's processes: this one, Spark's JVM, and Python of its tasks.

Executors on other machines are left out; Spark reports those.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

DRIVER: Final = "driver"
JVM: Final = "jvm"
TASKS: Final = "tasks"
KINDS: Final = {
    DRIVER: "the mirror itself",
    JVM: "Spark's JVM on this machine",
    TASKS: "the Python processes of Spark on this machine",
}
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_JAVA: Final = "java"
_PARENT: Final = 1  # indexes in /proc/<pid>/stat after the name
_RESIDENT: Final = 21


class _Process(NamedTuple):
    """A process of this machine."""

    name: str
    parent: int
    resident_bytes: int


def memory_bytes(root: Path = Path("/proc")) -> dict[str, int]:
    """Return the resident memory by kind of process.

    spark-submit's JVM is the parent of this process.
    """
    processes = dict(_processes(root))
    children = defaultdict(list)
    for pid, each in processes.items():
        children[each.parent].append(pid)
    me, above = os.getpid(), processes.get(os.getppid())
    pending = [os.getppid() if above is not None and above.name == _JAVA else me]
    found = dict.fromkeys(KINDS, 0)
    while pending:
        pid = pending.pop()
        pending += children[pid]
        each = processes[pid]
        kind = DRIVER if pid == me else JVM if each.name == _JAVA else TASKS
        found[kind] += each.resident_bytes
    return found


def _processes(root: Path) -> Iterator[tuple[int, _Process]]:
    """Yield each process with its id."""
    for folder in root.iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):  # it has ended
                text = (folder / "stat").read_text(errors="replace")
                name = text.partition("(")[2].rpartition(")")[0]
                fields = text.rpartition(")")[2].split()
                size = int(fields[_RESIDENT]) * _PAGE_BYTES
                yield int(folder.name), _Process(name, int(fields[_PARENT]), size)
