"""Whether the stream has caught up: what Spark tells when a look brought nothing new.

Of a query that has nothing to do Spark tells by a listener alone. Its status says the
same while it waits for changes and while it waits for a server that does not answer.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# How often Spark tells, at most; the first time one such time after it had nothing.
INTERVAL: Final = "spark.sql.streaming.noDataProgressEventInterval"
INTERVAL_MS: Final = 2_000
HOLDS_S: Final = 10.0  # for how long what it told is taken for true


class Idle:
    """Whether all that the server has is in the lake; for any thread."""

    def __init__(
        self, trigger_s: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Take how often the stream looks whether there is something."""
        self._holds_s = trigger_s + HOLDS_S
        self._now = now
        self._lock = threading.Lock()
        self._told_s: float | None = None

    def note(self) -> None:
        """Note that a look has brought nothing."""
        with self._lock:
            self._told_s = self._now()

    def batch(self) -> None:
        """Note that something had come: there may be more."""
        with self._lock:
            self._told_s = None

    def is_caught_up(self) -> bool:
        """Tell whether nothing had come when the stream looked for the last time."""
        with self._lock:
            told_s = self._told_s
        return told_s is not None and self._now() - told_s <= self._holds_s


def listen(session: Any, on_idle: Callable[[], None]) -> None:
    """Have `on_idle` called, in a thread of Spark's, when its stream has nothing."""
    session.streams.addListener(_Listener(on_idle))


class _Listener:
    """What `addListener` takes.

    Spark's own class would ask the JVM for some hundred values after each batch.
    """

    def __init__(self, on_idle: Callable[[], None]) -> None:
        self._events = _Events(on_idle)

    @property
    def _jlistener(self) -> Any:
        from pyspark import SparkContext  # noqa: PLC0415  # heavy

        jvm: Any = SparkContext._jvm  # noqa: SLF001
        return jvm.PythonStreamingQueryListenerWrapper(self._events)


class _Events:
    """What the JVM calls."""

    def __init__(self, on_idle: Callable[[], None]) -> None:
        self._on_idle = on_idle

    def onQueryIdle(self, _event: Any) -> None:  # noqa: N802  # Spark's name
        self._on_idle()

    def onQueryStarted(self, _event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, _event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, _event: Any) -> None:  # noqa: N802
        pass

    class Java:
        """Which interface of the JVM that is, for py4j."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
