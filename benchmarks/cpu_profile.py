"""Where a process spends its time, by Linux's `perf`: per thread, the costly functions.

Leaves out the running of the process; see `run.py --profile`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

RATE_HZ = 3989  # no multiple of anything periodic
SYMBOLS_MAX = 18
THREADS_MAX = 4
SHARE_MIN = 0.1  # per cent
SYMBOL_CHARS_MAX = 70
_CYTHON = re.compile(r"__pyx_[a-z]+_")
_LENGTH = re.compile(r"\d+")
PUMP_MODULES = ("engine.", "rows.")  # compiled; only the pump's thread runs in them


class CpuProfile:
    """Records a process from start to stop, or while the context is open.

    Then `text` describes it.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._folder = tempfile.TemporaryDirectory(prefix="canal-perf-")
        self._data = Path(self._folder.name) / "perf.data"
        self._recorder: subprocess.Popen[bytes] | None = None
        self._pipes: tuple[int, ...] = ()
        self.text = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to record; returns once it does."""
        # It begins when it is asked to, and says when it has: `--delay -1`,
        # `--control`.
        control, commands = os.pipe()
        answer, answered = os.pipe()
        what = ["--freq", str(RATE_HZ), "--pid", str(self._pid)]
        when = ["--delay", "-1", "--control", f"fd:{control},{answered}"]
        self._recorder = subprocess.Popen(
            ["perf", "record", "--quiet", *what, *when, "--output", str(self._data)],
            pass_fds=(control, answered),
        )
        os.close(control)
        os.close(answered)
        self._pipes = (commands, answer)  # it ends badly when they close before it
        os.write(commands, b"enable\n")
        os.read(answer, len(b"ack\n"))  # nothing when it has died

    def stop(self) -> None:
        """End the recording, and read what it has."""
        assert self._recorder is not None
        self._recorder.send_signal(signal.SIGINT)
        self._recorder.wait()
        for pipe in self._pipes:
            os.close(pipe)
        command = ["perf", "report", "--stdio", "--percent-limit", str(SHARE_MIN)]
        fields = ["--fields", "overhead,pid,dso,symbol", "--field-separator", "|"]
        report = subprocess.run(
            [*command, *fields, "--input", str(self._data)],
            capture_output=True,
            text=True,
            check=False,
        )
        self.text = summary(report.stdout) or f"perf reports nothing: {report.stderr}"
        self._folder.cleanup()


def perf_missing() -> str:
    """Return why there can be no profile; empty when there can."""
    if shutil.which("perf"):
        return ""
    return "perf is not installed; Debian has it in the package linux-perf"


def summary(report: str) -> str:
    """Return a Markdown table per thread of perf's report, the busiest thread first.

    A line of it reads `share%|tid:command|library|[.] function`.
    """
    threads: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
    for line in report.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if line.startswith("#") or len(fields) != 4:
            continue
        share, thread, library, symbol = fields
        threads[thread.partition(":")[0]].append(
            (float(share.rstrip("%")), symbol[4:], Path(library).name)
        )
    busiest = sorted(
        threads.values(), key=lambda lines: -sum(share for share, _, _ in lines)
    )
    return "\n".join(_table(lines) for lines in busiest[:THREADS_MAX])


def readable(symbol: str) -> str:
    """Return a function's name without what compilers put around it.

    Cython's `__pyx_f_4pack_6module_3Class_function` has a length before each part.
    """
    found = _CYTHON.match(symbol)
    if not found:
        return symbol[:SYMBOL_CHARS_MAX]
    rest = symbol[found.end() :]
    parts = []
    while length := _LENGTH.match(rest):
        end = length.end() + int(length[0])
        parts.append(rest[length.end() : end])
        rest = rest[end + 1 :]
    return ".".join([*parts[1:], rest.partition(".")[0]])[:SYMBOL_CHARS_MAX]


def _table(lines: list[tuple[float, str, str]]) -> str:
    total = sum(share for share, _, _ in lines)
    is_pump = any(library.startswith(PUMP_MODULES) for _, _, library in lines)
    rows = [
        f"| {share:.1f} % | `{readable(symbol)}` | {library.partition('.cpython')[0]} |"
        for share, symbol, library in lines[:SYMBOLS_MAX]
    ]
    libraries: dict[str, float] = defaultdict(float)
    for share, _, library in lines:
        libraries[library.partition(".cpython")[0]] += share
    by_library = sorted(libraries.items(), key=lambda each: -each[1])
    return "\n".join(
        [
            f"The pump's thread, {total:.0f} % of all samples:"
            if is_pump
            else f"A thread, {total:.0f} % of all samples:",
            "",
            ", ".join(f"{name} {share:.0f} %" for name, share in by_library),
            "",
            "| share | function | in |",
            "|---:|---|---|",
            *rows,
            "",
        ]
    )
