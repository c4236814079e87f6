"""Slots for copy tasks: how many of them run at a time.

Connections to the database are limited, and so are Spark's cores: while tables follow
the stream, one core is left to it. Waiting copies get their slots in order, so a large
table does not block a small one.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOK_S: Final = 0.5  # how often the number of slots is checked
# How long a slot's holder may start chunks: beside the stream, and without waiters.
HOLD_S: Final = 2.0
LONG_HOLD_S: Final = 10.0


class Slots:
    """Slots of tasks, for any number of threads."""

    def __init__(
        self,
        connections: int,
        *,
        cores: Callable[[], int] = lambda: 0,
        is_followed: Callable[[], bool] = lambda: False,
    ) -> None:
        """Allow a number of connections at most.

        `is_followed` says whether tables follow the stream: then one of `cores` is left
        to it, if there is more than one. `cores` is 0 if unknown.
        """
        self._connections = connections
        self._cores = cores
        self._is_followed = is_followed
        self._changed = threading.Condition()
        self._held = 0
        self._waiting: deque[object] = deque()

    @contextmanager
    def slot(self, is_over: Callable[[], bool]) -> Iterator[bool]:
        """Wait for a slot and hold it inside; false if the caller gives up."""
        has_slot = self._acquire(is_over)
        try:
            yield has_slot
        finally:
            if has_slot:
                with self._changed:
                    self._held -= 1
                    self._changed.notify_all()

    @property
    def hold_s(self) -> float:
        """How long the holder of a slot may start further work."""
        return HOLD_S if self._is_followed() else LONG_HOLD_S

    def _acquire(self, is_over: Callable[[], bool]) -> bool:
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while self._waiting[0] is not ticket or self._held >= self._most():
                    if is_over():
                        return False
                    # With a timeout: the set of followed tables changes without a
                    # notice.
                    self._changed.wait(LOOK_S)
                self._held += 1
                return True
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _most(self) -> int:
        """Return how many slots may be held now."""
        cores = self._cores() if self._is_followed() else 0
        return min(self._connections, max(1, cores - 1)) if cores else self._connections
