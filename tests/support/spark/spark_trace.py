# ruff: noqa: N802  # names of Spark
"""The data source with a trace of Spark's calls, and with faults at chosen ones.

Spark's worker processes import this by name. Options:

    _trace   file to which each call is appended as a line of JSON
    _faults  file with a line `call number what` for each fault: at that call of the
             name, counted over all processes. What: `fail` raises, `die` kills the
             process that was called, `orphan` the executor whose task that
             is, `kill` the victims
    _victims process ids
    _busy_s  how long a query waits for another's claim to end
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from canal_server.spark.data_source import CanalDataSource
from canal_server.spark.options import servers
from canal_server.spark.stream_reader import CanalStreamReader


def _count(lines: str, call: str) -> int:
    """Return how often a call is in a trace; it may be long, and is asked often."""
    return lines.count(f'{{"call": "{call}", ')


class Trace:
    """Appends to a file, and does what was asked for at a call."""

    def __init__(self, options: dict[str, str]) -> None:
        self.file = Path(options["_trace"])
        self.faults = Path(options.get("_faults") or os.devnull)
        self.victims = options.get("_victims", "")

    def note(self, call: str, **what: Any) -> None:
        """Note a call; returns unless a fault is due."""
        with self.file.open("a+") as lines:
            fcntl.flock(lines, fcntl.LOCK_EX)
            lines.seek(0)
            number = 1 + _count(lines.read(), call)
            line = {
                "call": call,
                "number": number,
                "pid": os.getpid(),
                "at": time.time(),
            }
            lines.write(json.dumps(line | what) + "\n")
        for fault in self.faults.read_text().splitlines():
            name, expected, kind = fault.split()
            if (name, int(expected)) == (call, number):
                self._do(kind)

    def count(self, call: str) -> int:
        """Return how often something was called."""
        with self.file.open() as lines:
            fcntl.flock(lines, fcntl.LOCK_SH)
            return _count(lines.read(), call)

    def _do(self, kind: str) -> None:
        if kind == "fail":
            raise RuntimeError("a fault that was asked for")
        if kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "orphan":
            os.kill(_parent(os.getppid()), signal.SIGKILL)
        for pid in self.victims.split():
            os.kill(int(pid), signal.SIGKILL)
        signal.pause()  # until Spark's end ends this process, too


def _parent(pid: int) -> int:
    """Return the parent of a process."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text.rpartition(")")[2].split()[1])


class TracedReader(CanalStreamReader):
    """Notes each call before and after it is carried out."""

    trace: Trace

    def initialOffset(self) -> dict[str, Any]:
        """Note it."""
        self.trace.note("initialOffset")
        return super().initialOffset()

    def getDefaultReadLimit(self) -> Any:
        """Note it."""
        self.trace.note("getDefaultReadLimit")
        return super().getDefaultReadLimit()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Note it before and after, with the ends."""
        self.trace.note("latestOffset", start=start, limit=type(limit).__name__)
        end = super().latestOffset(start, limit)
        self.trace.note("latestOffset.done", start=start, end=end)
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Note it."""
        self.trace.note("reportLatestOffset")
        return super().reportLatestOffset()

    def prepareForTriggerAvailableNow(self) -> None:
        """Note it."""
        self.trace.note("prepareForTriggerAvailableNow")
        super().prepareForTriggerAvailableNow()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        """Note it, with the number of parts."""
        self.trace.note("partitions", start=start, end=end)
        parts = super().partitions(start, end)
        self.trace.note("partitions.done", parts=len(parts))
        return parts

    def read(self, partition: Any) -> Any:
        """Note each batch, too."""
        executor = _parent(os.getppid())  # this worker was forked by a daemon of it
        self.trace.note("read", part=str(partition.part), executor=executor)
        for batch in super().read(partition):
            yield batch
            self.trace.note("read.batch", rows=batch.num_rows)
        self.trace.note("read.done", part=str(partition.part))

    def commit(self, end: dict[str, Any]) -> None:
        """Note it before and after."""
        self.trace.note("commit", end=end)
        super().commit(end)
        self.trace.note("commit.done", end=end)

    def stop(self) -> None:
        """Note it."""
        self.trace.note("stop")
        super().stop()


class TracedSource(CanalDataSource):
    """Makes traced readers."""

    @classmethod
    def name(cls) -> str:
        """Differ from the source itself."""
        return "traced"

    def streamReader(self, schema: Any) -> TracedReader:
        """Return a traced reader."""
        if "_busy_s" in self.options:
            servers.BUSY_TIMEOUT_S = float(self.options["_busy_s"])  # type: ignore[misc]
        made = super().streamReader(schema)
        reader = TracedReader(made._options, made._schema)
        reader.trace = Trace(self.options)
        return reader
