"""The format of the log and its limits: one line per message, a limit on repetitions.

Parts of messages come from clients and sources, and clients can cause any number of
them. What is logged is up to the callers.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from canal_server.messages.message import NAME_ATTRIBUTE
from canal_server.model.quoted import LINE_MAX, printable
from canal_server.runtime.log_context import logged_subject

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD_S: Final = 60.0
MESSAGES_MAX: Final = 200  # of one kind that clients cause per period
CLIENT_THREADS: Final = "client-"  # prefix of the names of client threads
FIELDS: Final = ("batch", "position")  # that some records have


class LineFormatter(logging.Formatter):
    """Writes each message on one line, and times with their zone.

    A line break in a message could forge a log line, and a control character would
    reach the terminal. A traceback keeps its line breaks.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's
        """Format the message, escaped and shortened, after time and thread.

        A warning or an error ends with its name, which the reference explains.
        """
        record.message = printable(record.message, LINE_MAX)
        line = super().formatMessage(record)
        name = getattr(record, NAME_ATTRIBUTE, "")
        is_named = name and record.levelno >= logging.WARNING
        return f"{line} [{name}]" if is_named else line

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's
        """Format a traceback; each of its lines is escaped and shortened."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(printable(line, LINE_MAX) for line in lines)

    def formatTime(  # noqa: N802  # the name is logging's
        self, record: logging.LogRecord, datefmt: str | None = None
    ) -> str:
        """Format the time of a message: 2026-11-21T10:00:00.123+01:00."""
        del datefmt
        return _time_of(record)


class JsonFormatter(logging.Formatter):
    """Writes each message as one line of JSON.

    `time`, `level`, `logger`, `thread` and `message` are always there; `name` of a
    warning or an error, `destination`, `client_id`, `batch`, `position` and `exception`
    where there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a message."""
        subject = logged_subject()
        found: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage()[:LINE_MAX],
            "name": getattr(record, NAME_ATTRIBUTE, None),
            "destination": subject.destination or None,
            "client_id": subject.client_id,
            **{field: getattr(record, field, None) for field in FIELDS},
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        present = {key: value for key, value in found.items() if value is not None}
        return json.dumps(present, ensure_ascii=False, default=str)


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created).astimezone()
    return moment.isoformat(timespec="milliseconds")


class ClientThrottle(logging.Filter):
    """Limits the messages that clients can cause; thread-safe.

    A client that has logged in can subscribe, or provoke an error, a thousand times a
    second. Messages logged at the same line of code are of the same kind.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        # For each kind: the start of its period, and the number of messages in it.
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a message is logged; notes in it how many were suppressed."""
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
            _append(record, f"{left_out} similar messages suppressed")
        if count + 1 == MESSAGES_MAX:
            rest_s = began_s + PERIOD_S - now_s
            _append(record, f"similar messages are suppressed for {rest_s:.0f} s")
        return count < MESSAGES_MAX


def _append(record: logging.LogRecord, text: str) -> None:
    record.msg, record.args = f"{record.getMessage()} ({text})", None
