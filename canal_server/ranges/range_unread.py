"""Statements that the pump has not read yet, in front of places that ranges begin at.

While the pump is held up the table history ends where it stands. What lies between that
and a place is looked through once, and remembered until the pump has passed it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.model.positions import EntryPosition

    Scan = Callable[[EntryPosition, EntryPosition], list[DdlStatement]]

EVENTS_MAX: Final = 10_000  # that are remembered


class UnreadStatements:
    """What was found in one stretch of a binlog, without a hole; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held while one thread reads for all
        self._segment: object = None
        self._start: EntryPosition | None = None
        self._stop: EntryPosition | None = None
        self._events: list[DdlStatement] = []

    def between(
        self, segment: object, start: EntryPosition, stop: EntryPosition, scan: Scan
    ) -> list[DdlStatement]:
        """Return the statements from one event on up to a place; raises as `scan`.

        `segment` tells what binlog places are of.
        """
        with self._lock:
            if not self._goes_on_from(segment, start):
                self._begin(segment, start)
            assert self._stop is not None  # set with the begin
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

    def _goes_on_from(self, segment: object, start: EntryPosition) -> bool:
        if segment != self._segment or self._start is None or self._stop is None:
            return False
        return self._start.order() <= start.order() <= self._stop.order()

    def _begin(self, segment: object, start: EntryPosition) -> None:
        assert self._lock.locked()
        self._segment, self._start, self._stop = segment, start, start
        self._events = []
