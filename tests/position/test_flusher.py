"""The thread that writes what changed."""

from __future__ import annotations

import contextlib
import logging
import threading

import pytest
from fix_store import PATIENCE_S, eventually

from canal_server.errors import MetaStoreError
from canal_server.position.flusher import THREADS, Flusher

FAR_S = 3600.0


class Flush:
    """A function that counts its calls, and fails or hangs on demand."""

    def __init__(self):
        self.count = 0
        self.error = None
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self):
        """Count."""
        self.may_end.wait(PATIENCE_S)
        self.count += 1
        if self.error is not None:
            raise self.error


def flusher(flush, period_s=FAR_S, **options):
    """Return a started flusher."""
    made = Flusher(flush, what="ink", period_s=period_s, **options)
    made.start()
    return made


def test_urgent_changes_do_not_wait():
    """An urgent change is written at once, another one when the thread ends."""
    flush = Flush()
    writes = flusher(flush)
    writes.changed(urgent=False)
    writes.changed(urgent=True)
    eventually(lambda: flush.count == 1)
    writes.changed(urgent=False)
    assert flush.count == 1
    writes.stop("silence")
    assert flush.count == 3  # by the thread, and again by `stop`


def test_without_a_period_all_is_urgent():
    """With a period of 0 every change is written at once."""
    flush = Flush()
    writes = flusher(flush, period_s=0.0)
    writes.changed(urgent=False)
    eventually(lambda: flush.count == 1)
    writes.changed(urgent=False)
    eventually(lambda: flush.count == 2)
    writes.stop("silence")


def test_a_change_is_written_within_a_period():
    """Changes that can wait are written together, and nothing while there is none."""
    flush = Flush()
    writes = flusher(flush, period_s=0.001)
    eventually(lambda: flush.count == 1)  # what was there at the start
    for number in range(2, 5):
        writes.changed(urgent=False)
        eventually(lambda: flush.count == number)  # noqa: B023  # used at once
    writes.stop("silence")
    assert flush.count == 6  # nothing came by itself


def test_a_storage_that_hangs_keeps_no_other_waiting():
    """Others are written, and end, while more storages hang than threads are kept."""
    hanging = [Flush() for _ in range(2 * THREADS)]
    for each in hanging:
        each.may_end.clear()
    slow = [flusher(each, period_s=0.0) for each in hanging]
    other = Flush()
    writes = flusher(other, period_s=0.0)
    writes.changed(urgent=True)
    eventually(lambda: other.count > 0)
    writes.stop("silence")
    for each in hanging:
        each.may_end.set()
    for each in slow:
        each.stop("silence")


def test_threads_wait_for_what_is_due_late(monkeypatch):
    """A period may be longer than threads that have nothing to do are kept."""
    monkeypatch.setattr("canal_server.position.flusher.IDLE_S", 0.01)
    flush = Flush()
    writes = flusher(flush, period_s=0.2)
    eventually(lambda: flush.count == 1)
    writes.changed(urgent=False)
    eventually(lambda: flush.count == 2)
    writes.stop("silence")


@pytest.fixture
def _quickly_idle(monkeypatch):
    """Have threads end soon, also those that wait since an earlier test."""
    monkeypatch.setattr("canal_server.position.flusher.IDLE_S", 0.01)
    flusher(Flush(), period_s=0.0).stop("silence")
    eventually(lambda: flush_threads() == 0)


@contextlib.contextmanager
def no_threads():
    """Let no further thread start meanwhile."""
    size = threading.stack_size(1 << 46)  # more than there are addresses
    try:
        yield
    finally:
        threading.stack_size(size)


@pytest.mark.usefixtures("_quickly_idle")
def test_changes_while_no_thread_can_be_had():
    """They raise nothing, and are written when a thread can be had, or at the end."""
    flush, other = Flush(), Flush()
    with no_threads():
        writes, ending = flusher(flush, period_s=0.001), flusher(other)
        writes.changed(urgent=True)
        writes.changed(urgent=False)
        ending.stop("silence")
        assert (flush.count, other.count) == (0, 1)
    writes.changed(urgent=False)
    eventually(lambda: flush.count > 0)
    writes.stop("silence")


@pytest.mark.usefixtures("_quickly_idle")
def test_changes_while_no_further_thread_can_be_had():
    """The only thread that there is, which knows what is due, writes them itself."""
    flush = Flush()
    far = flusher(Flush())  # for which it stays
    with no_threads():
        writes = flusher(flush, period_s=0.001)
        eventually(lambda: flush.count == 1)
        writes.changed(urgent=True)
        eventually(lambda: flush.count == 2)
        assert flush_threads() == 1
        writes.stop("silence")
    far.stop("silence")


def flush_threads() -> int:
    """Return how many threads write, or know when to."""
    names = [thread.name for thread in threading.enumerate()]
    return sum(name.startswith("flush") for name in names)


def test_threads_do_not_grow_with_the_flushers():
    """A hundred have a few threads, and all that changes is written."""
    flushes = [Flush() for _ in range(100)]
    many = [flusher(each, period_s=0.001) for each in flushes]
    eventually(lambda: all(each.count for each in flushes))
    eventually(lambda: flush_threads() <= THREADS + 1)  # an earlier test had more
    for each in many:
        each.changed(urgent=True)
        each.stop("silence")
    assert all(each.count > 1 for each in flushes)


@pytest.mark.parametrize(
    ("error", "trace"), [(MetaStoreError("full"), False), (KeyError("bug"), True)]
)
def test_failures_are_reported_once(caplog, error, trace):
    """A failure is logged once, with a traceback if it is a bug; so is its end."""
    caplog.set_level(logging.INFO)
    flush = Flush()
    flush.error = error
    writes = flusher(flush, period_s=0.001)
    eventually(lambda: flush.count > 3)
    flush.error = None
    eventually(lambda: "resumed writing the ink" in caplog.text)
    writes.stop("silence")
    assert caplog.text.count("cannot write the ink, retrying") == 1
    assert ("Traceback" in caplog.text) is trace


def test_the_last_failure_is_raised():
    """`stop` raises what could not be written."""
    flush = Flush()
    flush.error = MetaStoreError("full")
    with pytest.raises(MetaStoreError, match="full"):
        flusher(flush).stop("silence")


def test_hanging():
    """A flush that does not end makes `stop` raise, with the cause."""
    flush = Flush()
    flush.may_end.clear()
    writes = flusher(flush, stop_timeout_s=0.01)
    with pytest.raises(
        MetaStoreError, match=r"^cannot write the ink: the pen hangs for 0.01 s; alas$"
    ):
        writes.stop("the pen hangs", "; alas")
    flush.may_end.set()
    writes.stop("the pen hangs")
