"""Deadlines, and the request to stop that threads wait on."""

from __future__ import annotations

import select

from fix_store import PATIENCE_S, in_thread

from canal_server.runtime.lifecycle import Deadline, Stop


def readable(stop: Stop) -> bool:
    """Return whether the stop's descriptor wakes a poll."""
    poll = select.poll()
    poll.register(stop, select.POLLIN)
    return bool(poll.poll(0))


def test_a_deadline_without_limit() -> None:
    """It never passes."""
    deadline = Deadline(None)
    assert deadline.remaining_s() is None
    assert not deadline.passed()


def test_a_deadline_to_come() -> None:
    """The remaining time never grows, and is never more than at first."""
    deadline = Deadline(1000.0)
    first, second = deadline.remaining_s(), deadline.remaining_s()
    assert first is not None
    assert second is not None
    assert 0 < second <= first <= 1000
    assert not deadline.passed()


def test_a_deadline_in_the_past() -> None:
    """Nothing remains then, not less."""
    for seconds in (0.0, -5.0):
        deadline = Deadline(seconds)
        assert deadline.remaining_s() == 0
        assert deadline.passed()


def test_a_stop_that_is_not_requested() -> None:
    """Waiting ends with the time, and polls are not woken."""
    stop = Stop()
    assert not stop.requested()
    assert not stop.wait(0)
    assert not readable(stop)


def test_a_requested_stop() -> None:
    """It stays so for all threads, however often it was requested."""
    stop = Stop()
    for _ in range(3):
        stop.request()
    for _ in range(2):
        assert stop.requested()
        assert stop.wait(None)
        assert readable(stop)


def test_a_stop_wakes_those_that_wait() -> None:
    """A thread that waits without limit and one that polls both end."""
    stop = Stop()
    poll = select.poll()
    poll.register(stop, select.POLLIN)
    waiting = in_thread(stop.wait, None)
    polling = in_thread(poll.poll)
    stop.request()
    assert waiting.result(PATIENCE_S)
    assert polling.result(PATIENCE_S)
