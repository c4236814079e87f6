"""Sleeping until another thread wakes one up, or another descriptor reports."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

READABLE = select.POLLIN
# What a socket reports once its peer closed, or closed its sending half.
PEER_CLOSED = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class WakeUp:
    """An eventfd that one thread polls, if need be beside one other descriptor.

    Used as a context manager by the thread that sleeps; others call `wake`, and must
    know that it is still open (the store wakes under its lock).
    """

    def __init__(self, other: int | None, events: int) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._woken = False  # faster: one system call for many wakes
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        if other is not None:
            self._poll.register(other, events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def wake(self) -> None:
        """End the sleep, or the next one if none is under way."""
        if not self._woken:
            self._woken = True
            os.eventfd_write(self._fd, 1)

    def sleep(self, seconds: float | None) -> bool:
        """Sleep until woken or the time is up; true when the other one reported."""
        reported = False
        for fd, _ in self._poll.poll(None if seconds is None else seconds * 1000):
            if fd == self._fd:
                # Cleared before the caller looks at what changed: a wake that comes
                # after this line ends the next sleep.
                os.eventfd_read(self._fd)
                self._woken = False
            else:
                reported = True
        return reported
