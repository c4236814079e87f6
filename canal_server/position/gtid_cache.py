"""The GTID sets that were executed at places of the binlog, outside of GTID mode.

Cursors say nothing of them then, yet another server can be read by them. The pump notes
a set now and then, at boundaries between transactions; a cursor is given the last one
at or before its place. What lies between the two comes again on another server, and
nothing is lost. Leaves out where sets are stored (`unabridged`), and how they are
followed (`canal_server.source.begin.gtid_tracking`).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.model.positions import binlog_file_number

if TYPE_CHECKING:
    from canal_server.model.positions import (
        EntryPosition,
        Executed,
        LogIdentity,
        LogPosition,
    )

Completed = Callable[["LogPosition"], "LogPosition"]  # gives one the set executed there

SESSIONS_MAX: Final = 16  # whose sets are remembered
NOTED_MAX: Final = 512  # sets of one session; then every second one goes


class _Noted:
    """The sets of one session, in the binlog's order."""

    def __init__(self) -> None:
        self._sets: list[Executed] = []
        # Where each one's last event begins, and where its boundary is: faster, since
        # thousands of cursors are looked up.
        self._events: list[tuple[int, int]] = []
        self._stops: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._sets)

    def add(self, executed: Executed) -> None:
        """Add the next one; when there are very many, every second one goes."""
        number = binlog_file_number(executed.file)
        self._sets.append(executed)
        self._events.append((number, executed.event))
        self._stops.append((number, executed.stop))
        if len(self._sets) > NOTED_MAX:
            for each in (self._sets, self._events, self._stops):
                del each[1:-1:2]

    def last_before(self, position: EntryPosition) -> Executed | None:
        """Return the last one that has nothing of what lies behind a position."""
        keys = self._stops if position.included else self._events
        count = bisect_right(keys, position.order())
        return self._sets[count - 1] if count else None


class ExecutedSets:
    """Sets of one destination; noted by the pump's thread, asked for by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        # A session is told by its identity's object: another server may come to have
        # the same address, and files of the same names.
        self._sessions: deque[tuple[LogIdentity, _Noted]] = deque(maxlen=SESSIONS_MAX)

    def begin(self, identity: LogIdentity) -> None:
        """Begin a session: all its positions carry this very object."""
        with self._lock:
            if self._sessions and not self._sessions[-1][1]:
                self._sessions.pop()  # it came to nothing
            self._sessions.append((identity, _Noted()))

    def note(self, executed: Executed) -> None:
        """Remember a set of the session that was begun last; in the binlog's order."""
        with self._lock:
            _, noted = self._sessions[-1]
            noted.add(executed)

    def completed(self, position: LogPosition) -> LogPosition:
        """Return a position with the set executed there, as far as it is known."""
        if position.executed is not None or not position.position.journal_name:
            return position
        with self._lock:
            for identity, noted in reversed(self._sessions):
                if identity is position.identity:
                    found = noted.last_before(position.position)
                    return replace(position, executed=found)
        return position


def unchanged(position: LogPosition) -> LogPosition:
    """Return a position as it is: no sets are known."""
    return position


def is_at_or_before(executed: Executed, position: EntryPosition) -> bool:
    """Tell whether a set has nothing that lies behind a position.

    A cursor names the last event that was acknowledged; one that is `included`, the
    first that was not.
    """
    offset = executed.stop if position.included else executed.event
    number = binlog_file_number(executed.file)
    return (number, offset) <= position.order()
