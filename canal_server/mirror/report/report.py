"""What a running mirror reports: its status, and a history of batches."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.errors import LakeError
from canal_server.messages.mirror import mirror_run_messages
from canal_server.mirror.session.idle import Idle
from canal_server.mirror.state.run_history import (
    Batch,
    History,
    Status,
    read_status,
    write_status,
)
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.mirror.follow.micro_batches import BatchReport
    from canal_server.mirror.lake.lake_storage import Folder
    from canal_server.mirror.settings.mirror_settings import MirrorSettings

log = logging.getLogger(__name__)

EVERY_S: Final = 2.0
LOGGED_S: Final = 60.0  # between two warnings of the same
RATE_OVER_S: Final = 30.0  # window of the rate


class Report:
    """Collects batches, and stores status and history at intervals."""

    def __init__(self, settings: MirrorSettings, folder: Folder) -> None:
        self.metrics_port: int | None = None  # part of the status
        self._settings = settings
        self._folder = folder
        self._history = History(folder)
        self._lock = threading.Lock()
        self._started_ms = _now_ms()
        self._rows = 0
        self._last: Batch | None = None
        self._late: deque[tuple[float, int]] = deque()
        self._written = 0.0
        self._failing = ""
        self._failing_since_ms = 0
        self._logged_until = 0.0
        self._idle = Idle(settings.stream.trigger_s)

    @property
    def is_caught_up(self) -> bool:
        """Whether the stream's last poll brought nothing new."""
        return self._idle.is_caught_up()

    @property
    def failure(self) -> str:
        """Why the stream fails; empty if it works."""
        with self._lock:
            return self._failing

    def idle(self) -> None:
        """Record that a poll of the stream brought nothing new; thread-safe."""
        self._idle.note()
        self.failed("")

    def note(self, report: BatchReport) -> None:
        """Record a batch of the stream; thread-safe."""
        now_ms = _now_ms()
        batch = Batch(
            at_ms=now_ms,
            batch=report.number,
            rows=report.rows,
            seconds=report.seconds,
            delay_ms=now_ms - report.newest_ms if report.newest_ms else -1,
            applied=version_of(report.end) if report.end else -1,
            journal=report.end.journal if report.end else "",
            position=report.end.position if report.end else 0,
            tables=len(report.written),
            epoch=report.end.epoch if report.end else 0,
            gtids=report.end.gtids if report.end else "",
        )
        self._idle.batch()
        with self._lock:
            self._history.add(batch)
            self._last = batch
            self._rows += report.rows
            self._late.append((time.monotonic(), report.rows))
            self._failing, self._failing_since_ms = "", 0

    def failed(self, why: str) -> None:
        """Record why the stream failed, perhaps repeatedly; empty: it works again."""
        with self._lock:
            if not why:
                self._failing_since_ms = 0
            elif not self._failing:
                self._failing_since_ms = _now_ms()
            self._failing = why
        if why:
            self._idle.batch()

    def store(
        self,
        spark: str = "",
        warnings: Sequence[str] = (),
        *,
        at_once: bool = False,
    ) -> None:
        """Store the collected data, every few seconds; a failure is logged.

        `spark` is why jobs wait for Spark's resources; `warnings` are about conditions
        that last until a person changes them.
        """
        now = time.monotonic()
        if now - self._written < EVERY_S and not at_once:
            return
        self._written = now
        with self._lock:
            while self._late and now - self._late[0][0] > RATE_OVER_S:
                self._late.popleft()
            status = Status(
                self._settings.name,
                socket.gethostname(),
                os.getpid(),
                self._started_ms,
                _now_ms(),
                rows=self._rows,
                rows_per_second=sum(rows for _, rows in self._late) / RATE_OVER_S,
                last=self._last,
                failing=self._failing,
                failing_since_ms=self._failing_since_ms,
                spark=spark,
                caught_up=self._idle.is_caught_up(),
                warnings=tuple(warnings),
                metrics_port=self.metrics_port,
                ended_at_ms=0,
            )
            try:
                self._history.flush()
                write_status(self._folder, status)
            except LakeError as error:
                self._not_stored(error)
            else:
                self._logged_until = 0.0

    def _not_stored(self, error: LakeError) -> None:
        """Log why the status is not stored, at intervals while that lasts."""
        now = time.monotonic()
        if now >= self._logged_until:
            self._logged_until = now + LOGGED_S
            mirror_run_messages.MIRROR_STATUS_NOT_STORED.log(log, error)

    def end(self, why: str = "") -> None:
        """Store that the mirror ends, and why, if it has stored a status before."""
        try:
            status = read_status(self._folder)
            if status is not None:
                ended = replace(status, message=why, ended_at_ms=_now_ms())
                write_status(self._folder, ended)
        except LakeError as error:
            self._not_stored(error)


def _now_ms() -> int:
    return round(time.time() * 1000)
