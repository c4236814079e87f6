"""Whether and when a client that lost its server tries again."""

from __future__ import annotations

from typing import Final

from canal_server.client.connection.login import LoginRefused
from canal_server.runtime.backoff import Backoff

_FIRST_DELAY_S, _DELAY_MAX_S = 0.1, 10.0
_REFUSALS_MAX: Final = 3  # in a row, of requests that were accepted before
# Refusals that end when the destination starts, here or on another server.
_TRANSIENT: Final = (
    "should start first",
    "should subscribe first",
    "is not exist , please check",
    "is not the firstly",
    ", the limit",
)
_WAIT_MIN_S: Final = 0.05


class Retries:
    """The failures since the last success. Time is an argument, in seconds."""

    def __init__(self, limit_s: float | None) -> None:
        """Try for so long; None: for ever."""
        self._limit_s = limit_s
        self._backoff = Backoff(_FIRST_DELAY_S, _DELAY_MAX_S)
        self._since: float | None = None
        self._refusals = 0
        self._was_accepted = False  # a subscription, ever

    def note_subscribed(self) -> None:
        """Note that the server accepts the subscription."""
        self._was_accepted = True

    def note_success(self) -> None:
        """Note that the server answered a get."""
        self._since = None
        self._refusals = 0
        self._backoff.reset()

    def delay_s(self, error: Exception, now: float) -> float:
        """Return how long to wait after a failure; raises it if a retry is useless."""
        if self._since is None:
            self._since = now
        is_over = self._limit_s is not None and now - self._since >= self._limit_s
        if is_over or self._is_final(error):
            raise error
        return self._backoff.delay_s(now)

    def _is_final(self, error: Exception) -> bool:
        if is_transient(error):
            return False
        if isinstance(error, LoginRefused):
            return True
        self._refusals += 1
        return not self._was_accepted or self._refusals > _REFUSALS_MAX


def is_transient(error: Exception) -> bool:
    """Return whether a request that failed so may succeed without a change of it."""
    if isinstance(error, OSError):
        return True
    return not isinstance(error, LoginRefused) and any(
        text in str(error) for text in _TRANSIENT
    )


class RequestWait:
    """How long a get waits for changes.

    This server answers as soon as there are changes. A Java server waits until the
    batch is full or the time is over: so its time is cut while changes arrive.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = self.seconds = longest_s

    def note(self, took_s: float, *, has_changes: bool) -> None:
        """Note an answer."""
        if not has_changes:
            self.seconds = min(2 * self.seconds, self._longest_s)
        elif took_s >= self.seconds:
            self.seconds = min(max(self.seconds / 4, _WAIT_MIN_S), self._longest_s)
