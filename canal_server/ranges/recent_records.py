"""The newest part of a stream, kept in memory for range readers.

The pump's spans are held unchanged, up to a limit in bytes; the oldest are dropped
first, and nothing ever waits. A `FileOffset` is a binlog file's number and an offset.
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

    FileOffset = tuple[int, int]

ORDINAL_MAX: Final = 2**32 - 1
SPAN_BYTES: Final = 200  # approximate memory of a span without its records


class Tail:
    """Spans of one binlog in order; `note`, `idle` and `reset` are the pump's.

    It holds all records after a boundary `_begin` (exclusive: the offset where the
    event of that boundary begins), None as long as none is known.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._is_on = False
        self._spans: list[Span] = []
        self._offsets: list[FileOffset] = []  # where each span's first event begins
        self._bytes = 0
        self._begin: FileOffset | None = None
        self._end: FileOffset | None = None  # after the last boundary
        self._end_file = ""
        self._end_s = 0  # its time
        self._is_idle = False  # the source had nothing to read
        self._idle_end: EntryPosition | None = None  # end of the binlog at that moment
        self.server = ""  # whose binlog it is
        self.changes = 0  # incremented for waiters
        self.resets = 0
        self._waiters: list[WakeUp] = []

    def enable(self, *, on: bool) -> None:
        """Start to record, or stop and clear the tail."""
        with self._lock:
            if on != self._is_on:
                self._is_on = on
                self._clear(None)

    # --- the pump's thread ------------------------------------------------------------

    def note(self, spans: Sequence[Span]) -> None:
        """Store spans, the next ones of the binlog."""
        if not self._is_on:  # read without the lock: no cost for ordinary clients
            return
        with self._lock:
            if not self.is_on:  # turned off meanwhile
                return
            for span in spans:
                self._add(span)
            while self._bytes > self._bytes_max and self._spans:
                self._drop()
            self._is_idle = False
            self._notify()

    def busy(self) -> None:
        """Record that there is more, which is stored once there is room for it."""
        if self._is_idle:
            with self._lock:
                self._is_idle = False
                self._notify()  # else waiters would not learn about the lack of room

    def idle(self, end: EntryPosition | None = None) -> None:
        """Record that the source has nothing to read.

        Everything up to `end` was recorded, which may be after the last boundary.
        """
        if not self._is_on or (self._is_idle and end == self._idle_end):
            return
        with self._lock:
            if not self.is_on:  # turned off meanwhile
                return
            self._idle_end = end
            if end is not None and end.journal_name:
                self._move_to(end)
            self._is_idle = True
            self._notify()

    def _move_to(self, end: EntryPosition) -> None:
        assert self._lock.locked()
        position = end.order()
        if self._end is not None and position <= self._end:
            return
        self._end, self._end_file = position, end.journal_name or ""
        self._end_s = max(self._end_s, (end.timestamp or 0) // 1000)
        if self._begin is None and not self._spans:
            self._begin = position[0], position[1] - 1

    def reset(self, begin: FileOffset | None, server: str = "") -> None:
        """Clear the tail: the next records start after a position, if that is known.

        They belong to the binlog of `server`.
        """
        with self._lock:
            self.resets += 1
            self.server = server
            self._clear(begin)
            self._notify()

    def _clear(self, begin: FileOffset | None) -> None:
        assert self._lock.locked()
        self._spans, self._offsets = [], []
        self._bytes = 0
        self._begin, self._end = begin, None
        self._is_idle, self._idle_end = False, None

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
        self._offsets.append((block.file_number, block.record(first)["offset"]))

    def _drop(self) -> None:
        """Drop the oldest span."""
        assert self._lock.locked()
        block, first, stop = self._spans.pop(0)
        self._offsets.pop(0)
        self._bytes -= block.size_of(first, stop) + SPAN_BYTES
        if block.last_boundary(stop - 1, stop) >= 0:
            self._begin = block.file_number, block.record(stop - 1)["offset"]
        else:  # inside a transaction
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

    def spans_from(
        self, start: FileOffset, end: FileOffset | None = None
    ) -> list[Span] | None:
        """Return the spans from a boundary on, None unless all of them are held.

        Up to `end`, the offset after an event, if one is given.
        """
        with self._lock:
            if self._begin is None or start <= self._begin:
                return None
            reached = self._end or (0, 0)
            if start > reached or (end is not None and end > reached):
                # Perhaps nothing followed the boundary that it starts with.
                is_empty = self._end is None and end is None and self._is_idle
                return [] if is_empty else None
            first = max(bisect_right(self._offsets, start) - 1, 0)
            return self._spans[first:]

    def latest(self) -> tuple[str, int, int] | None:
        """Return the file, the offset and the time (s) of the last boundary."""
        with self._lock:
            if self._end is None:
                return None
            return self._end_file, self._end[1], self._end_s

    def gtids_at(self, position: FileOffset) -> str | None:
        """Return the set in the entry of a boundary; None if it is not held."""
        with self._lock:
            at = bisect_right(self._offsets, position) - 1
            if at < 0:
                return None
            span = self._spans[at]
        return gtids_in(span, position)

    def held_bytes(self) -> int:
        """Return the bytes held."""
        return self._bytes

    @property
    def is_on(self) -> bool:
        """Whether records are stored."""
        return self._is_on

    @property
    def is_idle(self) -> bool:
        """Whether everything that the source has is in here."""
        return self._is_idle

    def wait(self, seen: int, timeout_s: float, peer_fd: int | None) -> bool:
        """Wait until `changes` differs from `seen`; false when the peer closed."""
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
        """End all waits: the destination is stopping."""
        with self._lock:
            self._notify()

    def _notify(self) -> None:
        assert self._lock.locked()
        self.changes += 1
        for waiter in self._waiters:
            waiter.wake()


def gtids_in(span: Span, position: FileOffset) -> str | None:
    """Return the set in the entry of a boundary; None if it is not in the span."""
    block, first, stop = span
    if block.file_number != position[0]:
        return None
    before = block.first_after(first, stop, position[1] - 1, ORDINAL_MAX)
    index = block.last_boundary(first, before)
    if index < 0:
        return None
    record = block.record(index)
    if record["offset"] + record["event_length"] != position[1]:
        return None
    return block.position(index)[4]
