"""Logs refusals: the first of an address at once, further ones as a count.

A client that can connect can have a thousand requests refused in a second. Thread-safe;
the count of a period is logged when it ends, by whoever calls `log_ended` in time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD_S: Final = 60.0
ADDRESSES_MAX: Final = 1_000  # that are distinguished; others count as one
OTHERS: Final = "other addresses"


class Refusals:
    """The refusals of this period, by address.

    `log_first` gets a text and its level. `log_more` gets how many were not logged, the
    address, the period in seconds, the last text, and its level.
    """

    def __init__(
        self,
        log_first: Callable[[str, int], None],
        log_more: Callable[[int, str, float, str, int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log_first, self._log_more = log_first, log_more
        self._clock = clock
        self._lock = threading.Lock()
        # By address and level: the start of its period, how many were not logged, and
        # the last of them.
        self._known: OrderedDict[tuple[str, int], tuple[float, int, str]] = (
            OrderedDict()
        )

    def note(self, address: str, message: str, level: int = logging.WARNING) -> None:
        """Log a refusal, or count it when one of this address was logged recently."""
        now_s = self._clock()
        with self._lock:
            sums = self._expired(now_s)
            key = address, level
            if key not in self._known and len(self._known) >= ADDRESSES_MAX:
                key = OTHERS, level
            known = self._known.get(key)
            if known is None:
                self._known[key] = now_s, 0, ""
            else:
                self._known[key] = known[0], known[1] + 1, message
        self._log_sums(sums)
        if known is None:
            self._log_first(message, level)

    def log_ended(self) -> float:
        """Log the counts of periods that ended; returns when to call again, in s.

        No period ends before that, also none that begins meanwhile.
        """
        now_s = self._clock()
        with self._lock:
            sums = self._expired(now_s)
            first = next(iter(self._known.values()), None)
        self._log_sums(sums)
        return PERIOD_S if first is None else first[0] + PERIOD_S - now_s

    def flush(self) -> None:
        """Log the remaining counts."""
        with self._lock:
            sums = self._expired(None)
        self._log_sums(sums)

    def _expired(self, now_s: float | None) -> list[tuple[str, int, int, str]]:
        assert self._lock.locked()
        found = []
        while self._known:
            key, (began_s, count, last) = next(iter(self._known.items()))
            if now_s is not None and now_s - began_s < PERIOD_S:
                break
            del self._known[key]
            if count:
                found.append((*key, count, last))
        return found

    def _log_sums(self, sums: list[tuple[str, int, int, str]]) -> None:
        for address, level, count, last in sums:
            self._log_more(count, address, PERIOD_S, last, level)
