"""How far a batch after a position reaches, and waiting for its first change.

What was found is cached for each subscription: the next search continues from there,
and a plan of an announced batch needs no search at all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.errors import ClientError, StoreError
from canal_server.model.ranges import EpochPosition, RangeEnds
from canal_server.protocol.range_messages import NOT_HERE
from canal_server.ranges.range_access import STOPPING
from canal_server.ranges.range_source import CUT_ROWS, order_of
from canal_server.ranges.selection import RangeWalk
from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.model.ranges import RangeLimits, Subscription
    from canal_server.ranges.range_access import RangeAccess
    from canal_server.ranges.recent_records import Tail
    from canal_server.ranges.selection import Cut

POLL_S: Final = 1.0  # interval of queries to the source while memory has no answer
STALL_S: Final = 0.25  # until a pump without news counts as held up
READING_S_MAX: Final = 30.0  # of a head that has found something
MOVES_ON_S: Final = 60.0  # of nothing but filtered changes


@dataclass(slots=True)
class _Memo:
    """What was found about a subscription's next batch.

    From `start` to `examined` nothing passes the filter, since `since_s`. When `end` is
    set, the batch from `start` ends there, and could be cut at `cuts`.
    """

    start: EpochPosition
    filter: str
    examined: EpochPosition
    since_s: float
    end: EpochPosition | None = None
    totals: tuple[int, int] = (0, 0)
    cuts: Sequence[Cut] = ()


@dataclass(frozen=True, slots=True)
class _TailEnd:
    """The end of what a tail held at a moment: file, offset and time (s), if known."""

    tail: Tail
    resets: int
    end: tuple[str, int, int] | None

    def is_of(self, tail: Tail) -> bool:
        """Return whether the tail has not been reset since."""
        return tail is self.tail and tail.resets == self.resets

    def position(self, epoch: int) -> EpochPosition | None:
        """Return it as a position of the tail's epoch."""
        return None if self.end is None else EpochPosition(epoch, *self.end[:2])

    @property
    def time_s(self) -> int:
        """Return when the event ending there was written, 0 when unknown."""
        return 0 if self.end is None else self.end[2]


class RangeHeads:
    """The ends of batches of one destination; for many threads at a time.

    Two concurrent heads of one subscription may each do the same search.
    """

    def __init__(self, access: RangeAccess) -> None:
        self._access = access
        self._memos: dict[str, _Memo] = {}  # by subscription

    def forget(self, name: str) -> None:
        """Remove a subscription, or what its previous filter found."""
        self._memos.pop(name, None)

    def known(
        self, subscription: Subscription, start: EpochPosition, end: EpochPosition
    ) -> tuple[tuple[int, int], Sequence[Cut]] | None:
        """Return rows and bytes of an announced batch, and its cuts."""
        memo = self._memos.get(subscription.name)
        key = start, end, subscription.filter
        if memo is None or (memo.start, memo.end, memo.filter) != key:
            return None
        return memo.totals, memo.cuts

    def head(
        self,
        find: Callable[[], Subscription],
        start: EpochPosition,
        limits: RangeLimits,
        wait_s: float,
        peer_fd: int | None = None,
    ) -> RangeEnds:
        """Return how far a range after `start` may go; waits for its first change."""
        deadline = Deadline(wait_s)
        is_held_up = False
        while True:
            subscription = find()
            tail = self._access.stages().tail
            # First: everything up to there is in what is searched afterwards.
            seen, tail_end = tail.changes, _TailEnd(tail, tail.resets, tail.latest())
            memo = self._memo(subscription, start)
            is_hot = not is_held_up and self._look_in_memory(
                subscription, memo, limits, tail_end
            )
            if not is_hot:
                self._look_in_binlog(subscription, memo, limits)
            if memo.end is not None:
                memo.end = self._access.with_set(memo.end, start)
                return _ends(memo.end, memo.totals, memo.examined, tail_end)
            if time.monotonic() - memo.since_s >= MOVES_ON_S and memo.examined != start:
                memo.examined = self._access.with_set(memo.examined, start)
                return _ends(memo.examined, (0, 0), memo.examined, tail_end)
            left_s = deadline.remaining_s() or 0.0
            if not left_s or not self._sleep(tail, seen, left_s, peer_fd, is_hot):
                return _ends(start, (0, 0), memo.examined, tail_end)
            is_held_up = is_hot and tail.changes == seen and not tail.is_idle

    def _sleep(
        self, tail: Tail, seen: int, left_s: float, peer_fd: int | None, is_hot: bool
    ) -> bool:
        """Wait for news; false when the client disconnected."""
        if not is_hot:
            left_s = min(left_s, POLL_S)
        elif not tail.is_idle:
            left_s = min(left_s, STALL_S)
        stays = tail.wait(seen, left_s, peer_fd)
        if self._access.stop.requested():
            raise ClientError(STOPPING, code=NOT_HERE)
        return stays

    def _memo(self, subscription: Subscription, start: EpochPosition) -> _Memo:
        """Return what is known about the batch from a position on, without its end."""
        memo = self._memos.get(subscription.name)
        key = start, start.gtids, subscription.filter
        if memo is None or (memo.start, memo.start.gtids, memo.filter) != key:
            memo = _Memo(start, subscription.filter, start, time.monotonic())
        else:
            memo = replace(memo, end=None)
        self._memos[subscription.name] = memo
        return memo

    def _look_in_memory(
        self,
        subscription: Subscription,
        memo: _Memo,
        limits: RangeLimits,
        tail_end: _TailEnd,
    ) -> bool:
        """Search the tail for the batch's end; false when the tail does not hold it."""
        held = self._access.held(subscription, memo.examined, None)
        if held is None:
            return False
        spans, table_ids = held
        position = memo.examined
        walk = RangeWalk(
            self._access.filter_of(subscription.filter).accepts,
            table_ids,
            order_of(position.journal, position.position),
            max_rows=limits.rows,
            max_bytes=limits.bytes,
            cut_rows=CUT_ROWS,
        )
        try:
            walk.walk(spans)
        except StoreError:
            return False
        epoch = memo.examined.epoch
        is_same = tail_end.is_of(self._access.stages().tail)
        self._note(memo, walk, epoch, tail_end.position(epoch) if is_same else None)
        return True

    def _look_in_binlog(
        self, subscription: Subscription, memo: _Memo, limits: RangeLimits
    ) -> None:
        enough = Deadline(READING_S_MAX)

        def can_continue(walk: RangeWalk) -> bool:
            return not (walk.has_found and enough.passed())

        table_filter = self._access.filter_of(subscription.filter)
        with self._access.dump() as dump:
            if memo.examined.epoch != dump.epoch.number:
                memo.examined = memo.start  # the start has a set
            first = self._access.mapped(dump, memo.examined)
            if memo.start.epoch == dump.epoch.number:
                dump.check(memo.start)
            walk = dump.walk(
                table_filter,
                first.position,
                limits=limits,
                take=can_continue,
                skips=first.skips,
            )
            settled = order_of(first.settled.journal, first.settled.position)
            is_settled = first.skips is None or (
                bool(walk.file) and order_of(walk.file, walk.offset) >= settled
            )
            if not is_settled:
                # After a batch end here, what was left out would be sent again.
                end = first.settled
                walk = dump.walk(table_filter, first.position, end, skips=first.skips)
            if first.skips is None:
                memo.examined = first.position
            elif not walk.has_found:
                memo.examined = first.settled
            self._note(memo, walk, dump.epoch.number, dump.ended)
            if not is_settled and memo.end is not None:
                memo.end = first.settled
            if memo.end is not None:
                memo.end = dump.with_set(dump.seen_set(memo.end), memo.start)

    def _note(
        self, memo: _Memo, walk: RangeWalk, epoch: int, end: EpochPosition | None
    ) -> None:
        """Store what a walk from `memo.examined` on has found.

        Up to `end` it has seen everything, unless something was found.
        """
        if walk.has_found:
            memo.end = EpochPosition(epoch, walk.file, walk.offset)
            memo.totals = walk.rows, walk.bytes
            memo.cuts = walk.found_cuts()
            return
        positions = [memo.examined]
        if end is not None:
            positions.append(end)
        if walk.file:
            positions.append(EpochPosition(epoch, walk.file, walk.offset))
        memo.examined = max(positions, key=EpochPosition.order)


def _ends(
    end: EpochPosition,
    totals: tuple[int, int],
    examined: EpochPosition,
    tail_end: _TailEnd,
) -> RangeEnds:
    """Return the ends of a batch."""
    latest, latest_ms = max(end, examined, key=EpochPosition.order), 0
    here = tail_end.position(end.epoch) if tail_end.is_of(tail_end.tail) else None
    if here is not None and here.order() >= latest.order():
        latest, latest_ms = here, tail_end.time_s * 1000
    return RangeEnds(end, *totals, latest, latest_ms)
