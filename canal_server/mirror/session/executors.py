"""Whether Spark has executors for its jobs.

A cluster without free cores or memory makes an application wait, with no limit and no
error: jobs that wait look like jobs that run.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_S: Final = 5.0  # how often it is checked
PATIENCE_S: Final = 30.0  # an executor takes some seconds to start
WAITING_TEXT: Final = (
    "Spark has granted no executor yet, so nothing is copied or followed: check "
    "spark.cores.max, spark.executor.memory, and what the cluster's other jobs use"
)


class Executors:
    """Detects jobs that wait for an executor; for one thread."""

    def __init__(self, spark: Any, now: Callable[[], float] = time.monotonic) -> None:
        self._context = spark.sparkContext
        self._is_local = bool(self._context._jsc.sc().isLocal())  # noqa: SLF001
        self._now = now
        self._looked_s = -LOOK_S
        self._since_s: float | None = None  # since when jobs have been waiting

    def problem(self) -> str:
        """Return a message if jobs wait, else an empty one."""
        now = self._now()
        if not self._is_local and now - self._looked_s >= LOOK_S:
            self._looked_s = now
            if not waits(self._context):
                self._since_s = None
            elif self._since_s is None:
                self._since_s = now
        has_waited = self._since_s is not None and now - self._since_s >= PATIENCE_S
        return WAITING_TEXT if has_waited else ""


def waits(context: Any) -> bool:
    """Check whether jobs exist but no executor."""
    if not context.statusTracker().getActiveJobsIds():
        return False
    # The driver is counted.
    count: int = context._jsc.sc().getExecutorMemoryStatus().size()  # noqa: SLF001
    return count <= 1
