"""Writes changes: within a period, at once, and before the end; a few threads for all.

Leaves out what is written, and where.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from canal_server.errors import CanalError, MetaStoreError
from canal_server.messages import position_messages
from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 5.0  # half of the time in which the process shuts down
RETRY_S: Final = 1.0  # after a failure, where nothing is written periodically
THREADS: Final = 4  # more only while these wait for a storage
WAIT_S: Final = 0.5  # of a due write, before another thread is started for it
URGENT_S: Final = 0.05  # the same, if somebody waits for the write
IDLE_S: Final = 10.0  # after which a thread ends


class Flusher:
    """Calls `flush`, which itself remembers what it could not write.

    With a period of 0, every change is written at once. A failure is logged once,
    until a flush succeeds again. It costs nothing while nothing changes: the threads
    are shared by all flushers of the process, and none waits for another one's storage.
    """

    def __init__(
        self,
        flush: Callable[[], None],
        *,
        what: str,  # what is written, for the log
        period_s: float,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self._flush = flush
        self._what = what
        self._period_s = period_s
        self._stop_timeout_s = stop_timeout_s
        self._has_failed = False
        self._has_ended = threading.Event()
        # Guarded by the lock of `_threads`.
        self._is_started = self._is_running = False
        self.is_urgent = False  # it is stopping
        self.due_at_s: float | None = None  # on the monotonic clock; None: not due

    def start(self) -> None:
        """Write changes from now on, also those of before."""
        with _threads.lock:
            self._is_started = True
            self._schedule(self._period_s)

    def changed(self, *, urgent: bool) -> None:
        """Announce a change, to be written at once or within a period."""
        at_once = urgent or not self._period_s
        if not at_once and self.due_at_s is not None and _threads.watches:
            return  # without the lock: each ack of a client is a change
        with _threads.lock:
            if self._is_started and not self.is_urgent:
                # After a failure nothing is urgent: the retry comes.
                retry_s = self._period_s or RETRY_S
                is_now = at_once and not self._has_failed
                self._schedule(0.0 if is_now else retry_s)

    def stop(self, silence: str, effect: str = "") -> None:
        """Write what is left, and end; may be called again.

        Raises MetaStoreError when that takes too long, else what `flush` raises:
        `silence` names the cause, `effect` the consequence.
        """
        with _threads.lock:
            if self._is_started and not self.is_urgent:
                self.is_urgent = True
                self._schedule(0.0)
            if not (_threads.watches or self._is_running):
                self._has_ended.set()  # without threads, what is left is written here
        if self._is_started and not self._has_ended.wait(self._stop_timeout_s):
            raise MetaStoreError(
                f"cannot write the {self._what}: {silence} for"
                f" {self._stop_timeout_s:g} s{effect}"
            )
        self._flush()

    def _schedule(self, seconds: float) -> None:
        at_s = time.monotonic() + seconds
        if self.due_at_s is None or at_s < self.due_at_s:
            self.due_at_s = at_s
            if not self._is_running:
                _threads.put(self, at_s)
        _threads.watch()

    # --- for the threads --------------------------------------------------------------

    def begin(self) -> None:
        """Note, with the lock, that a thread will call `run`."""
        self.due_at_s = None  # before the content is read: later changes are due again
        self._is_running = True

    def end(self) -> None:
        """Note, with the lock, that `run` has returned."""
        self._is_running = False
        if self.due_at_s is not None:
            _threads.put(self, self.due_at_s)
            _threads.watch()
        elif self.is_urgent:
            self._has_ended.set()
        elif self._has_failed:
            self._schedule(self._period_s or RETRY_S)

    def run(self) -> None:
        """Write, without the lock; a failure is logged."""
        failed = False
        try:
            self._flush()
        except Exception as error:  # noqa: BLE001  # the outermost frame
            # Log once, not in every period; `stop` tries again and raises the last
            # failure.
            if not self._has_failed and not self.is_urgent:
                position_messages.WRITES_FAIL.log(
                    logger,
                    self._what,
                    error,
                    exc_info=not isinstance(error, CanalError),
                )
            failed = True
        else:
            if self._has_failed:
                position_messages.WRITES_RESUMED.log(logger, self._what)
        self._has_failed = failed


class _Threads:
    """A thread that knows what is due when, and others that write.

    There are as many of the latter as block at a time: a storage that hangs must not
    keep others from being written. All end when they have nothing to do.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # guards all flushers too
        self._due_changed = threading.Condition(self.lock)
        self._has_work = threading.Condition(self.lock)
        self._waiting: list[tuple[float, int, Flusher]] = []  # a heap, by time
        self._numbers = itertools.count()
        self._ready: deque[tuple[float, Flusher]] = deque()  # since when, and which
        self._writers = self._free = 0
        self.watches = False  # there is a thread that knows what is due when

    def put(self, flusher: Flusher, at_s: float) -> None:
        """Have a flusher run at a time; the caller has the lock, and calls `watch`."""
        heapq.heappush(self._waiting, (at_s, next(self._numbers), flusher))
        if self._waiting[0][2] is flusher:
            self._due_changed.notify()

    def watch(self) -> None:
        """Have somebody know what is due when; the caller holds the lock."""
        if self.watches:
            return
        thread = threading.Thread(target=self._watch, name="flush due", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be had now: the next change tries again
            return
        self.watches = True

    def _watch(self) -> None:
        """Hand out what is due, to threads of which there are enough."""
        with self.lock:
            deadline = Deadline(IDLE_S)
            while True:
                now_s = time.monotonic()
                self._hand_out(now_s)
                self._start_writers(now_s)
                if self._ready and not self._writers:
                    self._run_next()  # late rather than never: no thread can be had
                    continue
                if self._waiting or self._ready:
                    deadline = Deadline(IDLE_S)
                elif deadline.passed():
                    break
                next_s = self._waiting[0][0] - now_s if self._waiting else IDLE_S
                patience_s = min(
                    (patience(each) for _, each in self._ready), default=IDLE_S
                )
                self._due_changed.wait(min(next_s, patience_s))
            self.watches = False

    def _hand_out(self, now_s: float) -> None:
        while self._waiting:
            at_s, _, flusher = self._waiting[0]
            is_current = flusher.due_at_s == at_s  # else it was put for an earlier time
            if is_current and at_s > now_s:
                break
            heapq.heappop(self._waiting)
            if is_current:
                flusher.begin()
                self._ready.append((now_s, flusher))
                self._has_work.notify()

    def _start_writers(self, now_s: float) -> None:
        pressing = sum(
            now_s - since_s >= patience(flusher) for since_s, flusher in self._ready
        )
        allowed = max(THREADS - self._writers, pressing)
        for _ in range(min(len(self._ready) - self._free, allowed)):
            try:
                threading.Thread(target=self._write, name="flush", daemon=True).start()
            except RuntimeError:  # no thread can be had now
                return
            self._writers += 1
            self._free += 1

    def _write(self) -> None:
        """Run flushers until none was ready for a while."""
        with self.lock, self._counted():
            while True:
                idle_s = IDLE_S if self._writers <= THREADS else 0.0
                is_notified = bool(self._ready) or self._has_work.wait(idle_s)
                if not self._ready:
                    if is_notified:
                        continue  # another thread was faster
                    break
                self._free -= 1
                try:
                    self._run_next()
                finally:
                    self._free += 1

    def _run_next(self) -> None:
        """Run what has been ready for longest, without the lock meanwhile."""
        _, flusher = self._ready.popleft()
        self.lock.release()
        try:
            flusher.run()
        finally:
            self.lock.acquire()
            flusher.end()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the thread as one of those that write, until it ends."""
        try:
            yield
        finally:
            self._free -= 1
            self._writers -= 1


def patience(flusher: Flusher) -> float:
    """Return for how long a due flusher waits for one of the threads there are."""
    return URGENT_S if flusher.is_urgent else WAIT_S


_threads = _Threads()
