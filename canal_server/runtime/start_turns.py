"""Takes turns at starting: a few threads at a time do what needs the interpreter.

Each thread that waits for the interpreter's lock wakes up every few milliseconds to ask
for it. When a thousand destinations started at the same time, that was more than half
of the CPU time of the process.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AT_ONCE: Final = 4  # while one waits for its source or its disk, others continue
LONGEST_S: Final = 0.5  # a source that does not answer must not hold up the others


class StartTurns:
    """Turns that threads take in the order in which they ask for one.

    A turn that takes longer than `longest_s` no longer counts, so waiting ends whatever
    the others do.
    """

    def __init__(
        self,
        at_once: int = AT_ONCE,
        longest_s: float = LONGEST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._at_once = at_once
        self._longest_s = longest_s
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._ends_s: dict[int, float] = {}  # of turns that count, by thread

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn of this thread; it ends with the context or by `end`."""
        self._begin()
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """End the turn of this thread, if it has one."""
        with self._lock:
            if self._ends_s.pop(threading.get_ident(), None) is not None:
                self._wake_first()

    def _begin(self) -> None:
        call = threading.Event()  # set when this thread is to look again
        with self._lock:
            self._waiting.append(call)
        while True:
            with self._lock:
                is_first = self._waiting[0] is call
                left_s = self._left_s() if is_first else None
                if left_s == 0:
                    self._waiting.popleft()
                    ends_s = self._clock() + self._longest_s
                    self._ends_s[threading.get_ident()] = ends_s
                    self._wake_first()
                    return
                call.clear()
            # Only the first one looks at the clock: the others sleep until they are it.
            call.wait(left_s)

    def _left_s(self) -> float:
        """Return the time until a turn is free, 0: now."""
        now_s = self._clock()
        over = [key for key, ends_s in self._ends_s.items() if ends_s <= now_s]
        for key in over:
            del self._ends_s[key]
        if len(self._ends_s) < self._at_once:
            return 0
        return min(self._ends_s.values()) - now_s

    def _wake_first(self) -> None:
        if self._waiting:
            self._waiting[0].set()


STARTS: Final = StartTurns()  # of this process, which has one interpreter
