"""What `consume` reports meanwhile: a line on standard error, and a file of metrics."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from canal_server.client.consume.consumer_counters import prometheus_text
from canal_server.model.quoted import printable

if TYPE_CHECKING:
    from pathlib import Path

    from canal_server.client.canal import CanalClient
    from canal_server.client.consume.consumer_counters import ConsumerCounters

METRICS_EVERY_S: Final = 5.0
_MODE: Final = 0o644  # others read it


class Progress:
    """Reports from time to time, on its own thread, and at the end."""

    def __init__(
        self,
        client: CanalClient,
        counters: ConsumerCounters,
        every_s: float,
        metrics: Path | None,
    ) -> None:
        """Print every so many seconds, 0 for never; write the metrics to a file."""
        self._client = client
        self._counters = counters
        self._every_s = every_s
        self._metrics = metrics
        self._has_failed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="consume-progress", daemon=True
        )

    def __enter__(self) -> None:
        """Write the first metrics, and start. Raises OSError."""
        if self._metrics is not None:
            self._write_metrics(self._metrics)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        line = _Line(self._counters)
        due_s = time.monotonic() + self._every_s
        pause_s = min(self._every_s or METRICS_EVERY_S, METRICS_EVERY_S)
        is_ended = False
        while not is_ended:
            is_ended = self._ended.wait(pause_s)
            now_s = time.monotonic()
            if self._every_s and (is_ended or now_s >= due_s):
                due_s = now_s + self._every_s
                line.print(now_s, self._client.lag)
            if self._metrics is not None:
                self._try_to_write_metrics(self._metrics)

    def _try_to_write_metrics(self, path: Path) -> None:
        try:
            self._write_metrics(path)
            self._has_failed = False
        except OSError as error:  # such as a full disk, which is no reason to stop
            if not self._has_failed:
                _report(f"--metrics-file {path}: {error.strerror}")
            self._has_failed = True

    def _write_metrics(self, path: Path) -> None:
        """Replace the file, so that a reader finds it complete."""
        labels = {
            "destination": self._client.destination,
            "client_id": str(self._client.client_id),
        }
        text = prometheus_text(self._counters, labels, self._client.lag)
        # With another suffix than `.prom`, by which node_exporter would read it.
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(_MODE)
        temporary.replace(path)


class _Line:
    """The line of progress; it is not printed while nothing happens."""

    def __init__(self, counters: ConsumerCounters) -> None:
        self._counters = counters
        self._before = (0, 0)
        self._changes = 0
        self._printed_s = time.monotonic()

    def print(self, now_s: float, lag_s: float | None) -> None:
        """Print what happened since the last call, if anything did."""
        counters = self._counters
        now = counters.changes, counters.retries
        if now == self._before:
            self._printed_s = now_s
            return
        rate = (now[0] - self._changes) / max(now_s - self._printed_s, 0.001)
        parts = [
            f"{now[0]:,} changes",
            f"{rate:,.0f}/s",
            f"lag {'unknown' if lag_s is None else f'{lag_s:.1f} s'}",
        ]
        parts += [
            f"{number:,} {name}"
            for number, name in (
                (counters.retries, "retries"),
                (counters.dead_letters, "dead letters"),
            )
            if number
        ]
        _report(", ".join(parts))
        self._before, self._changes, self._printed_s = now, now[0], now_s


def _report(text: str) -> None:
    print(f"canal-server consume: {printable(text)}", file=sys.stderr)
