"""Whether Spark has executors for what is to be done.

A cluster that has no cores or memory left makes an application wait, without end and
without an error: what it waits for looks as if it went on.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_S: Final = 5.0  # how often it is looked
PATIENCE_S: Final = 30.0  # an executor takes some seconds to begin
TOLD: Final = (
    "Spark has given no executor yet, so nothing is copied or followed: see "
    "spark.cores.max, spark.executor.memory, and what others have of the cluster"
)


class Executors:
    """Tells when jobs wait for an executor; for one thread."""

    def __init__(self, spark: Any, now: Callable[[], float] = time.monotonic) -> None:
        self._context = spark.sparkContext
        self._is_local = bool(self._context._jsc.sc().isLocal())  # noqa: SLF001
        self._now = now
        self._looked_s = -LOOK_S
        self._since_s: float | None = None  # when jobs began to wait

    def problem(self) -> str:
        """Return what to tell a person; nothing where jobs do not wait."""
        now = self._now()
        if not self._is_local and now - self._looked_s >= LOOK_S:
            self._looked_s = now
            if not waits(self._context):
                self._since_s = None
            elif self._since_s is None:
                self._since_s = now
        has_waited = self._since_s is not None and now - self._since_s >= PATIENCE_S
        return TOLD if has_waited else ""


def waits(context: Any) -> bool:
    """Tell whether there are jobs, and no executor."""
    if not context.statusTracker().getActiveJobsIds():
        return False
    # The driver is one of them.
    count: int = context._jsc.sc().getExecutorMemoryStatus().size()  # noqa: SLF001
    return count <= 1
