"""What a running mirror counts for its metrics, from events of its stages.

The stages report each batch, copy and failure anyway, so nothing is counted per row.
Leaves out what is looked up in the lake and at the source (`lake_samples`,
`source_end`).
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from canal_server.messages.message import NAME_ATTRIBUTE
from canal_server.mirror.settings.table_values import TableName

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.mirror.copy.copying import CopyProgress
    from canal_server.mirror.follow.micro_batches import BatchReport
    from canal_server.mirror.state.run_history import Status

SECONDS_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
MESSAGES_MAX: Final = 10_000  # pairs of message and table that are counted


@dataclass(slots=True)
class TableCounts:
    """One table. Times are 0 where nothing happened yet."""

    copied_rows: int = 0
    stream_rows: int = 0
    newest_ms: int = 0  # commit time of its newest change
    written_ms: int = 0  # when the mirror last wrote it


@dataclass(frozen=True, slots=True)
class CopyCounts:
    """A copy that is being made."""

    rows: int
    rows_expected: int
    chunks: int
    chunks_done: int


@dataclass(slots=True)
class Counts:
    """A mirror since it was started. Times are 0 where nothing happened yet."""

    batches: int = 0
    batch_numbers: list[int] = field(
        default_factory=lambda: [0] * (len(SECONDS_BOUNDS) + 1)
    )
    batch_s: float = 0.0  # of all batches
    batch_at_ms: int = 0  # when the last one was done
    delay_ms: int = -1  # from its last change until it was done; below 0: unknown
    received_rows: int = 0
    newest_ms: int = 0  # commit time of the newest change in the lake
    caught_up_ms: int = 0  # when a poll last brought nothing new
    failures: int = 0  # of the stream
    starts: int = 0  # of the stream
    failing_since_ms: int = 0
    tables: dict[TableName, TableCounts] = field(default_factory=dict)
    copies: dict[TableName, CopyCounts] = field(default_factory=dict)
    messages: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def lag_s(self, now_s: float) -> float | None:
        """Return for how long the lake may lack changes; None if that is unknown."""
        as_of_ms = max(self.newest_ms, self.caught_up_ms)
        return max(0.0, now_s - as_of_ms / 1000) if as_of_ms else None


class MirrorCounts:
    """Counts events; thread-safe."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._counts = Counts()

    def read(self) -> Counts:
        """Return a copy."""
        with self._lock:
            now = self._counts
            return replace(
                now,
                batch_numbers=list(now.batch_numbers),
                tables={name: replace(each) for name, each in now.tables.items()},
                copies=dict(now.copies),
                messages=now.messages.copy(),
            )

    # --- the stream -------------------------------------------------------------------

    def resume(self, status: Status | None) -> None:
        """Use what an earlier process has stored about the age of the lake."""
        if status is None or status.last is None:
            return
        last = status.last
        with self._lock:
            if last.delay_ms >= 0:
                self._counts.newest_ms = last.at_ms - last.delay_ms
            if status.caught_up:
                self._counts.caught_up_ms = status.updated_at_ms

    def started(self) -> None:
        """Record a start of the stream."""
        with self._lock:
            self._counts.starts += 1

    def batch(self, report: BatchReport) -> None:
        """Record a batch of the stream."""
        now_ms = self._now_ms()
        with self._lock:
            counts = self._counts
            counts.batches += 1
            counts.batch_numbers[bisect_left(SECONDS_BOUNDS, report.seconds)] += 1
            counts.batch_s += report.seconds
            counts.batch_at_ms = now_ms
            counts.received_rows += report.received
            counts.failing_since_ms = 0
            if report.newest_ms:
                counts.delay_ms = max(0, now_ms - report.newest_ms)
                counts.newest_ms = max(counts.newest_ms, report.newest_ms)
            for name, newest_ms in report.newest.items():
                table = self._table(name)
                table.newest_ms = max(table.newest_ms, newest_ms)
            for name, rows in report.written.items():
                table = self._table(name)
                table.stream_rows += rows
                table.written_ms = now_ms

    def idle(self) -> None:
        """Record that a poll brought nothing new."""
        with self._lock:
            self._counts.caught_up_ms = self._now_ms()
            self._counts.failing_since_ms = 0

    def failed(self) -> None:
        """Record a failure of the stream."""
        with self._lock:
            self._counts.failures += 1
            self._counts.failing_since_ms = (
                self._counts.failing_since_ms or self._now_ms()
            )

    # --- copies -----------------------------------------------------------------------

    def copying(
        self, name: TableName, progress: CopyProgress, expected: int = 0
    ) -> None:
        """Record a copy's progress; rows of its first call were copied before."""
        with self._lock:
            before = self._counts.copies.get(name)
            if before is not None:
                rows = max(0, progress.rows - before.rows)
                self._table(name).copied_rows += rows
            self._counts.copies[name] = CopyCounts(
                progress.rows, expected, progress.chunks, progress.chunks_done
            )

    def copied(self, name: TableName) -> None:
        """Record that a copy is in the lake, or was abandoned."""
        with self._lock:
            self._counts.copies.pop(name, None)

    # --- messages ---------------------------------------------------------------------

    def message(self, level: str, name: str, table: str) -> None:
        """Record a warning or an error of the log; `table` may be empty."""
        with self._lock:
            key = (level, name, table)
            if key in self._counts.messages or (
                len(self._counts.messages) < MESSAGES_MAX
            ):
                self._counts.messages[key] += 1

    def _table(self, name: TableName) -> TableCounts:
        return self._counts.tables.setdefault(name, TableCounts())

    def _now_ms(self) -> int:
        return round(self._wall() * 1000)


class MessageCounter(logging.Handler):
    """Counts named messages of the log; the first argument may be their table."""

    def __init__(self, counts: MirrorCounts) -> None:
        super().__init__(logging.WARNING)
        self._counts = counts

    def emit(self, record: logging.LogRecord) -> None:
        """Count a record."""
        name = getattr(record, NAME_ATTRIBUTE, "")
        if name:
            args = record.args if isinstance(record.args, tuple) else ()
            first = args[0] if args else None
            table = str(first) if isinstance(first, TableName) else ""
            self._counts.message(record.levelname.lower(), name, table)
