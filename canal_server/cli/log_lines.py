"""The lines of the log: one for each message, and not without end.

Clients and sources choose parts of messages, and clients how many there are. Leaves out
which messages there are.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from canal_server.model.quoted import LINE_MAX, printable

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD_S: Final = 60.0
MESSAGES_MAX: Final = 200  # of one kind that clients cause in a period
CLIENT_THREADS: Final = "client-"  # how the names of clients' threads begin


class LineFormatter(logging.Formatter):
    """Writes each message on one line, and times with their zone.

    Line breaks in a message would look like lines of ours, and its control characters
    would reach a terminal. A traceback keeps its lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's
        """Write the message, escaped and shortened, after time and thread."""
        record.message = printable(record.message, LINE_MAX)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's
        """Write a traceback, each line of it escaped and shortened."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(printable(line, LINE_MAX) for line in lines)

    def formatTime(  # noqa: N802  # the name is logging's
        self, record: logging.LogRecord, datefmt: str | None = None
    ) -> str:
        """Write the time of a message: 2026-11-21T10:00:00.123+01:00."""
        del datefmt
        moment = datetime.fromtimestamp(record.created).astimezone()
        return moment.isoformat(timespec="milliseconds")


class ClientThrottle(logging.Filter):
    """Passes a limited number of messages that clients cause; thread-safe.

    Whoever is logged in can subscribe, or have something refused, a thousand times a
    second. A kind of message is where in the code it is logged.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        # Of each kind: when its period began, and how many there were in it.
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a message is logged; says in it what is left out."""
        if record.levelno < logging.INFO or not str(record.threadName).startswith(
            CLIENT_THREADS
        ):
            return True
        kind = record.pathname, record.lineno
        now_s = self._clock()
        with self._lock:
            began_s, count = self._seen.get(kind, (now_s, 0))
            left_out = 0
            if now_s - began_s >= PERIOD_S:
                left_out = max(0, count - MESSAGES_MAX)
                began_s, count = now_s, 0
            self._seen[kind] = began_s, count + 1
        if left_out:
            _append(record, f"after {left_out} more like it that were left out")
        if count + 1 == MESSAGES_MAX:
            rest_s = began_s + PERIOD_S - now_s
            _append(record, f"more like it are left out for {rest_s:.0f} s")
        return count < MESSAGES_MAX


def _append(record: logging.LogRecord, text: str) -> None:
    record.msg, record.args = f"{record.getMessage()} ({text})", None
