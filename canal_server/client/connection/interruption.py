"""Ends a wait for the network early: what wakes the thread, and whether it gives up."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from canal_server.runtime.lifecycle import Deadline

_WAKE_BYTES: Final = 4096


class Waker:
    """Wakes a thread that waits, from any other thread or from a signal handler."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def wake(self) -> None:
        """Make `fileno` readable."""
        try:
            os.write(self._write_fd, b"\0")
        except BlockingIOError:
            return  # it is readable

    def clear(self) -> None:
        """Make `fileno` unreadable."""
        try:
            os.read(self._read_fd, _WAKE_BYTES)
        except BlockingIOError:
            return  # another reader was first

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""
        return self._read_fd

    def __del__(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)


def never() -> bool:
    """Do not give up."""
    return False


class Interrupt:
    """A waker, and whether who is woken gives up or continues to wait."""

    def __init__(self, waker: Waker, gives_up: Callable[[], bool]) -> None:
        self._waker = waker
        self._gives_up = gives_up

    def wait(self, sock: socket.socket, events: int, deadline: Deadline) -> None:
        """Wait until events of poll happen at a socket.

        Raises InterruptedError when given up, TimeoutError after the deadline.
        """
        poll = select.poll()
        poll.register(sock, events)
        poll.register(self._waker, select.POLLIN)
        while True:
            left_s = deadline.remaining_s()
            ready = poll.poll(None if left_s is None else left_s * 1000)
            if not ready:
                raise TimeoutError("timed out")
            if any(fd == sock.fileno() for fd, _ in ready):
                return
            self._waker.clear()
            raise_if(self._gives_up)


def raise_if(gives_up: Callable[[], bool]) -> None:
    """Raise InterruptedError when given up."""
    if gives_up():
        raise InterruptedError("the client was stopped")
