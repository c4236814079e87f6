"""Ctrl-C and similar signals, which interrupt a command only where it allows that.

A command can thus first undo what it did on a server.
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

# A second signal within this time counts as the same one: `timeout`, for instance,
# sends its signal to the process and then to the process group.
SAME_S: Final = 1.0
_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Raises KeyboardInterrupt for SIGINT, SIGTERM and SIGHUP.

    Within `caught`, a first signal raises only inside `allowed`: outside, it stays
    pending until the next `allowed`. A second signal raises anywhere.
    """

    def __init__(self) -> None:
        self._is_allowed = False
        self._waits = False
        self._first_s: float | None = None  # when the first signal arrived

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals; does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread can set handlers
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
        """Let a signal interrupt this block, including a pending one."""
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
