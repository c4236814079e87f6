"""Readers that follow the head of a store, and for whom nothing ever waits.

A tap gets the spans that are put from now on, without a cursor: it retains nothing in
the ring, and clients do not notice it. It holds a limited number of bytes. A reader
that is too slow for them misses the oldest entries, and learns how many.

Threads: the pump calls `note`, under the store's lock; one reader calls `fetch`. Both
hold the tap's own lock for a few steps of Python. A pump that is about to note may find
a tap that was removed just now, which is closed and keeps nothing. Leaves out filters,
and what a reader makes of the entries (`canal_server.instance.change_tap`).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.core.blocks import Block
    from canal_server.ports import Span

BYTES_MAX: Final = 8 * 1024 * 1024  # that a tap holds
# A span keeps its whole block alive, however few entries it has.
BLOCK_BYTES: Final = 256 * 1024

TOO_SLOW: Final = "the reader is too slow"
TOO_LARGE: Final = f"larger than {BYTES_MAX // 1024 // 1024} MiB"


class Skipped(NamedTuple):
    """Entries that a reader does not get, and the rows in them, of all tables."""

    reason: str
    entries: int
    rows: int


class HeadTap:
    """What one reader follows.

    `on_news` is called once after a `fetch` without result, when there is something, or
    nothing more will come. It must not block.
    """

    def __init__(self, on_news: Callable[[], None], bytes_max: int = BYTES_MAX) -> None:
        self._on_news = on_news
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._spans: deque[Span] = deque()
        self._blocks: dict[Block, tuple[int, int]] = {}  # spans here, and its bytes
        self._skipped: dict[str, tuple[int, int]] = {}  # entries and rows, by reason
        self._waits = False  # the reader, for `on_news`
        self._closed = False
        self.held_bytes = 0  # read without the lock

    @property
    def closed(self) -> bool:
        """Return whether nothing more will come, except what can still be fetched."""
        return self._closed

    def note(self, spans: Sequence[Span]) -> None:
        """Keep spans, the next ones of the store; drops the oldest without room."""
        with self._lock:
            if self._closed:
                return
            for span in spans:
                self._add(span)
            self._report()

    def close(self) -> None:
        """Report that nothing more will come."""
        with self._lock:
            self._closed = True
            self._report()

    def fetch(self) -> tuple[list[Skipped], Span | None]:
        """Return what was skipped, and the span after it; none: `on_news` follows."""
        with self._lock:
            skipped = [Skipped(why, *each) for why, each in self._skipped.items()]
            self._skipped.clear()
            span = self._remove_oldest() if self._spans else None
            self._waits = not skipped and span is None
            return skipped, span

    def _add(self, span: Span) -> None:
        assert self._lock.locked()
        block, first, stop = span
        if block.size_of(first, stop) > self._bytes_max:
            self._skip(span, TOO_LARGE)
            return
        last = self._spans[-1] if self._spans else None
        if last is not None and last[0] is block and last[2] == first:
            self._spans[-1] = block, last[1], stop
            return
        count, size = self._blocks.get(block, (0, 0))
        if not count:
            size = max(BLOCK_BYTES, memoryview(block).nbytes)
            self.held_bytes += size
        self._blocks[block] = count + 1, size
        self._spans.append(span)
        while self.held_bytes > self._bytes_max and len(self._spans) > 1:
            self._skip(self._remove_oldest(), TOO_SLOW)

    def _remove_oldest(self) -> Span:
        assert self._lock.locked()
        span = self._spans.popleft()
        count, size = self._blocks[span[0]]
        if count > 1:
            self._blocks[span[0]] = count - 1, size
        else:
            del self._blocks[span[0]]
            self.held_bytes -= size
        return span

    def _skip(self, span: Span, reason: str) -> None:
        assert self._lock.locked()
        block, first, stop = span
        entries, rows = self._skipped.get(reason, (0, 0))
        rows += block.totals(first, stop)[1]
        self._skipped[reason] = entries + stop - first, rows

    def _report(self) -> None:
        assert self._lock.locked()
        if self._waits and (self._spans or self._skipped or self._closed):
            self._waits = False
            self._on_news()


class HeadTaps:
    """The taps of one store; any thread adds and removes, few at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # for changes
        # Replaced, not changed: the pump reads it without the lock, for each chunk.
        self._taps: tuple[HeadTap, ...] = ()
        self._closed = False

    @property
    def held_bytes(self) -> int:
        """Return the bytes of blocks that taps keep alive."""
        return sum(tap.held_bytes for tap in self._taps)

    def note(self, spans: Sequence[Span]) -> None:
        """Pass spans to each tap; called by the pump."""
        for tap in self._taps:
            tap.note(spans)

    def add(self, tap: HeadTap) -> None:
        """Pass a tap what is put from now on; a closed store closes it at once."""
        with self._lock:
            self._taps += (tap,)
            if self._closed:
                tap.close()

    def remove(self, tap: HeadTap) -> None:
        """Pass a tap nothing more."""
        with self._lock:
            self._taps = tuple(each for each in self._taps if each is not tap)

    def close(self) -> None:
        """Report to all taps that nothing more will come."""
        with self._lock:
            self._closed = True
            for tap in self._taps:
                tap.close()
