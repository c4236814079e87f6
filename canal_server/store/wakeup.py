"""Sleeps until another thread wakes the sleeper, or a descriptor reports."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

READABLE = select.POLLIN
# What a socket reports once its peer disconnected, or closed its sending half.
PEER_CLOSED = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class WakeUp:
    """An eventfd that one thread polls, optionally together with another descriptor.

    The sleeping thread uses it as a context manager. Others call `wake`, and must know
    that it is still open (the store wakes under its lock).
    """

    def __init__(self, other: int | None, events: int) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._woken = False  # for speed: one system call for many wakes
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
        """End the current sleep, or the next one."""
        if not self._woken:
            self._woken = True
            os.eventfd_write(self._fd, 1)

    def sleep(self, seconds: float | None) -> bool:
        """Sleep until woken or timed out; true when the other descriptor reported."""
        reported = False
        for fd, _ in self._poll.poll(None if seconds is None else seconds * 1000):
            if fd == self._fd:
                # Cleared before the caller checks what changed: a wake after this line
                # ends the next sleep.
                os.eventfd_read(self._fd)
                self._woken = False
            else:
                reported = True
        return reported
