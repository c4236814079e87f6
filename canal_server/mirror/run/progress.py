"""What a person sees of a running mirror: bars of its copies, a line for its stream.

On a terminal they are redrawn below the log; elsewhere they are log lines at intervals.
What programs read is in `report`.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from canal_server.mirror.copy.copying import CopyProgress
    from canal_server.mirror.follow.micro_batches import BatchReport
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.state import Phase

log = logging.getLogger(__name__)

LOG_EVERY_S: Final = 15.0  # without a terminal
STREAM_LOG_EVERY_S: Final = 60.0  # the same, for the stream
RATE_OVER_S: Final = 30.0  # window of the rate
BARS_MAX: Final = 8  # drawn at once
BAR_WIDTH: Final = 20
SHARE_MAX: Final = 0.99  # of a copy whose size is only an estimate
NAME_WIDTH_MAX: Final = 30
WIDTH_MIN: Final = 40
_CLEAR_BELOW: Final = "\x1b[J"
_UP: Final = "\x1b[{}F"  # to the first column, that many lines up


class _Bar(NamedTuple):
    """How far a copy is, and where it began, as it may be a resumed one."""

    started_s: float
    first: CopyProgress
    now: CopyProgress
    expected: int  # estimated rows; 0: unknown


@dataclass(slots=True)
class _Recent:
    """The recent state of the stream."""

    last: BatchReport
    at_s: float
    delay_s: float  # of the last change received; below 0: none was


class Progress:
    """Shows the progress of a mirror; thread-safe.

    `aside()` keeps other output apart from what is drawn.
    """

    def __init__(
        self,
        output: TextIO | None = None,
        *,
        is_terminal: bool | None = None,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        width: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        """Draw on a terminal; the default is standard error, if it is one."""
        self._output = output or sys.stderr
        if is_terminal is None:
            # A dumb terminal cannot go back to lines that are drawn again.
            is_terminal = self._output.isatty() and os.environ.get("TERM") != "dumb"
        self._is_terminal = is_terminal
        self._now = now
        self._wall = wall
        self._width = width
        self._lock = threading.RLock()
        self._bars: dict[TableName, _Bar] = {}
        self._phases: dict[Phase, int] = {}
        self._recent: _Recent | None = None
        self._is_caught_up = False
        self._rows: deque[tuple[float, int]] = deque()
        self._drawn = 0  # lines
        self._logged_s = self._stream_logged_s = now()

    # --------------------------------------------------------------------------------
    # Events
    # --------------------------------------------------------------------------------

    def copying(
        self, name: TableName, progress: CopyProgress, expected: int = 0
    ) -> None:
        """Record a copy's progress; the first call records where it begins.

        `expected` is the database's estimate of the rows.
        """
        with self._lock:
            bar = self._bars.get(name)
            if bar is None or bar.first.chunks != progress.chunks:
                bar = _Bar(self._now(), progress, progress, expected)
            self._bars[name] = bar._replace(now=progress)

    def copied(self, name: TableName) -> None:
        """Record that a copy is in the lake, or was abandoned."""
        with self._lock:
            self._bars.pop(name, None)

    def batch(self, report: BatchReport) -> None:
        """Record a batch of the stream."""
        delay_s = -1.0
        if report.newest_ms:
            delay_s = max(0.0, self._wall() - report.newest_ms / 1000)
        now = self._now()
        with self._lock:
            if delay_s < 0 and self._recent is not None:
                delay_s = self._recent.delay_s
            self._recent = _Recent(report, now, delay_s)
            if report.rows:
                self._rows.append((now, report.rows))
            self._forget(now)

    def phases(self, counts: Mapping[Phase, int]) -> None:
        """Record how many tables are in each phase."""
        with self._lock:
            self._phases = dict(counts)

    def caught_up(self, *, is_so: bool) -> None:
        """Record whether the stream's last poll brought nothing new."""
        with self._lock:
            self._is_caught_up = is_so

    # --------------------------------------------------------------------------------
    # Output
    # --------------------------------------------------------------------------------

    def draw(self) -> None:
        """Draw on a terminal, or log the lines that are due."""
        with self._lock:
            if self._is_terminal:
                self._erase()
                self._draw()
                return
            lines = list(self._due_lines())
        # Outside the lock, for which a thread that logs may wait.
        for line in lines:
            log.info("%s", line)

    def close(self) -> None:
        """Erase what is drawn."""
        with self._lock:
            self._erase()
            self._output.flush()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Keep the drawing erased while other output is written to the terminal."""
        with self._lock:
            drawn = self._drawn
            self._erase()
            yield
            if drawn:
                self._draw()

    def _erase(self) -> None:
        if self._drawn:
            self._output.write(_UP.format(self._drawn) + _CLEAR_BELOW)
            self._drawn = 0

    def _draw(self) -> None:
        width = max(WIDTH_MIN, self._width() - 1)
        lines = [line[:width] for line in self._lines()]
        self._output.write("".join(f"{line}\n" for line in lines))
        self._output.flush()
        self._drawn = len(lines)

    def _lines(self) -> Iterator[str]:
        shown = list(self._bars.items())[:BARS_MAX]
        names = [_shortened(str(name)) for name, _ in shown]
        widest = max(map(len, names), default=0)
        for name, (_, bar) in zip(names, shown, strict=True):
            yield f"{name:<{widest}} {_drawn(bar)} {self._described(bar)}"
        if len(self._bars) > BARS_MAX:
            yield f"… and {len(self._bars) - BARS_MAX} more"
        yield self._stream()

    def _due_lines(self) -> Iterator[str]:
        now = self._now()
        if self._bars and now - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now
            for name, bar in self._bars.items():
                yield f"{name}: copying, {self._described(bar)}"
        if (
            self._recent is not None
            and now - self._stream_logged_s >= STREAM_LOG_EVERY_S
        ):
            self._stream_logged_s = now
            yield self._stream()

    def _described(self, bar: _Bar) -> str:
        """Return rows, rate and the remaining time."""
        at, first = bar.now, bar.first
        seconds = self._now() - bar.started_s
        rows = f"{at.rows:,} rows"
        if _is_by_rows(bar):
            rows = f"{at.rows:,} of about {bar.expected:,} rows"
        parts = [rows, f"{at.chunks_done} of {at.chunks} chunks"]
        share = _share(bar, at)
        done = share - _share(bar, first)
        if done > 0 and seconds > 0:
            parts.append(f"{(at.rows - first.rows) / seconds:,.0f} rows/s")
            parts.append(f"{duration(seconds / done * (1 - share))} left")
        return ", ".join(parts)

    def _stream(self) -> str:
        """Return the status line: tables, delay, rate, the last batch."""
        parts = [f"{count} {phase.value}" for phase, count in self._phases.items()]
        tables = f"tables: {', '.join(parts)} | " if parts else ""
        recent = self._recent
        if recent is None:
            return f"{tables}stream: no batch yet"
        now = self._now()
        self._forget(now)
        rate = sum(rows for _, rows in self._rows) / RATE_OVER_S
        delay = (
            "no change yet" if recent.delay_s < 0 else f"delay {recent.delay_s:.1f} s"
        )
        if self._is_caught_up:
            delay = "caught up"
        return (
            f"{tables}stream: {delay}, {rate:,.0f} rows/s, last batch "
            f"{recent.last.rows:,} rows in {recent.last.seconds:.2f} s, "
            f"{duration(now - recent.at_s)} ago"
        )

    def _forget(self, now: float) -> None:
        while self._rows and now - self._rows[0][0] > RATE_OVER_S:
            self._rows.popleft()


class AsideHandler(logging.StreamHandler[TextIO]):
    """Writes log lines above what is drawn."""

    def __init__(self, progress: Progress, output: TextIO) -> None:
        super().__init__(output)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        with self._progress.aside():
            super().emit(record)


def duration(seconds: float) -> str:
    """Return a duration in one fitting unit."""
    for unit_s, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"


def _is_by_rows(bar: _Bar) -> bool:
    """Check whether progress is shown in rows, as for a copy of one chunk."""
    return bool(bar.now.chunks == 1 and not bar.now.chunks_done and bar.expected)


def _share(bar: _Bar, at: CopyProgress) -> float:
    """Return the finished share of a copy."""
    if _is_by_rows(bar):
        return min(at.rows / bar.expected, SHARE_MAX)
    return at.chunks_done / at.chunks if at.chunks else 1.0


def _drawn(bar: _Bar) -> str:
    share = _share(bar, bar.now)
    full = int(share * BAR_WIDTH)
    return f"[{'#' * full}{'.' * (BAR_WIDTH - full)}] {share:4.0%}"


def _shortened(name: str) -> str:
    if len(name) <= NAME_WIDTH_MAX:
        return name
    return f"…{name[1 - NAME_WIDTH_MAX :]}"
