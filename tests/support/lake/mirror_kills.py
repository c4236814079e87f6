"""What a mirror is made of, killed: its driver, its JVM, the processes of its tasks.

All processes of a mirror are in one session, that of its driver (`MirrorProcess`).
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fix_pipeline import UNIT_S

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from fix_mirror_process import MirrorProcess

PATIENCE_S = 12 * UNIT_S
JVM = "org.apache.spark.deploy.SparkSubmit"
WORKERS = "pyspark.daemon"


class Found(NamedTuple):
    """A process of a session."""

    pid: int
    parent: int
    command: str


def kill_driver(mirror: MirrorProcess) -> None:
    """Kill the driver's Python alone; its JVM finds that out."""
    process, mirror.process = mirror.process, None
    assert process is not None
    process.send(signal.SIGKILL)
    process.wait()


def kill_jvm(mirror: MirrorProcess) -> str:
    """Kill the driver's JVM, with which a mirror ends; returns what it says then."""
    process = mirror.process
    assert process is not None
    pid = process.pid
    mirror.wait_for(lambda: bool(_jvms(pid)), "its JVM")
    for each in _jvms(pid):
        _kill(each)
    status = process.wait(PATIENCE_S)
    mirror.process = None  # else its log is shown, and it is killed
    log = "".join(process.log)
    assert status == 1, log
    return log.strip().rpartition("\n")[2]


def kill_workers(mirror: MirrorProcess, rng: random.Random) -> int:
    """Kill processes in which tasks are done; returns how many."""
    assert mirror.process is not None
    found = [p for p in _session(mirror.process.pid) if WORKERS in p.command]
    daemons = {process.pid for process in found}
    workers = [process for process in found if process.parent in daemons]
    # Now and then the one that they are forked of, too.
    victims = found if rng.random() < 0.3 else workers
    for process in victims:
        _kill(process.pid)
    return len(victims)


def _jvms(session: int) -> list[int]:
    return [found.pid for found in _session(session) if JVM in found.command]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _session(session: int) -> Iterator[Found]:
    """Yield the processes of a session."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended just now
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                yield Found(int(folder.name), int(fields[1]), command.decode())
