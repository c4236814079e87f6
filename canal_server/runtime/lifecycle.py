"""Starting and stopping: the verbs of a stage, deadlines, and a stop to wait on."""

from __future__ import annotations

import os
import threading
import time
from typing import Protocol


class Stage(Protocol):
    """A part of the process that runs until it is asked to stop.

    The owner calls `start`, then `request_stop` on all its stages, then `join` on
    each, in reverse order of start.
    """

    def start(self) -> None:
        """Start; returns when the stage works, or raises."""

    def request_stop(self) -> None:
        """Ask to stop; returns at once, may be called again and from any thread."""

    def join(self, deadline: Deadline) -> bool:
        """Wait until stopped; false when the deadline passed first."""


class Deadline:
    """A moment on the monotonic clock after which waiting is over."""

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    def remaining_s(self) -> float | None:
        """Return the seconds left, never negative; None when there is no limit."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    def passed(self) -> bool:
        """Return whether the deadline has passed."""
        return self._at is not None and time.monotonic() >= self._at


class Stop:
    """A request to stop that threads wait on, alone or together with sockets.

    `fileno` becomes and stays readable when the request is made, so that a thread that
    polls sockets adds it to its poll and needs no time-out.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._fds: dict[str, int] = {}  # the one below "fd", once somebody polls it

    def request(self) -> None:
        """Ask to stop; idempotent, from any thread, also in a signal's handler."""
        if not self._event.is_set():
            self._event.set()
            if self._fds:
                os.eventfd_write(self._fds["fd"], 1)

    def requested(self) -> bool:
        """Return whether a stop was requested."""
        return self._event.is_set()

    def wait(self, seconds: float | None) -> bool:
        """Wait until a stop is requested or the time-out; true when requested."""
        return self._event.wait(seconds)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with the request."""
        if not self._fds:
            # No lock, which a signal's handler could wait for: the first one counts.
            made = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            if self._fds.setdefault("fd", made) != made:
                os.close(made)
            if self._event.is_set():  # perhaps before there was a descriptor
                os.eventfd_write(self._fds["fd"], 1)
        return self._fds["fd"]

    def __del__(self) -> None:
        for descriptor in self._fds.values():
            os.close(descriptor)
