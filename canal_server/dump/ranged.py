"""Ranged reads of one destination: cursors, ends of batches, parts and entries.

::

    tail (memory) ── where it holds the whole range, and all that the filter wants
    RangeDump     ── else: the source's binlog, read again

Both give the same entries. Implements `ports.RangeSource`; its methods are called by
the threads of connections. Leaves out the wire (`canal_server.server.ranged`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.dump.range_parts import parts_of
from canal_server.dump.range_source import (
    CUT_ROWS,
    RangeDump,
    check_epoch,
    order_of,
)
from canal_server.errors import CanalError, ClientError, ConnectionLost, StoreError
from canal_server.lifecycle import Deadline, Stop
from canal_server.model.ranges import RangeEnds, RangePlace, Subscription
from canal_server.protocol.ranged import ACKED, NOT_HERE, UNKNOWN_SUBSCRIPTION
from canal_server.sink.filters import TableFilter, for_client, union
from canal_server.store.selection import RangeWalk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from canal_server.config.schema import InstanceConfig
    from canal_server.core.subjects import Subjects
    from canal_server.dump.pump import Pump
    from canal_server.model.ranges import Epoch, RangeLimits, RangePart
    from canal_server.model.table import TableMeta
    from canal_server.ports import Accepts, Span
    from canal_server.position.subscriptions import Subscriptions
    from canal_server.store.selection import Cut
    from canal_server.store.tail import Tail

    Take = Callable[[Sequence[bytes | memoryview], int], None]

_log = logging.getLogger(__name__)

DUMPS_MAX: Final = 8  # ranges that are read at a time
DUMP_WAIT_S: Final = 30.0  # how long a request waits for its turn
PIECE_BYTES: Final = 1 << 20  # of an answer, about
BEGIN_S: Final = 30.0  # how long a request waits until the source is being read
POLL_S: Final = 1.0  # between looks at the source while memory has no answer
STALL_S: Final = 0.25  # until a pump that tells nothing counts as held up
READING_S_MAX: Final = 30.0  # of a head that has found something
MOVES_ON_S: Final = 60.0  # of nothing but unwanted changes
TIED: Final = "a range cannot be read while the destination stops"


@dataclass(frozen=True, slots=True)
class Live:
    """The stages that a destination has now; another one once cursors were moved."""

    pump: Pump
    subjects: Subjects
    tail: Tail


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


class RangedReads:
    """One destination's ranged reads; `change` is told what they want, if anything."""

    def __init__(
        self,
        config: InstanceConfig,
        subscriptions: Subscriptions,
        change: Callable[[Accepts | None], None],
        *,
        moves_on_s: float = MOVES_ON_S,
    ) -> None:
        """Take what is needed; `moves_on_s`: of nothing but unwanted changes."""
        self._moves_on_s = moves_on_s
        self._config = config
        self._subscriptions = subscriptions
        self._change = change
        self._live: Live | None = None
        self._stop = Stop()
        # Guards what follows, and that one thread at a time finds out the epoch.
        self._lock = threading.Lock()
        self._filters: dict[str, TableFilter] = {}  # by expression
        # From where on the pump reads what a subscription wants: by its name the
        # filter, the resets of the tail then, and a place; all if there is none.
        self._admitted: dict[str, tuple[str, Tail, int, tuple[int, int]]] = {}
        self._memos: dict[str, _Memo] = {}
        self._checked: tuple[Tail, int] | None = None  # whose epoch is `_epoch`
        self._epoch: Epoch | None = None
        self._slots = list(range(DUMPS_MAX))
        self._slot_free = threading.Condition()
        # Heads, plans and reads that memory answered, and looks at the binlog.
        self._answered = {"memory": 0, "binlog": 0}

    # --- the instance's side ----------------------------------------------------------

    def start(self) -> None:
        """Load what is stored. Raises MetaStoreError."""
        self._subscriptions.start(self._stop)
        self._tell()
        for each in self._subscriptions.all():
            try:
                self._filter(each.filter)
            except ClientError as error:
                _log.error(
                    "destination %s: subscription %s cannot be read: %s",
                    self._config.destination,
                    each.name,
                    error,
                )

    def attach(self, live: Live) -> None:
        """Read from these stages from now on; they have not begun."""
        self._live = live
        self._tell()

    def request_stop(self) -> None:
        """End what is read and waited for; returns at once."""
        self._stop.request()
        if self._live is not None:
            self._live.tail.wake()
        with self._slot_free:
            self._slot_free.notify_all()

    def stop(self) -> None:
        """Let go of what is stored."""
        self._subscriptions.stop()

    def status(self) -> dict[str, object]:
        """Return what an operator asks, as plain values."""
        subscriptions = self._subscriptions.all()
        return {
            "subscriptions": {each.name: str(each.cursor) for each in subscriptions},
            "from_memory": self._answered["memory"],
            "from_binlog": self._answered["binlog"],
        }

    def _tell(self) -> None:
        """Tell the pump what is wanted, and keep what it brings while anything is."""
        wanted = []
        for each in self._subscriptions.all():
            with contextlib.suppress(ClientError):  # told at the start
                wanted.append(self._filter(each.filter))
        assert self._live is not None
        self._live.tail.turn_on(on=bool(wanted))
        self._change(union(wanted) if wanted else None)

    # --- cursors ----------------------------------------------------------------------

    def subscribe(
        self, name: str, expression: str, start: str
    ) -> tuple[Subscription, bool]:
        """Return the subscription with this filter, and whether it is new."""
        self._filter(expression)
        found = self._subscriptions.find(name)
        if found is not None and found.filter == expression:
            return found, False
        with self._dump() as dump:
            if found is None:
                cursor = dump.place_of(start)
                subscription = Subscription(name, expression, cursor)
            else:
                subscription = replace(found, filter=expression)
            with self._lock:
                self._subscriptions.put(subscription)
                self._memos.pop(name, None)
                self._tell()
                live = self._stages()
                resets = live.tail.resets
                # What the source wrote up to now may have been read without it.
                end = dump.place_of("latest")
                place = order_of(end.journal, end.position)
                self._admitted[name] = expression, live.tail, resets, place
        _log.info(
            "destination %s: subscription %s stands at %s, filter %.200r",
            self._config.destination,
            name,
            subscription.cursor,
            expression,
        )
        return subscription, found is None

    def unsubscribe(self, name: str) -> None:
        """Forget a subscription."""
        with self._lock:
            if not self._subscriptions.remove(name):
                raise _unknown(name)
            self._memos.pop(name, None)
            self._admitted.pop(name, None)
            self._tell()

    def ack(self, name: str, place: RangePlace) -> None:
        """Move a cursor forward, never back."""
        epoch = self._subscriptions.epoch()
        if epoch is not None and place.epoch > epoch.number:
            check_epoch(place, epoch)
        if not self._subscriptions.ack(name, place):
            raise _unknown(name)

    def locate(self, name: str, text: str) -> RangePlace:
        """Return the boundary that a start means, `acked` the cursor."""
        if text == ACKED:
            return self._find(name).cursor
        with self._dump() as dump:
            return dump.place_of(text)

    # --- heads ------------------------------------------------------------------------

    def head(
        self,
        name: str,
        start: RangePlace,
        limits: RangeLimits,
        wait_s: float,
        peer_fd: int | None = None,
    ) -> RangeEnds:
        """Return how far a range behind `start` may go; waits for its first change."""
        deadline = Deadline(wait_s)
        is_held_up = False
        while True:
            subscription = self._find(name)
            tail = self._stages().tail
            seen = tail.changes
            memo = self._memo(subscription, start)
            is_hot = not is_held_up and self._look_in_memory(subscription, memo, limits)
            if not is_hot:
                self._look_in_binlog(subscription, memo, limits)
            if memo.end is not None:
                return self._ends(memo.end, memo.totals, memo.examined)
            if (
                time.monotonic() - memo.since_s >= self._moves_on_s
                and memo.examined != start
            ):
                return self._ends(memo.examined, (0, 0), memo.examined)
            left_s = deadline.remaining_s() or 0.0
            if not left_s or not self._sleep(tail, seen, left_s, peer_fd, is_hot):
                return self._ends(start, (0, 0), memo.examined)
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
        if self._stop.requested():
            raise ClientError(TIED, code=NOT_HERE)
        return stays

    def _memo(self, subscription: Subscription, start: RangePlace) -> _Memo:
        """Return what is known of the batch from a place on, without its end."""
        memo = self._memos.get(subscription.name)
        if memo is None or (memo.start, memo.filter) != (start, subscription.filter):
            memo = _Memo(start, subscription.filter, start, time.monotonic())
        else:
            memo = replace(memo, end=None)
        self._memos[subscription.name] = memo
        return memo

    def _look_in_memory(
        self, subscription: Subscription, memo: _Memo, limits: RangeLimits
    ) -> bool:
        """Look for the batch's end in the tail; false when that does not hold it."""
        held = self._held(subscription, memo.examined, None)
        if held is None:
            return False
        spans, subjects = held
        place = memo.examined
        walk = RangeWalk(
            self._filter(subscription.filter).accepts,
            subjects,
            order_of(place.journal, place.position),
            max_rows=limits.rows,
            max_bytes=limits.bytes,
            cut_rows=CUT_ROWS,
        )
        try:
            walk.walk(spans)
        except StoreError:
            return False
        self._note(memo, walk)
        return True

    def _look_in_binlog(
        self, subscription: Subscription, memo: _Memo, limits: RangeLimits
    ) -> None:
        enough = Deadline(READING_S_MAX)

        def goes_on(walk: RangeWalk) -> bool:
            return not (walk.has_found and enough.passed())

        with self._dump() as dump:
            dump.check(memo.start)
            walk = dump.walk(
                self._filter(subscription.filter),
                memo.examined,
                limits=limits,
                take=goes_on,
            )
        self._note(memo, walk)

    def _note(self, memo: _Memo, walk: RangeWalk) -> None:
        """Take over what a walk from `memo.examined` on has found."""
        if not walk.file:
            return
        reached = RangePlace(memo.start.epoch, walk.file, walk.offset)
        if walk.has_found:
            memo.end = reached
            memo.totals = walk.rows, walk.bytes
            memo.cuts = walk.found_cuts()
        else:
            memo.examined = reached

    def _ends(
        self, end: RangePlace, totals: tuple[int, int], examined: RangePlace
    ) -> RangeEnds:
        latest, latest_ms = max(end, examined, key=RangePlace.order), 0
        told = self._stages().tail.latest()
        if told is not None:
            here = RangePlace(end.epoch, told[0], told[1])
            if here.order() >= latest.order():
                latest, latest_ms = here, told[2] * 1000
        return RangeEnds(end, *totals, latest, latest_ms)

    # --- parts and entries ------------------------------------------------------------

    def plan(
        self,
        name: str,
        expression: str,
        start: RangePlace,
        end: RangePlace,
        parts: int,
    ) -> list[RangePart]:
        """Cut a range at events, into so many parts at most."""
        _check_order(start, end)
        subscription = self._find(name) if name else None
        if start == end:
            return []
        walk: RangeWalk | None = None
        if subscription is not None:
            expression = subscription.filter
            memo = self._memos.get(name)
            known = memo and (memo.start, memo.end, memo.filter)
            if memo is not None and known == (start, end, expression):
                return parts_of(start, end, memo.totals, memo.cuts, parts)
            walk = self._cuts_in_memory(subscription, start, end)
        if walk is None:
            walk = self._cuts_in_binlog(expression, start, end)
        totals = walk.rows, walk.bytes
        return parts_of(start, end, totals, walk.found_cuts(), parts)

    def _cuts_in_memory(
        self, subscription: Subscription, start: RangePlace, end: RangePlace
    ) -> RangeWalk | None:
        held = self._held(subscription, start, end)
        if held is None:
            return None
        walk = self._walk_of(subscription.filter, start, end, held[1])
        try:
            walk.walk(held[0])
        except StoreError:
            return None
        return walk

    def _cuts_in_binlog(
        self, expression: str, start: RangePlace, end: RangePlace
    ) -> RangeWalk:
        with self._dump() as dump:
            dump.check(start, end)
            return dump.walk(self._filter(expression), start, end)

    def read(
        self,
        name: str,
        expression: str,
        start: RangePlace,
        end: RangePlace,
        take: Take,
    ) -> None:
        """Give the entries of a range to `take`, piece by piece."""
        _check_order(start, end)
        held = None
        if name:
            subscription = self._find(name)
            expression = subscription.filter
            held = self._held(subscription, start, end)
        if held is not None and self._read_memory(held, expression, start, end, take):
            return
        with self._dump() as dump:
            dump.check(start, end)

            def taken(walk: RangeWalk) -> bool:
                _hand_out(walk, take)
                return True

            dump.walk(self._filter(expression), start, end, take=taken, picks=True)

    def _read_memory(
        self,
        held: tuple[list[Span], Subjects],
        expression: str,
        start: RangePlace,
        end: RangePlace,
        take: Take,
    ) -> bool:
        """Give out what the tail holds; false before anything was given."""
        spans, subjects = held
        walk = self._walk_of(expression, start, end, subjects, picks=True)
        spans.reverse()
        has_given = False
        with self._slot():  # as many as dumps: each may hold a whole tail's memory
            while spans and not walk.is_over:
                try:
                    walk.walk((spans.pop(),))
                except StoreError:
                    if has_given:
                        raise
                    return False
                if walk.size >= PIECE_BYTES:
                    has_given = True
                    _hand_out(walk, take)
            _hand_out(walk, take)
        return True

    def columns(
        self, schema: str, table: str, at: RangePlace | None
    ) -> TableMeta | None:
        """Return what a table is at a place, None: now; None when there is none."""
        with self._dump() as dump:
            return dump.columns(schema, table, at)

    # --- inside -----------------------------------------------------------------------

    def _walk_of(
        self,
        expression: str,
        start: RangePlace,
        end: RangePlace,
        subjects: Subjects,
        *,
        picks: bool = False,
    ) -> RangeWalk:
        begin = start.begin or start.position
        return RangeWalk(
            self._filter(expression).accepts,
            subjects,
            order_of(start.journal, start.position),
            order_of(end.journal, end.position),
            begin=order_of(start.journal, begin),
            cut_rows=CUT_ROWS,
            picks=picks,
        )

    def _held(
        self, subscription: Subscription, start: RangePlace, end: RangePlace | None
    ) -> tuple[list[Span], Subjects] | None:
        """Return the tail's spans of a range; None unless it holds all that is wanted.

        Raises ClientError for a range of another epoch.
        """
        live = self._stages()
        tail, resets = live.tail, live.tail.resets
        if self._checked != (tail, resets) or self._epoch is None:
            return None
        check_epoch(start, self._epoch)
        begin = order_of(start.journal, start.begin or start.position)
        admitted = self._admitted.get(subscription.name)
        if admitted is not None:
            expression, then, count, place = admitted
            is_newer = (then, count) != (tail, resets)
            if expression != subscription.filter or not (is_newer or begin >= place):
                return None
        if not self._tells_sets_exactly(live.pump, begin[0]):
            return None
        stop = None if end is None else order_of(end.journal, end.position)
        spans = tail.spans_from(begin, stop)
        if spans is None or tail.resets != resets:
            return None
        self._answered["memory"] += 1
        return spans, live.subjects

    def _tells_sets_exactly(self, pump: Pump, file_number: int) -> bool:
        """Tell whether the sets in entries are those that reading again would give."""
        if not self._config.source.gtid_on:
            return True
        exact_from = pump.exact_from
        return exact_from is not None and file_number >= exact_from

    @contextlib.contextmanager
    def _dump(self) -> Iterator[RangeDump]:
        """Look at the source, when it is this thread's turn. Raises CanalError."""
        with self._slot() as slot:
            live = self._stages()
            if not live.tail.resets:
                # The first session learns what the tables are.
                live.tail.wait(0, BEGIN_S, None)
            tail, resets = live.tail, live.tail.resets
            access = live.pump.sources.current.access
            dump = RangeDump(
                self._config,
                access,
                self._subscriptions,
                live.pump.index,
                self._stop,
                slot,
            )
            try:
                with dump:
                    with self._lock:
                        self._epoch = dump.look()
                        self._checked = tail, resets
                        self._answered["binlog"] += 1
                    yield dump
            except ConnectionLost as error:
                if self._stop.requested():
                    raise ClientError(TIED, code=NOT_HERE) from error
                raise

    @contextlib.contextmanager
    def _slot(self) -> Iterator[int]:
        """Wait until fewer than the limit of ranges are read."""
        with self._slot_free:
            self._slot_free.wait_for(
                lambda: self._slots or self._stop.requested(), DUMP_WAIT_S
            )
            if self._stop.requested():
                raise ClientError(TIED, code=NOT_HERE)
            if not self._slots:
                raise ClientError(
                    f"{DUMPS_MAX} ranges of destination {self._config.destination} are"
                    " being read already; try again",
                    code=NOT_HERE,
                )
            slot = self._slots.pop()
        try:
            yield slot
        finally:
            with self._slot_free:
                self._slots.append(slot)
                self._slot_free.notify()

    def _stages(self) -> Live:
        if self._live is None:
            raise CanalError(f"destination {self._config.destination} has not begun")
        return self._live

    def _find(self, name: str) -> Subscription:
        found = self._subscriptions.find(name)
        if found is None:
            raise _unknown(name)
        return found

    def _filter(self, expression: str) -> TableFilter:
        """Return the filter of an expression. Raises ClientError."""
        known = self._filters.get(expression)
        if known is not None:
            return known
        config = self._config.filter
        try:
            found = for_client(expression, config.regex, config.black_regex)
        except ValueError as error:
            raise ClientError(f"filter {expression[:200]!r}: {error}") from error
        if len(self._filters) >= FILTERS_MAX:
            self._filters.clear()
        self._filters[expression] = found
        return found


FILTERS_MAX: Final = 1000  # that are kept ready


def _hand_out(walk: RangeWalk, take: Take) -> None:
    slices, size = walk.take()
    if size:
        take(slices, size)


def _check_order(start: RangePlace, end: RangePlace) -> None:
    if start.epoch != end.epoch or end.order() < start.order():
        raise ClientError(f"a range from {start} to {end} is none")


def _unknown(name: str) -> ClientError:
    return ClientError(
        f"there is no subscription {name}; subscribe first", code=UNKNOWN_SUBSCRIPTION
    )
