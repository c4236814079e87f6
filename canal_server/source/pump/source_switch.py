"""Which server is read: a turn ends with a stop, or with a switch to another server.

Another thread than the reader's ends a turn. What the reader may be waiting for then, a
connection or a pause, is cut short.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
from typing import TYPE_CHECKING

from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.dump_connection import DumpStream
    from canal_server.source.archive.archived_dump import ArchivedDump
    from canal_server.source.begin.source_servers import Source


class SourceSwitch:
    """The turn of the server that is read; for any thread."""

    def __init__(self) -> None:
        self.stop = Stop()
        # Ends a session, and the wait between two: at a stop, and at a switch.
        self.current = Stop()
        # The connections of the session, which its thread sets.
        self.control: ControlConnection | None = None
        self.stream: DumpStream | ArchivedDump | None = None
        self._lock = threading.Lock()  # guards the turn and the next server
        self._next: Source | None = None
        # Readable when the pause that a session waits in is to end. It is made once, as
        # are those of the stops: a session may begin, or wait for room in the store,
        # when the process has no descriptors left.
        self._retry = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.stop.fileno()
        self.current.fileno()

    def __del__(self) -> None:
        os.close(self._retry)

    def request_stop(self) -> None:
        """End the turn for good."""
        self.stop.request()
        self.end()

    def end(self, source: Source | None = None) -> None:
        """End the session and cut its connections; then read `source`, if given."""
        with self._lock:
            self._next = source or self._next
            self.current.request()
            # Not those of the next session.
            stream, control = self.stream, self.control
        if stream is not None:
            stream.close()
        if control is not None:
            control.abort()

    def begin_session(self) -> None:
        """Forget earlier requests to retry: this session answers them."""
        with contextlib.suppress(BlockingIOError):  # there is none
            os.eventfd_read(self._retry)

    def pause(self, seconds: float) -> None:
        """Wait before the next session, until the turn ends or a retry is requested."""
        with self._lock:
            waits_for = self.current, self._retry
        poll = select.poll()
        for each in waits_for:
            poll.register(each, select.POLLIN)
        poll.poll(math.ceil(seconds * 1000))

    def retry(self) -> None:
        """End the pause before the next session, also one that is about to begin."""
        os.eventfd_write(self._retry, 1)

    def begin(self, turn_to: Callable[[Source], None]) -> bool:
        """Begin the turn of the server that was requested; false if none was.

        A stop in the meantime ends the old turn or the new one, whichever it finds:
        both end the session.
        """
        with self._lock:
            chosen, self._next = self._next, None
            if chosen is None or self.stop.requested():
                return False
            # Later requests find this turn: they wait for the lock.
            turn = Stop()
            turn.fileno()
            self.current = turn
            turn_to(chosen)
            return True
