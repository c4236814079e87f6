"""Statements that the pump has not read yet, before positions at which ranges start.

While the pump is held up, the table history ends at its position. What lies between
that and a range is scanned once, and cached until the pump has passed it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.model.positions import EntryPosition

    Scan = Callable[[EntryPosition, EntryPosition], list[DdlStatement]]

EVENTS_MAX: Final = 10_000  # in the cache


class UnreadStatements:
    """What was found in one gapless part of a binlog; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held while one thread reads for all
        self._segment: object = None
        self._start: EntryPosition | None = None
        self._stop: EntryPosition | None = None
        self._events: list[DdlStatement] = []

    def between(
        self, segment: object, start: EntryPosition, stop: EntryPosition, scan: Scan
    ) -> list[DdlStatement]:
        """Return the statements from one event on up to a position; raises as `scan`.

        `segment` identifies the binlog of the positions.
        """
        with self._lock:
            if not self._extends(segment, start):
                self._begin(segment, start)
            assert self._stop is not None  # set together with the start
            if stop.order() > self._stop.order():
                self._events += scan(self._stop, stop)
                self._stop = stop
            self._start = start
            self._events = [
                each for each in self._events if each.position.order() >= start.order()
            ]
            found = [
                each for each in self._events if each.position.order() < stop.order()
            ]
            if len(self._events) > EVENTS_MAX:
                self._begin(segment, start)
        return found

    def _extends(self, segment: object, start: EntryPosition) -> bool:
        if segment != self._segment or self._start is None or self._stop is None:
            return False
        return self._start.order() <= start.order() <= self._stop.order()

    def _begin(self, segment: object, start: EntryPosition) -> None:
        assert self._lock.locked()
        self._segment, self._start, self._stop = segment, start, start
        self._events = []
