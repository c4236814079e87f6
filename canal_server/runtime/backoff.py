"""How long to wait before a retry."""

from __future__ import annotations

import random


class Backoff:
    """Delays that double from one failure to the next, up to a limit, with jitter.

    Time is an argument: seconds of any clock that only grows. After `calm_s` without a
    failure the delays start again at the first one.
    """

    def __init__(
        self,
        first_s: float = 0.5,
        max_s: float = 20.0,
        *,
        calm_s: float = 60.0,
        jitter: float = 0.5,
        rng: random.Random | None = None,
    ) -> None:
        """Set the first and the largest delay.

        `jitter` is the share of a delay that may be cut at random, from 0 to 1, so that
        many instances do not return to a server all at once.
        """
        assert 0 < first_s <= max_s
        assert 0 <= jitter <= 1
        self._first_s = first_s
        self._max_s = max_s
        self._calm_s = calm_s
        self._jitter = jitter
        self._rng = rng or random.Random()  # noqa: S311  # no secret
        self._next_s = first_s
        self._well_at: float | None = None  # when the retry was due
        self.failures = 0  # in a row

    def delay_s(self, now: float) -> float:
        """Note a failure at `now` and return the seconds to wait."""
        if self._well_at is not None and now - self._well_at >= self._calm_s:
            self.reset()
        delay = self._next_s * (1 - self._jitter * self._rng.random())
        self._next_s = min(self._next_s * 2, self._max_s)
        self._well_at = now + delay
        self.failures += 1
        return delay

    def reset(self) -> None:
        """Start with the first delay again, after a success."""
        self._next_s = self._first_s
        self._well_at = None
        self.failures = 0
