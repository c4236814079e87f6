"""Whether the stream has caught up: Spark reports when a poll brought nothing new.

Spark reports an idle query only to a listener. The query's status is the same while it
waits for changes and while it waits for a server that does not answer.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# How often Spark reports, at most; first after one such interval without data.
INTERVAL: Final = "spark.sql.streaming.noDataProgressEventInterval"
INTERVAL_MS: Final = 2_000
HOLDS_S: Final = 10.0  # how long a report is valid


class Idle:
    """Whether everything that the server has is in the lake; thread-safe."""

    def __init__(
        self, trigger_s: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Set the interval at which the stream polls."""
        self._holds_s = trigger_s + HOLDS_S
        self._now = now
        self._lock = threading.Lock()
        self._reported_s: float | None = None

    def note(self) -> None:
        """Record that a poll brought nothing."""
        with self._lock:
            self._reported_s = self._now()

    def batch(self) -> None:
        """Record that a poll brought data: there may be more."""
        with self._lock:
            self._reported_s = None

    def is_caught_up(self) -> bool:
        """Check whether the stream's last poll brought nothing."""
        with self._lock:
            reported_s = self._reported_s
        return reported_s is not None and self._now() - reported_s <= self._holds_s


def listen(session: Any, on_idle: Callable[[], None]) -> None:
    """Register `on_idle`, which a thread of Spark calls when the stream is idle."""
    session.streams.addListener(_Listener(on_idle))


class _Listener:
    """The object that `addListener` accepts.

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
    """The methods that the JVM calls."""

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
        """Names the JVM's interface for py4j."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
