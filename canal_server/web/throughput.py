"""How many rows each destination put in the last hour, sampled."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.instance.instance_metrics import Received

SAMPLE_S: Final = 10.0
SAMPLES: Final = 360  # an hour


class Sample(NamedTuple):
    """One moment; `rows` counts from the start of the destination."""

    time_s: float  # since 1970
    rows: int
    received_bytes: int
    lag_s: float | None


class Rate(NamedTuple):
    """The time between two samples, which begins at `time_s`."""

    time_s: float
    rows_per_s: float
    bytes_per_s: float
    lag_s: float | None


class Throughput:
    """Samples all destinations, in the thread of whoever calls `sample`."""

    def __init__(
        self,
        read: Callable[[], Mapping[str, Received]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._read = read
        self._clock = clock
        self._samples: dict[str, deque[Sample]] = {}
        self._lock = threading.Lock()

    def sample(self) -> None:
        """Take a sample of each destination, and forget those that are not there."""
        now = self._clock()
        found = {name: Sample(now, *each) for name, each in self._read().items()}
        with self._lock:
            for name in self._samples.keys() - found.keys():
                del self._samples[name]
            for name, sample in found.items():
                self._samples.setdefault(name, deque(maxlen=SAMPLES)).append(sample)

    def of(self, destination: str) -> list[Rate]:
        """Return the rates of the last hour, oldest first."""
        with self._lock:
            samples = list(self._samples.get(destination, ()))
        return [
            Rate(
                before.time_s,
                (after.rows - before.rows) / (after.time_s - before.time_s),
                (after.received_bytes - before.received_bytes)
                / (after.time_s - before.time_s),
                after.lag_s,
            )
            for before, after in itertools.pairwise(samples)
            # A restarted destination counts from 0, and a clock may be set back.
            if after.rows >= before.rows and after.time_s > before.time_s
        ]
