"""Turns of the servers that are read: each ends by a stop, or for another server's.

Who ends one is in another thread than who reads. What the reading may wait on then, a
connection or a pause, is cut short.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.dump_connection import DumpStream
    from canal_server.source.begin.source_servers import Source


class SourceSwitch:
    """Whose turn it is to be read, for any thread."""

    def __init__(self) -> None:
        self.stop = Stop()
        # Ends a session, and the wait between two: a stop, or another server.
        self.current = Stop()
        # The connections of the session, which its thread sets.
        self.control: ControlConnection | None = None
        self.stream: DumpStream | None = None
        self._lock = threading.Lock()  # guards the turn and what comes next
        self._next: Source | None = None

    def request_stop(self) -> None:
        """Have no turn any more."""
        self.stop.request()
        self.end()

    def end(self, source: Source | None = None) -> None:
        """End the session, and cut its connections; another server may be wished."""
        with self._lock:
            self._next = source or self._next
            self.current.request()
            # Those of the next session are none of ours.
            stream, control = self.stream, self.control
        if stream is not None:
            stream.close()
        if control is not None:
            control.abort()

    def begin(self, turn_to: Callable[[Source], None]) -> bool:
        """Begin the turn of the server that is wished; false where none is.

        A stop that comes meanwhile ends the old turn or the new one, whichever it
        finds: both end the session.
        """
        with self._lock:
            chosen, self._next = self._next, None
            if chosen is None or self.stop.requested():
                return False
            # Whoever wishes from here on finds this turn, and a lock before it.
            self.current = Stop()
            turn_to(chosen)
            return True
