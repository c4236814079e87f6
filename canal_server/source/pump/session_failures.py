"""How often a destination's sessions fail, what is said of it, and when to try again.

Leaves out what an error means for the place to begin (`session_start`).
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
from canal_server.runtime.backoff import Backoff
from canal_server.runtime.log_throttle import LogThrottle

_log = logging.getLogger(__name__)

# Errors that trying again does not mend: a person has to; still tried, but slowly.
STUBBORN: Final = (
    BinlogPurged, SourceRefused, DecodeError, TableMetaError, PositionError
)  # fmt: skip
STUBBORN_DELAY_S: Final = 30.0
# While nobody answers an attempt costs little, and when somebody does nothing is to be
# waited for.
UNREACHABLE_DELAY_S: Final = 1.0
SHOWN_S_MIN: Final = 0.05  # less would be shown as 0.0


class Failures:
    """The failures of one destination's sessions; for the pump's thread."""

    def __init__(self, destination: str, backoff: Backoff | None = None) -> None:
        self._destination = destination
        self._backoff = backoff or Backoff()
        self._logged = LogThrottle()  # errors and warnings since something was well

    def forget(self) -> None:
        """Begin anew: something came of a session, or another server is read."""
        self._backoff.reset()
        self._logged.forget()

    def warn(self, text: str) -> None:
        """Log a warning, now and then where it comes with each attempt."""
        if self._is_news(text):
            _log.warning("destination %s: %s", self._destination, text)

    def fail(
        self, error: Exception, told: str, *, elsewhere: bool, counting: bool
    ) -> float:
        """Log the end of a session, as told; returns the seconds to wait.

        `elsewhere`: the next one begins at another place, at once. `counting`: tries
        are counted before another place is looked for, which are not put off.
        """
        if isinstance(error, ConnectionLost) and error.unreachable:
            delay_s = UNREACHABLE_DELAY_S * random.uniform(0.5, 1.0)  # noqa: S311
        else:
            delay_s = self._backoff.delay_s(time.monotonic())
        # Where the history lies somebody may make room, or its server come back.
        is_passing = isinstance(error, TableMetaStoreError)
        if isinstance(error, STUBBORN) and not (is_passing or counting):
            delay_s = max(delay_s, STUBBORN_DELAY_S)
        if elsewhere:
            delay_s = 0.0
        if self._is_news(told):
            when = f"next attempt in {delay_s:.1f} s"
            if delay_s < SHOWN_S_MIN:
                when = "trying again at once"
            _log.error("destination %s: %s; %s", self._destination, told, when)
        return delay_s

    def fault(self, error: Exception) -> float:
        """Log a fault of ours, which is being handled; returns the seconds to wait."""
        if self._is_news(repr(error)):
            _log.exception("destination %s failed", self._destination)
        return STUBBORN_DELAY_S

    def _is_news(self, text: str) -> bool:
        return self._logged.is_news(text, time.monotonic())
