"""The newest part of a stream, kept for who reads ranges of it.

The pump's spans are held as they are, up to a limit in bytes, the oldest go first;
nothing waits for anybody. A *place* is a binlog file's number and an offset.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from canal_server.store.wakeup import PEER_CLOSED, WakeUp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.model.positions import EntryPosition
    from canal_server.ports import Span

    Place = tuple[int, int]

ORDINAL_MAX: Final = 2**32 - 1
SPAN_BYTES: Final = 200  # what a span takes beside its records, about


class Tail:
    """Spans of one binlog in order; `note`, `idle` and `reset` are the pump's.

    It holds all records behind a boundary `_begin` (exclusive: the place where the
    event of that boundary begins), None as long as none is known.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._is_on = False
        self._spans: list[Span] = []
        self._places: list[Place] = []  # where each span's first event begins
        self._bytes = 0
        self._begin: Place | None = None
        self._end: Place | None = None  # behind the last boundary
        self._end_file = ""
        self._end_s = 0  # its time
        self._is_idle = False  # the source had nothing more at hand
        self._told_end: EntryPosition | None = None  # with that
        self.server = ""  # whose binlog it is
        self.changes = 0  # counts what waiters wait for
        self.resets = 0
        self._waiters: list[WakeUp] = []

    def turn_on(self, *, on: bool) -> None:
        """Begin to keep what comes, or stop and forget."""
        with self._lock:
            if on != self._is_on:
                self._is_on = on
                self._clear(None)

    # --- the pump's thread ------------------------------------------------------------

    def note(self, spans: Sequence[Span]) -> None:
        """Keep spans, the next ones of the binlog."""
        if not self._is_on:  # read without the lock: ordinary clients pay nothing
            return
        with self._lock:
            if not self.is_on:  # it was turned off just now
                return
            for span in spans:
                self._add(span)
            while self._bytes > self._bytes_max and self._spans:
                self._drop()
            self._is_idle = False
            self._tell()

    def busy(self) -> None:
        """Take note that there is more, which is kept once there is room for it."""
        if self._is_idle:
            with self._lock:
                self._is_idle = False
                self._tell()  # else who waits would not notice when there is no room

    def idle(self, end: EntryPosition | None = None) -> None:
        """Take note that the source has nothing more at hand.

        Up to `end` all was noted, which may be behind the last boundary.
        """
        if not self._is_on or (self._is_idle and end == self._told_end):
            return
        with self._lock:
            if not self.is_on:  # it was turned off just now
                return
            self._told_end = end
            if end is not None and end.journal_name:
                self._move_to(end)
            self._is_idle = True
            self._tell()

    def _move_to(self, end: EntryPosition) -> None:
        assert self._lock.locked()
        place = end.order()
        if self._end is not None and place <= self._end:
            return
        self._end, self._end_file = place, end.journal_name or ""
        self._end_s = max(self._end_s, (end.timestamp or 0) // 1000)
        if self._begin is None and not self._spans:
            self._begin = place[0], place[1] - 1

    def reset(self, begin: Place | None, server: str = "") -> None:
        """Forget everything: what comes begins behind a place, if that is known.

        It is of the binlog of `server`.
        """
        with self._lock:
            self.resets += 1
            self.server = server
            self._clear(begin)
            self._tell()

    def _clear(self, begin: Place | None) -> None:
        assert self._lock.locked()
        self._spans, self._places = [], []
        self._bytes = 0
        self._begin, self._end = begin, None
        self._is_idle, self._told_end = False, None

    def _add(self, span: Span) -> None:
        assert self._lock.locked()
        block, first, stop = span
        index = block.last_boundary(first, stop)
        if index >= 0:
            record = block.record(index)
            self._end = block.file_number, record["offset"] + record["event_length"]
            self._end_file, self._end_s = block.file, record["time"]
            if self._begin is None:
                early = block.record(block.first_boundary(first, stop))
                self._begin = block.file_number, early["offset"]
        self._bytes += block.size_of(first, stop)
        if self._spans:
            last, begin, end = self._spans[-1]
            if last is block and end == first:
                self._spans[-1] = block, begin, stop
                return
        self._bytes += SPAN_BYTES
        self._spans.append(span)
        self._places.append((block.file_number, block.record(first)["offset"]))

    def _drop(self) -> None:
        """Let go of the oldest span."""
        assert self._lock.locked()
        block, first, stop = self._spans.pop(0)
        self._places.pop(0)
        self._bytes -= block.size_of(first, stop) + SPAN_BYTES
        if block.last_boundary(stop - 1, stop) >= 0:
            self._begin = block.file_number, block.record(stop - 1)["offset"]
        else:  # inside of a transaction
            self._begin_at_next_boundary()

    def _begin_at_next_boundary(self) -> None:
        assert self._lock.locked()
        self._begin = None
        for block, first, stop in self._spans:
            index = block.first_boundary(first, stop)
            if index >= 0:
                self._begin = block.file_number, block.record(index)["offset"]
                return

    # --- threads of connections -------------------------------------------------------

    def spans_from(self, start: Place, end: Place | None = None) -> list[Span] | None:
        """Return the spans from a boundary on, None unless all of them are held.

        Up to `end`, a place behind an event, if one is given.
        """
        with self._lock:
            if self._begin is None or start <= self._begin:
                return None
            reached = self._end or (0, 0)
            if start > reached or (end is not None and end > reached):
                # It may be that nothing came behind the boundary that it begins with.
                is_empty = self._end is None and end is None and self._is_idle
                return [] if is_empty else None
            first = max(bisect_right(self._places, start) - 1, 0)
            return self._spans[first:]

    def latest(self) -> tuple[str, int, int] | None:
        """Return the file, the offset and the time (s) of the last boundary."""
        with self._lock:
            if self._end is None:
                return None
            return self._end_file, self._end[1], self._end_s

    def gtids_at(self, place: Place) -> str | None:
        """Return the set that the entry of a boundary tells; None if it is not held."""
        with self._lock:
            at = bisect_right(self._places, place) - 1
            if at < 0:
                return None
            span = self._spans[at]
        return gtids_in(span, place)

    def held_bytes(self) -> int:
        """Return the bytes of what is kept."""
        return self._bytes

    @property
    def is_on(self) -> bool:
        """Whether anything is kept."""
        return self._is_on

    @property
    def is_idle(self) -> bool:
        """Whether all that the source has is in here."""
        return self._is_idle

    def wait(self, seen: int, timeout_s: float, peer_fd: int | None) -> bool:
        """Wait for another count of `changes`; false when the peer closed."""
        with WakeUp(peer_fd, PEER_CLOSED) as waiter:
            with self._lock:
                if self.changes != seen:
                    return True
                self._waiters.append(waiter)
            try:
                return not waiter.sleep(timeout_s)
            finally:
                with self._lock:
                    self._waiters.remove(waiter)

    def wake(self) -> None:
        """End all waits: the destination stops."""
        with self._lock:
            self._tell()

    def _tell(self) -> None:
        assert self._lock.locked()
        self.changes += 1
        for waiter in self._waiters:
            waiter.wake()


def gtids_in(span: Span, place: Place) -> str | None:
    """Return the set that the entry of a boundary tells; None if it is not in there."""
    block, first, stop = span
    if block.file_number != place[0]:
        return None
    before = block.first_after(first, stop, place[1] - 1, ORDINAL_MAX)
    index = block.last_boundary(first, before)
    if index < 0:
        return None
    record = block.record(index)
    if record["offset"] + record["event_length"] != place[1]:
        return None
    return block.position(index)[4]
