"""Merges the sources of a group into one stream: whose turn it is at the store.

Each source has a `Lane`, used by its pump's thread. A thread that has entries at hand
waits for its turn, puts as many whole transactions as are due, and waits again:

- Never do the entries of one transaction have another's between them. A transaction
  that comes in parts keeps the turn until its end.
- Of the sources with entries at hand the one goes first whose first transaction was
  committed first; of equal ones the one that waits longer.
- A source that is about to have entries at hand (bytes were received and are read) is
  waited for, but not longer than `patience_s`, and not by what is no younger than its
  last transaction; one with nothing at hand, or without a link to its server, is not.
  So neither an idle source nor one that is down holds the others up, and times are in
  order only as far as these rules bring it about.
- A transaction that came in part keeps its turn for `grace_s` when its source loses
  the link. Then the others go on, and it comes once more from its beginning.

All threads meet at one lock. Nobody waits for the store while holding it: that does
who has the turn, `_taken` says so meanwhile.
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

PATIENCE_S = 0.5  # longer than to read what one receive brings
GRACE_S = 10.0  # time enough to connect once more


class Lane:
    """One source's way into the merge; for its pump's thread, but where it says so."""

    def __init__(self, merge: Merge) -> None:
        """Only `Merge.lane` makes lanes."""
        self._merge = merge
        # Guarded by the merge's lock:
        self.linked = False  # a session with the server goes on
        self.reading_since: float | None = None  # entries may come soon
        self.first: tuple[int, int] | None = None  # what waits: its time, our ticket
        self.delivered_at = 0.0  # the last part of a transaction that goes on
        self.reached_s = 0  # the time of what was delivered last; more is no older
        self.is_truncated = False  # its transaction lost the turn
        self.is_closed = False

    def begin(self) -> bool:
        """Say that a session with the server begins.

        Returns whether the transaction that was delivered in part has to come from
        its beginning, as others have gone between.
        """
        return self._merge.begin(self)

    def forget_open(self) -> None:
        """Say that the transaction that was delivered in part does not go on."""
        self._merge.forget_open(self)

    def put(self, spans: list[Span], accept: Accept) -> tuple[list[Span], list[Span]]:
        """Wait for a turn, and put into the store with `accept` what is due in it.

        Return these spans and the rest of them; nothing was put when the first are
        empty: it was stopped.
        """
        return self._merge.put(self, spans, accept)

    def idle(self) -> None:
        """Say that nothing more is at hand."""
        self._merge.idle(self)

    def end(self) -> None:
        """Say that the session is over."""
        self._merge.end(self)

    def close(self) -> None:
        """End its waiting for turns, for good; from any thread."""
        self._merge.close(self)


class Merge:
    """Gives the lanes of one destination their turns."""

    def __init__(
        self,
        *,
        idle: Callable[[], None],
        patience_s: float = PATIENCE_S,
        grace_s: float = GRACE_S,
    ) -> None:
        """Make a merge; `idle` is told when no source has more at hand."""
        self._idle = idle
        self._patience_s = patience_s
        self._grace_s = grace_s
        self._changed = threading.Condition()  # its lock guards all that follows
        self._lanes: list[Lane] = []
        self._taken = False  # somebody is in its turn
        self._open: Lane | None = None  # whose transaction goes on behind the last turn
        self._tickets = 0

    def lane(self) -> Lane:
        """Return one more lane, before any is used.

        It counts as one that is about to deliver, so that at a start all sources
        have time to connect.
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
            self._changed.notify_all()  # the time of grace begins
        self.idle(lane)

    def idle(self, lane: Lane) -> None:
        """See `Lane.idle`."""
        with self._changed:
            if lane.reading_since is not None:
                lane.reading_since = None
                self._changed.notify_all()
            all_idle = not self._taken and all(
                each.reading_since is None and each.first is None
                for each in self._lanes
            )
        if all_idle:
            self._idle()

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
            # How much of it was stored is not known.
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
        """Wait for a turn and have it inside.

        Gives whether it came (else the lane was closed), and the time up to which
        transactions are due, None for all.
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
            self._taken |= is_ours
        if not is_ours:
            yield False, None
            return
        try:
            yield True, limit
        finally:
            with self._changed:
                self._taken = False
                # More is at hand, most likely.
                lane.reading_since = time.monotonic()
                self._changed.notify_all()

    def _wait_s(self, lane: Lane) -> float | None:
        """Return how long a lane waits for its turn: 0 not at all, None for news."""
        if self._taken:
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
        """Return how long a lane is waited for that is about to have entries."""
        if lane.reading_since is None:
            return 0.0
        return max(0.0, lane.reading_since + self._patience_s - now)

    def _limit(self) -> int | None:
        """Return the time up to which nobody else has, or soon will have, entries."""
        now = time.monotonic()
        return min(
            (
                lane.reached_s if lane.first is None else lane.first[0]
                for lane in self._lanes
                if lane.first is not None or self._reads_for_s(lane, now) > 0
            ),
            default=None,
        )
