"""How far a batch behind a position goes, and waiting for its first change.

What was found out is remembered for each subscription: the next look goes on from
there, and a plan of the batch that was told needs no look at all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.errors import ClientError, StoreError
from canal_server.model.ranges import RangeEnds, RangePlace
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

POLL_S: Final = 1.0  # between looks at the source while memory has no answer
STALL_S: Final = 0.25  # until a pump that tells nothing counts as held up
READING_S_MAX: Final = 30.0  # of a head that has found something
MOVES_ON_S: Final = 60.0  # of nothing but unwanted changes


@dataclass(slots=True)
class _Memo:
    """What was found out about a subscription's next batch.

    From `start` to `examined` nothing is wanted, seen since `since_s`. When `end` is
    set, the batch from `start` ends there, and could be cut at `cuts`.
    """

    start: RangePlace
    filter: str
    examined: RangePlace
    since_s: float
    end: RangePlace | None = None
    totals: tuple[int, int] = (0, 0)
    cuts: Sequence[Cut] = ()


@dataclass(frozen=True, slots=True)
class _Told:
    """Up to where a tail had all at a moment: file, offset and time (s), if known."""

    tail: Tail
    resets: int
    end: tuple[str, int, int] | None

    def is_of(self, tail: Tail) -> bool:
        """Tell whether it holds for a tail: it has not begun anew since."""
        return tail is self.tail and tail.resets == self.resets

    def place(self, epoch: int) -> RangePlace | None:
        """Return it as a place of the epoch that the tail has."""
        return None if self.end is None else RangePlace(epoch, *self.end[:2])

    @property
    def time_s(self) -> int:
        """Return when what ends there was written, 0: not known."""
        return 0 if self.end is None else self.end[2]


class RangeHeads:
    """The ends of batches of one destination; for many threads at a time.

    Two heads of one subscription at a time may each find out the same.
    """

    def __init__(self, access: RangeAccess, *, moves_on_s: float = MOVES_ON_S) -> None:
        self.moves_on_s = moves_on_s
        self._access = access
        self._memos: dict[str, _Memo] = {}  # by subscription

    def forget(self, name: str) -> None:
        """Forget a subscription, or what its last filter found."""
        self._memos.pop(name, None)

    def known(
        self, subscription: Subscription, start: RangePlace, end: RangePlace
    ) -> tuple[tuple[int, int], Sequence[Cut]] | None:
        """Return rows and bytes of a batch that was told, and its cuts."""
        memo = self._memos.get(subscription.name)
        wanted = start, end, subscription.filter
        if memo is None or (memo.start, memo.end, memo.filter) != wanted:
            return None
        return memo.totals, memo.cuts

    def head(
        self,
        find: Callable[[], Subscription],
        start: RangePlace,
        limits: RangeLimits,
        wait_s: float,
        peer_fd: int | None = None,
    ) -> RangeEnds:
        """Return how far a range behind `start` may go; waits for its first change."""
        deadline = Deadline(wait_s)
        is_held_up = False
        while True:
            subscription = find()
            tail = self._access.stages().tail
            # First: all up to there is in what is looked at.
            seen, told = tail.changes, _Told(tail, tail.resets, tail.latest())
            memo = self._memo(subscription, start)
            is_hot = not is_held_up and self._look_in_memory(
                subscription, memo, limits, told
            )
            if not is_hot:
                self._look_in_binlog(subscription, memo, limits)
            if memo.end is not None:
                memo.end = self._access.with_set(memo.end, start)
                return _ends(memo.end, memo.totals, memo.examined, told)
            if (
                time.monotonic() - memo.since_s >= self.moves_on_s
                and memo.examined != start
            ):
                memo.examined = self._access.with_set(memo.examined, start)
                return _ends(memo.examined, (0, 0), memo.examined, told)
            left_s = deadline.remaining_s() or 0.0
            if not left_s or not self._sleep(tail, seen, left_s, peer_fd, is_hot):
                return _ends(start, (0, 0), memo.examined, told)
            is_held_up = is_hot and tail.changes == seen and not tail.is_idle

    def _sleep(
        self, tail: Tail, seen: int, left_s: float, peer_fd: int | None, is_hot: bool
    ) -> bool:
        """Wait for news; false when the client went."""
        if not is_hot:
            left_s = min(left_s, POLL_S)
        elif not tail.is_idle:
            left_s = min(left_s, STALL_S)
        stays = tail.wait(seen, left_s, peer_fd)
        if self._access.stop.requested():
            raise ClientError(STOPPING, code=NOT_HERE)
        return stays

    def _memo(self, subscription: Subscription, start: RangePlace) -> _Memo:
        """Return what is known of the batch from a place on, without its end."""
        memo = self._memos.get(subscription.name)
        wanted = start, start.gtids, subscription.filter
        if memo is None or (memo.start, memo.start.gtids, memo.filter) != wanted:
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
        told: _Told,
    ) -> bool:
        """Look for the batch's end in the tail; false when that does not hold it."""
        held = self._access.held(subscription, memo.examined, None)
        if held is None:
            return False
        spans, table_ids = held
        place = memo.examined
        walk = RangeWalk(
            self._access.filter_of(subscription.filter).accepts,
            table_ids,
            order_of(place.journal, place.position),
            max_rows=limits.rows,
            max_bytes=limits.bytes,
            cut_rows=CUT_ROWS,
        )
        try:
            walk.walk(spans)
        except StoreError:
            return False
        epoch = memo.examined.epoch
        is_same = told.is_of(self._access.stages().tail)
        self._note(memo, walk, epoch, told.place(epoch) if is_same else None)
        return True

    def _look_in_binlog(
        self, subscription: Subscription, memo: _Memo, limits: RangeLimits
    ) -> None:
        enough = Deadline(READING_S_MAX)

        def goes_on(walk: RangeWalk) -> bool:
            return not (walk.has_found and enough.passed())

        wanted = self._access.filter_of(subscription.filter)
        with self._access.dump() as dump:
            if memo.examined.epoch != dump.epoch.number:
                memo.examined = memo.start  # that one has a set
            first = self._access.mapped(dump, memo.examined)
            if memo.start.epoch == dump.epoch.number:
                dump.check(memo.start)
            walk = dump.walk(
                wanted, first.place, limits=limits, take=goes_on, skips=first.skips
            )
            settled = order_of(first.settled.journal, first.settled.position)
            is_settled = first.skips is None or (
                bool(walk.file) and order_of(walk.file, walk.offset) >= settled
            )
            if not is_settled:
                # Behind what ends here, what was left out would come again.
                end = first.settled
                walk = dump.walk(wanted, first.place, end, skips=first.skips)
            if first.skips is None:
                memo.examined = first.place
            elif not walk.has_found:
                memo.examined = first.settled
            self._note(memo, walk, dump.epoch.number, dump.ended)
            if not is_settled and memo.end is not None:
                memo.end = first.settled
            if memo.end is not None:
                memo.end = dump.with_set(dump.seen_set(memo.end), memo.start)

    def _note(
        self, memo: _Memo, walk: RangeWalk, epoch: int, end: RangePlace | None
    ) -> None:
        """Take over what a walk from `memo.examined` on has found.

        Up to `end` it has seen all there is, unless something was found.
        """
        if walk.has_found:
            memo.end = RangePlace(epoch, walk.file, walk.offset)
            memo.totals = walk.rows, walk.bytes
            memo.cuts = walk.found_cuts()
            return
        places = [memo.examined]
        if end is not None:
            places.append(end)
        if walk.file:
            places.append(RangePlace(epoch, walk.file, walk.offset))
        memo.examined = max(places, key=RangePlace.order)


def _ends(
    end: RangePlace,
    totals: tuple[int, int],
    examined: RangePlace,
    told: _Told,
) -> RangeEnds:
    """Return the ends of a batch."""
    latest, latest_ms = max(end, examined, key=RangePlace.order), 0
    here = told.place(end.epoch) if told.is_of(told.tail) else None
    if here is not None and here.order() >= latest.order():
        latest, latest_ms = here, told.time_s * 1000
    return RangeEnds(end, *totals, latest, latest_ms)
