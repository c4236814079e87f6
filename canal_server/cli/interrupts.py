"""Ctrl-C and signals like it, which end a command only where it says so.

What a command has to undo at a server is undone first. Leaves out what that is.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# Within so many seconds a second one is the same: `timeout`, for instance, sends its
# signal to the process, and then to the group.
SAME_S: Final = 1.0
_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """SIGINT, SIGTERM, and SIGHUP of a terminal that closes, as KeyboardInterrupt.

    Within `caught` it is raised inside of `allowed` alone: a signal outside of it waits
    for the next `allowed`. A second signal is raised wherever it comes.
    """

    def __init__(self) -> None:
        self._is_allowed = False
        self._waits = False
        self._first_s: float | None = None  # when the first signal came

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals, of the main thread; others are not interrupted at all."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread can set it
            return
        before = {
            number: signal.signal(number, self._on_signal)
            for number in _NUMBERS
            if signal.getsignal(number) is not signal.SIG_IGN  # as under nohup
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Let a signal end what is done in here, also one that came before."""
        self._is_allowed = True
        try:
            if self._waits:
                self._waits = False
                raise KeyboardInterrupt
            yield
        finally:
            self._is_allowed = False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._first_s is not None:
            if now_s - self._first_s >= SAME_S:
                raise KeyboardInterrupt
            return
        self._first_s = now_s
        if self._is_allowed:
            raise KeyboardInterrupt
        self._waits = True
