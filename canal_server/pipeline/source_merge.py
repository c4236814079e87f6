"""Merges the sources of a group into one stream: whose turn it is at the store.

Each source has a `Lane`, used by its pump's thread. A thread with entries waits for its
turn, puts as many complete transactions as are due, and waits again:

- The entries of one transaction are never interleaved with another's. A transaction
  that is delivered in parts keeps the turn until its end.
- Of the sources with entries, the one whose first transaction was committed first has
  the first turn; of equal ones the one that has waited longer.
- The others wait for a source that is about to have entries (bytes were received and
  are being decoded), but no longer than `patience_s`, and not with what is no younger
  than its last transaction. They do not wait for a source that has nothing to read, or
  no connection. So neither an idle source nor one that is down holds the others up, and
  times are in order only as far as these rules go.
- A transaction that was delivered in part keeps its turn for `grace_s` when its source
  loses the connection. Then the others continue, and it comes again from its beginning.

One lock guards everything. No thread holds it while it waits for the store: the thread
that has the turn does that, and `_in_turn` is set meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from canal_server.pipeline.source_turns import (
    cut,
    first_time,
    is_open_after,
    last_time,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.ports import Span

    # Puts spans into the store; false when stopped.
    Accept = Callable[[list[Span]], bool]

PATIENCE_S = 0.5  # more than decoding one received chunk takes
GRACE_S = 10.0  # enough to reconnect


class Lane:
    """One source's way into the merge; for its pump's thread, except `close`."""

    def __init__(self, merge: Merge) -> None:
        """Only `Merge.lane` makes lanes."""
        self._merge = merge
        # Guarded by the merge's lock:
        self.linked = False  # a session with the server is open
        self.reading_since: float | None = None  # entries may come soon
        self.first: tuple[int, int] | None = None  # that wait: their time, our ticket
        self.delivered_at = 0.0  # the last part of an open transaction
        self.reached_s = 0  # the time of the last delivery; later ones are no older
        self.is_truncated = False  # its transaction lost the turn
        self.is_closed = False

    def begin(self) -> bool:
        """Start a session with the server.

        Return whether the transaction that was delivered in part has to come from its
        beginning, as others had their turns.
        """
        return self._merge.begin(self)

    def forget_open(self) -> None:
        """Give up the turn: the transaction delivered in part is not continued."""
        self._merge.forget_open(self)

    def put(self, spans: list[Span], accept: Accept) -> tuple[list[Span], list[Span]]:
        """Wait for a turn, and put into the store with `accept` what is due in it.

        Return these spans and the rest of them; nothing was put when the first are
        empty: it was stopped.
        """
        return self._merge.put(self, spans, accept)

    def idle(self) -> None:
        """Note that there is nothing more to read."""
        self._merge.idle(self)

    def end(self) -> None:
        """End the session."""
        self._merge.end(self)

    def close(self) -> None:
        """End all waiting for turns, for good; from any thread."""
        self._merge.close(self)


class Merge:
    """Gives the lanes of one destination their turns."""

    def __init__(
        self,
        *,
        on_idle: Callable[[], None],
        patience_s: float = PATIENCE_S,
        grace_s: float = GRACE_S,
    ) -> None:
        """Make a merge; `on_idle` is called when no source has more to read."""
        self._on_idle = on_idle
        self._patience_s = patience_s
        self._grace_s = grace_s
        self._changed = threading.Condition()  # its lock guards all that follows
        self._lanes: list[Lane] = []
        self._in_turn = False  # somebody has its turn
        self._open: Lane | None = None  # whose transaction the next turn continues
        self._tickets = 0

    def lane(self) -> Lane:
        """Return a new lane; make all of them before any is used.

        It counts as about to have entries, so that all sources have time to connect.
        """
        lane = Lane(self)
        lane.reading_since = time.monotonic()
        self._lanes.append(lane)
        return lane

    # -- what lanes ask for -----------------------------------------------------------

    def begin(self, lane: Lane) -> bool:
        """See `Lane.begin`."""
        with self._changed:
            lane.linked = True
            lane.reading_since = time.monotonic()
            is_truncated, lane.is_truncated = lane.is_truncated, False
            return is_truncated

    def forget_open(self, lane: Lane) -> None:
        """See `Lane.forget_open`."""
        with self._changed:
            if self._open is lane:
                self._open = None
                self._changed.notify_all()

    def close(self, lane: Lane) -> None:
        """See `Lane.close`."""
        with self._changed:
            lane.is_closed = True
            self._changed.notify_all()

    def end(self, lane: Lane) -> None:
        """See `Lane.end`."""
        with self._changed:
            lane.linked = False
            self._changed.notify_all()  # `grace_s` begins
        self.idle(lane)

    def idle(self, lane: Lane) -> None:
        """See `Lane.idle`."""
        with self._changed:
            if lane.reading_since is not None:
                lane.reading_since = None
                self._changed.notify_all()
            all_idle = not self._in_turn and all(
                each.reading_since is None and each.first is None
                for each in self._lanes
            )
        if all_idle:
            self._on_idle()

    def put(
        self, lane: Lane, spans: list[Span], accept: Accept
    ) -> tuple[list[Span], list[Span]]:
        """See `Lane.put`."""
        with self._turn(lane, first_time(spans)) as (is_ours, limit):
            if is_ours:
                part, rest = cut(spans, limit)
                if self._accept(lane, part, accept):
                    return part, rest
        return [], spans

    def _accept(self, lane: Lane, part: list[Span], accept: Accept) -> bool:
        try:
            accepted = accept(part)
        except BaseException:
            # It is not known how much of it was stored.
            with self._changed:
                lane.is_truncated, self._open = True, None
            raise
        if accepted:
            with self._changed:
                self._open = lane if is_open_after(part) else None
                lane.delivered_at = time.monotonic()
                lane.reached_s = last_time(part) or lane.reached_s
        return accepted

    # -- turns ------------------------------------------------------------------------

    @contextlib.contextmanager
    def _turn(self, lane: Lane, first_s: int) -> Iterator[tuple[bool, int | None]]:
        """Wait for a turn, which lasts as long as the context.

        Gives whether it is this lane's turn (else the lane was closed), and the time up
        to which transactions are due, None for all.
        """
        with self._changed:
            self._tickets += 1
            lane.first = (first_s, self._tickets)
            lane.reading_since = None
            # One that waits for this lane may be due now.
            self._changed.notify_all()
            while not lane.is_closed and (wait_s := self._wait_s(lane)) != 0:
                self._changed.wait(wait_s)
            lane.first = None
            is_ours, limit = not lane.is_closed, self._limit()
            self._in_turn |= is_ours
        if not is_ours:
            yield False, None
            return
        try:
            yield True, limit
        finally:
            with self._changed:
                self._in_turn = False
                # Most likely there is more to read.
                lane.reading_since = time.monotonic()
                self._changed.notify_all()

    def _wait_s(self, lane: Lane) -> float | None:
        """Return how long a lane waits for its turn; None: until something changes."""
        if self._in_turn:
            return None
        now = time.monotonic()
        if self._open is lane:
            return 0
        if self._open is not None:
            if self._open.linked:
                return None
            left_s = self._open.delivered_at + self._grace_s - now
            if left_s > 0:
                return left_s
            self._open.is_truncated = True
            self._open = None
        assert lane.first is not None
        wait_s = 0.0
        for other in self._lanes:
            if other.first is not None and other.first < lane.first:
                return None
            if lane.first[0] > other.reached_s:
                wait_s = max(wait_s, self._reads_for_s(other, now))
        return wait_s

    def _reads_for_s(self, lane: Lane, now: float) -> float:
        """Return how long to wait for a lane that is about to have entries."""
        if lane.reading_since is None:
            return 0.0
        return max(0.0, lane.reading_since + self._patience_s - now)

    def _limit(self) -> int | None:
        """Return the time up to which no other lane has, or soon will have, entries."""
        now = time.monotonic()
        return min(
            (
                lane.reached_s if lane.first is None else lane.first[0]
                for lane in self._lanes
                if lane.first is not None or self._reads_for_s(lane, now) > 0
            ),
            default=None,
        )
