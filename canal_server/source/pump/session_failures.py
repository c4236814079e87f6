"""How often a destination's sessions fail, what is logged, and when to try again.

What an error means for the position to begin at is decided in `session_start`.
"""

from __future__ import annotations

import logging
import random
import time
from typing import Final

from canal_server.errors import (
    BinlogPurged,
    ConnectionLost,
    DecodeError,
    PositionError,
    SourceRefused,
    TableMetaError,
    TableMetaStoreError,
)
from canal_server.messages import source_messages
from canal_server.runtime.backoff import Backoff
from canal_server.runtime.log_throttle import LogThrottle

_log = logging.getLogger(__name__)

# Errors that need a person to fix them; they are retried slowly.
STUBBORN: Final = (
    BinlogPurged, SourceRefused, DecodeError, TableMetaError, PositionError
)  # fmt: skip
STUBBORN_DELAY_S: Final = 30.0
# An attempt costs little while nobody answers, and the answer should be used soon.
UNREACHABLE_DELAY_S: Final = 1.0
SHOWN_S_MIN: Final = 0.05  # less would be shown as 0.0


class Failures:
    """The failures of one destination's sessions; for the pump's thread."""

    def __init__(self, destination: str, backoff: Backoff | None = None) -> None:
        self._destination = destination
        self._backoff = backoff or Backoff()
        self._logged = LogThrottle()  # errors and warnings since the last success
        self._was_elsewhere = False  # the last line was about another position

    def forget(self) -> None:
        """Reset: a session delivered something, or another server is read."""
        self._backoff.reset()
        self._logged.forget()

    def warn(self, text: str) -> None:
        """Log a warning, only now and then if each attempt repeats it."""
        if self._is_news(text):
            source_messages.SOURCE_WARNING.log(_log, self._destination, text)

    def fail(
        self, error: Exception, message: str, *, elsewhere: bool, counting: bool
    ) -> float:
        """Log the end of a session with a message; return the seconds to wait.

        `elsewhere`: the next one begins at another position, at once. `counting`:
        attempts are counted before another position is searched for, without delay.
        """
        if isinstance(error, ConnectionLost) and error.unreachable:
            delay_s = UNREACHABLE_DELAY_S * random.uniform(0.5, 1.0)  # noqa: S311
        else:
            delay_s = self._backoff.delay_s(time.monotonic())
        # Somebody may make room for the history, or its server may return.
        is_passing = isinstance(error, TableMetaStoreError)
        if isinstance(error, STUBBORN) and not (is_passing or counting):
            delay_s = max(delay_s, STUBBORN_DELAY_S)
        if elsewhere:
            delay_s = 0.0
        # If that fails too, the line with the remedy comes once more, as the last one.
        if self._is_news(message) or (self._was_elsewhere and not elsewhere):
            self._was_elsewhere = elsewhere
            when = f"next attempt in {delay_s:.1f} s"
            if elsewhere:
                when = "looking for another position at once"
            elif delay_s < SHOWN_S_MIN:
                when = "retrying at once"
            source_messages.SOURCE_FAILED.log(_log, self._destination, message, when)
        return delay_s

    def fault(self, error: Exception) -> float:
        """Log a fault of ours, which is being handled; return the seconds to wait."""
        if self._is_news(repr(error)):
            source_messages.SOURCE_READING_FAILED.log(
                _log, self._destination, exc_info=True
            )
        return STUBBORN_DELAY_S

    def _is_news(self, text: str) -> bool:
        return self._logged.is_news(text, time.monotonic())
