"""Keeps a message that repeats every few seconds from filling the log.

For attempts that may fail for hours. Leaves out the log itself.
"""

from __future__ import annotations

REPEAT_AFTER_S = 600.0
TEXTS_MAX = 16  # that are remembered: a failing attempt has few different ones


class LogThrottle:
    """Decides which messages to log; for one thread.

    Time is an argument: seconds of any clock that only grows.
    """

    def __init__(self, repeat_after_s: float = REPEAT_AFTER_S) -> None:
        self._repeat_after_s = repeat_after_s
        self._logged_at_s: dict[str, float] = {}  # by text, oldest first

    def is_news(self, text: str, now_s: float) -> bool:
        """Return whether to log a message; it counts as logged then."""
        logged_at_s = self._logged_at_s.get(text)
        if logged_at_s is not None and now_s - logged_at_s < self._repeat_after_s:
            return False
        self._logged_at_s.pop(text, None)
        self._logged_at_s[text] = now_s
        if len(self._logged_at_s) > TEXTS_MAX:
            del self._logged_at_s[next(iter(self._logged_at_s))]
        return True

    def forget(self) -> None:
        """Log every message again."""
        self._logged_at_s.clear()
