"""Whose turn it is to copy: how many tasks of copies there are at a time.

Connections to the database are limited, and so are Spark's cores: while tables follow
the stream, one of them is left to it. Those who wait get their turns in order, so that
a large table does not keep a small one waiting.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOK_S: Final = 0.5  # how often it is looked at whether there are more now
# For how long a turn begins with chunks: beside the stream, and where nobody waits.
TURN_S: Final = 2.0
LONG_TURN_S: Final = 10.0


class Slots:
    """Turns of tasks, for any number of threads."""

    def __init__(
        self,
        connections: int,
        *,
        cores: Callable[[], int] = lambda: 0,
        is_followed: Callable[[], bool] = lambda: False,
    ) -> None:
        """Have so many connections at most.

        `is_followed` tells whether tables follow the stream: one of `cores` is left
        to it then, where there is more than one. 0: nobody knows how many there are.
        """
        self._connections = connections
        self._cores = cores
        self._is_followed = is_followed
        self._changed = threading.Condition()
        self._taken = 0
        self._waiting: deque[object] = deque()

    @contextmanager
    def turn(self, is_over: Callable[[], bool]) -> Iterator[bool]:
        """Wait for a turn and have it inside; false when it is not wanted any more."""
        has_turn = self._take(is_over)
        try:
            yield has_turn
        finally:
            if has_turn:
                with self._changed:
                    self._taken -= 1
                    self._changed.notify_all()

    @property
    def turn_s(self) -> float:
        """For how long one who has a turn may begin with something."""
        return TURN_S if self._is_followed() else LONG_TURN_S

    def _take(self, is_over: Callable[[], bool]) -> bool:
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while self._waiting[0] is not ticket or self._taken >= self._most():
                    if is_over():
                        return False
                    # Also without a notice: what tables follow changes elsewhere.
                    self._changed.wait(LOOK_S)
                self._taken += 1
                return True
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _most(self) -> int:
        """Return how many may have their turn now."""
        cores = self._cores() if self._is_followed() else 0
        return min(self._connections, max(1, cores - 1)) if cores else self._connections
