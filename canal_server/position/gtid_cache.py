"""The GTID sets executed at positions of the binlog, outside of GTID mode.

There, cursors have no GTID set, but a client may have to continue on another server.
The pump notes a set from time to time, at transaction boundaries; a cursor is completed
with the last set at or before its position. Events between the two are delivered again
after a change of the server, and nothing is lost. Leaves out where sets are stored
(`sidecar`), and how they are followed (`canal_server.source.begin.gtid_tracking`).
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

Completed = Callable[["LogPosition"], "LogPosition"]  # adds the executed GTID set

SESSIONS_MAX: Final = 16  # that are remembered
NOTED_MAX: Final = 512  # sets of one session; then every second one is dropped


class _Noted:
    """The sets of one session, in the binlog's order."""

    def __init__(self) -> None:
        self._sets: list[Executed] = []
        # Where the last event of each begins, and where its boundary is. Kept apart for
        # speed: thousands of cursors are looked up.
        self._events: list[tuple[int, int]] = []
        self._stops: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._sets)

    def add(self, executed: Executed) -> None:
        """Add the next one; when there are too many, drop every second one."""
        number = binlog_file_number(executed.file)
        self._sets.append(executed)
        self._events.append((number, executed.event))
        self._stops.append((number, executed.stop))
        if len(self._sets) > NOTED_MAX:
            for each in (self._sets, self._events, self._stops):
                del each[1:-1:2]

    def last_before(self, position: EntryPosition) -> Executed | None:
        """Return the last one that contains nothing after a position."""
        keys = self._stops if position.included else self._events
        count = bisect_right(keys, position.order())
        return self._sets[count - 1] if count else None


class ExecutedSets:
    """Sets of one destination; noted by the pump's thread, asked for by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        # A session is identified by the object of its identity: another server may
        # later have the same address, and files with the same names.
        self._sessions: deque[tuple[LogIdentity, _Noted]] = deque(maxlen=SESSIONS_MAX)

    def begin(self, identity: LogIdentity) -> None:
        """Begin a session: all its positions carry this very object."""
        with self._lock:
            if self._sessions and not self._sessions[-1][1]:
                self._sessions.pop()  # it has no sets
            self._sessions.append((identity, _Noted()))

    def note(self, executed: Executed) -> None:
        """Remember a set of the latest session; called in the binlog's order."""
        with self._lock:
            _, noted = self._sessions[-1]
            noted.add(executed)

    def completed(self, position: LogPosition) -> LogPosition:
        """Return a position with the set executed there, if it is known."""
        if position.executed is not None or not position.position.journal_name:
            return position
        with self._lock:
            for identity, noted in reversed(self._sessions):
                if identity is position.identity:
                    found = noted.last_before(position.position)
                    return replace(position, executed=found)
        return position


def unchanged(position: LogPosition) -> LogPosition:
    """Return a position unchanged: no sets are known."""
    return position


def is_at_or_before(executed: Executed, position: EntryPosition) -> bool:
    """Return whether a set contains nothing after a position.

    A cursor names the last event that was acked; a cursor that is `included`, the first
    one that was not.
    """
    offset = executed.stop if position.included else executed.event
    number = binlog_file_number(executed.file)
    return (number, offset) <= position.order()
