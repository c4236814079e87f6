"""Starting in turns: few threads at a time, in order, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from canal_server.runtime.start_turns import StartTurns

if TYPE_CHECKING:
    from collections.abc import Callable

FOR_EVER_S = 3600.0
LIMIT_S = 60.0  # of waits that end at once unless something is broken


class Threads:
    """Threads that are all joined, and whose errors a test gets."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def start(self, target: Callable[[], None]) -> threading.Thread:
        """Start a thread that is joined at the end of the test."""
        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        self._stack.callback(thread.join, LIMIT_S)
        return thread


def await_asked(turns: StartTurns, number: int) -> None:
    """Wait until so many threads have asked for a turn and have none."""
    ends_s = time.monotonic() + LIMIT_S
    while len(turns._waiting) < number:
        assert time.monotonic() < ends_s


def test_at_most_so_many_at_a_time() -> None:
    """Of 200 threads never more than three have a turn, and all get one."""
    turns, lock = StartTurns(3, FOR_EVER_S), threading.Lock()
    now, most, had = 0, 0, 0
    together = threading.Barrier(3)  # which shows that three can have one as well

    def start(meets: bool) -> None:
        nonlocal now, most, had
        with turns.turn():
            with lock:
                now, had = now + 1, had + 1
                most = max(most, now)
            if meets:
                together.wait(LIMIT_S)
            with lock:
                now -= 1

    with ExitStack() as stack:
        threads = Threads(stack)
        for _ in range(3):
            threads.start(lambda: start(meets=True))
        for _ in range(197):
            threads.start(lambda: start(meets=False))
    assert (now, most, had) == (0, 3, 200)


def test_order() -> None:
    """Threads get their turns in the order in which they asked."""
    turns, got = StartTurns(1, FOR_EVER_S), []
    with ExitStack() as stack:
        threads = Threads(stack)

        def take(number: int) -> None:
            with turns.turn():
                got.append(number)

        with turns.turn():
            for number in range(20):
                threads.start(lambda number=number: take(number))  # type: ignore[misc]
                await_asked(turns, number + 1)
    assert got == list(range(20))


def test_a_turn_that_hangs() -> None:
    """A thread that does not come back, as its source hangs, holds up nobody."""
    turns, hangs, release = StartTurns(1, 0.01), threading.Event(), threading.Event()

    def hang() -> None:
        with turns.turn():
            hangs.set()
            release.wait(LIMIT_S)

    with ExitStack() as stack:
        threads = Threads(stack)
        stack.callback(release.set)
        threads.start(hang)
        assert hangs.wait(LIMIT_S)
        done = threading.Event()

        def take() -> None:
            with turns.turn():
                done.set()

        threads.start(take)
        assert done.wait(LIMIT_S)
        release.set()


def test_ended_early() -> None:
    """A turn that is ended within its context is free, and is not ended twice."""
    turns, second = StartTurns(1, FOR_EVER_S), threading.Event()

    def take() -> None:
        with turns.turn():
            second.set()
            release.wait(LIMIT_S)

    release = threading.Event()
    with ExitStack() as stack:
        threads = Threads(stack)
        with turns.turn():
            turns.end()
            threads.start(take)
            assert second.wait(LIMIT_S)
        # The end of the context must not have ended the turn of the other thread.
        third = threads.start(take)
        await_asked(turns, 1)
        assert third.is_alive()
        assert len(turns._ends_s) == 1
        release.set()


def test_a_turn_that_fails() -> None:
    """An error ends the turn."""
    turns = StartTurns(1, FOR_EVER_S)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), turns.turn():
            _ = 1 / 0
