"""The in-memory event store: one ring, a cursor per client, and all waiting.

Threads meet here and nowhere below. One lock guards the ring and the cursors; nobody
waits while holding it, and it is held for a walk over one chunk or one batch:

- the pump puts. It waits for room in `put`, on a `WakeUp` beside its stop; whoever
  frees entries wakes it, but only once its entries fit.
- a connection's thread gets. It waits on a `WakeUp` of its own beside its client's
  socket; the pump wakes it only when that changes its answer: the first entry came
  (its linger begins), a full batch is there, the pump has nothing more at hand, or
  the ring is full.
- what a filter says of a table that is new to it is found without the lock: by the get
  that is about to answer, or by the put when the ring is full.
- two connections of one client share its cursor; each entry goes to one of them.
- a client's socket may close between the last look at it and the hand-over: its
  batch is then open like one whose reply got lost, until a rollback.

What entries are and which pass a filter is in `ring` and `cursor`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from canal_server.config.schema import BatchMode
from canal_server.errors import StoreError
from canal_server.runtime.lifecycle import Deadline
from canal_server.store.client_batches import batch_of, place_after, position_of
from canal_server.store.counts import Blocked, Slowest, StoreCounts, counts_of
from canal_server.store.cursor import Cursor
from canal_server.store.eviction import (
    NobodyEvictable,
    Run,
    first_that_holds,
    holders_of,
    is_drained,
    oldest_of,
    slowest_of,
)
from canal_server.store.filter_queries import ask_filter
from canal_server.store.ring import Ring, bytes_in_use
from canal_server.store.span_parts import count_of, parts_of
from canal_server.store.stall import TELL_AFTER_S, StallNotice
from canal_server.store.waiting import Getter, WaitingRules, check_size, now_ms
from canal_server.store.wakeup import READABLE, WakeUp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from canal_server.config.schema import StoreConfig
    from canal_server.core.blocks import BlockPool
    from canal_server.core.table_ids import TableIds
    from canal_server.model.batch import Batch
    from canal_server.model.positions import EntryPosition
    from canal_server.ports import Liveness, Span, TablePredicate
    from canal_server.runtime.lifecycle import Stop
    from canal_server.store.fetched import Fetched

# A frame carries a 32-bit signed length; the rest is for the packet around a batch.
FRAME_BYTES_MAX = 2**31 - 1 - 4096
# Blocks come back when the last view of a sent batch is dropped, which no call to
# the store tells of; a put that waits for them looks again after this time.
BLOCKS_RECHECK_S = 0.02
FLOATS_RECHECK_S = 0.01  # between two looks at who may be passed over, at least


class MemoryEventStore:
    """The entries of one instance, in memory; implements `ports.EventStore`."""

    def __init__(
        self,
        config: StoreConfig,
        table_ids: TableIds,
        pool: BlockPool,
        *,
        destination: str = "",
        grouped: bool = False,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        tell_after_s: float = TELL_AFTER_S,
        held_elsewhere: Callable[[], int] = lambda: 0,
        may_drop: Callable[[], bool] = lambda: False,
        liveness: Liveness | None = None,
    ) -> None:
        """Make an empty store.

        `held_elsewhere` are bytes of blocks that others keep: they do not count here.
        `may_drop`: without any cursor nothing waits for a first one to come.
        `liveness`: who is passed over when there is no room; without, nobody is.
        """
        self._liveness = liveness or NobodyEvictable()
        self._run = Run()
        self._held_elsewhere = held_elsewhere
        self._may_drop = may_drop
        self._config = config
        self._table_ids = table_ids
        # With old subjects: entries from here on carry new ones only.
        self._new_from: int | None = None
        self._pool = pool
        self._frame_bytes_max = frame_bytes_max
        self._lock = threading.Lock()
        self._rules = WaitingRules(config)
        self._ring = Ring(
            config.buffer_size, config.raw_entry, frame_bytes_max, grouped
        )
        self._cursors: dict[int, Cursor] = {}
        self._holder: Cursor | None = None  # one whose acks the oldest entries wait for
        self._getters: set[Getter] = set()  # that wait
        self._putter: WakeUp | None = None  # the put that waits for room
        self._putter_count = 0  # and for how many entries
        self._stall = StallNotice(destination, tell_after_s)
        self._closed = self._ended = False
        self.put_waiting_ns = 0
        self._blocked_since_ms = 0  # while a put waits for room

    # -- the pump -----------------------------------------------------------------

    def put(self, spans: Sequence[Span], stop: Stop) -> bool:
        """Append entries; waits for room until `stop`, false when stopped first.

        A sequence longer than the ring is taken in parts. Raises EntryTooLarge.
        """
        count = count_of(spans)
        if count <= self._ring.size:
            return self._put_part(spans, count, stop)
        return all(
            self._put_part(part, count_of(part), stop)
            for part in parts_of(spans, max(1, self._ring.size // 2))
        )

    def wake_getters(self) -> None:
        """Say that the pump has nothing more at hand now: waiting gets may answer."""
        with self._lock:
            self._rules.idle = True
            self._wake_getters()

    def _put_part(self, spans: Sequence[Span], count: int, stop: Stop) -> bool:
        with self._lock:
            if self._closed:
                return False
            if self._has_room_made(count):
                self._append(spans)
                return True
        started_ns = time.monotonic_ns()
        self._blocked_since_ms = time.time_ns() // 1_000_000
        self._stall.begin(time.monotonic())
        try:
            if not self._put_waiting(spans, count, stop):
                return False
        finally:
            self._blocked_since_ms = 0
            self.put_waiting_ns += time.monotonic_ns() - started_ns
        self._stall.end(time.monotonic())
        return True

    def _put_waiting(self, spans: Sequence[Span], count: int, stop: Stop) -> bool:
        with WakeUp(stop.fileno(), READABLE) as putter:
            try:
                while True:
                    if (holder := self._holder) is not None:
                        self._ask_filter(holder, lambda: False)
                    with self._lock:
                        if self._closed:
                            return False
                        if self._has_room_made(count):
                            self._append(spans)
                            return True
                        if self._holder_asks():
                            continue
                        self._putter, self._putter_count = putter, count
                        self._rules.full = True
                        # Nothing more comes before somebody acks: waiting gets
                        # answer with what there is.
                        self._wake_getters()
                        blocked = self._blocks_exceed()
                        holders = holders_of(self._cursors.values())
                        floats_s = self._liveness.evictable_in_s(holders)
                    due_s = self._stall.due_s(time.monotonic())
                    if floats_s is not None:
                        due_s = min(due_s, max(floats_s, FLOATS_RECHECK_S))
                    if not due_s:
                        self._stall.tell(holders, time.monotonic())
                    elif putter.sleep(BLOCKS_RECHECK_S if blocked else due_s):
                        return False
            finally:
                with self._lock:
                    self._putter = None
                    self._rules.full = False

    def _ask_filter(self, cursor: Cursor, is_over: Callable[[], bool]) -> bool:
        """Find out what a filter says of tables; without the lock, it may take long."""
        return ask_filter(cursor, self._table_ids, self._lock, self._cursors, is_over)

    def _holder_asks(self) -> bool:
        """Tell whether the one that holds the oldest entries waits for its filter."""
        assert self._lock.locked()
        return self._holder is not None and self._holder.asks

    def holders(self) -> tuple[int, ...]:
        """Return the clients for whose acks a put waits; none when it does not."""
        with self._lock:
            holds = self._cursors.values() if self._rules.full else ()
            return tuple(holders_of(holds))

    def blocked(self) -> Blocked | None:
        """Return for whom a put waits, and since when; None when it does not."""
        since_ms = self._blocked_since_ms
        with self._lock:
            if not self._rules.full or not since_ms:
                return None
            return Blocked(since_ms, tuple(holders_of(self._cursors.values())))

    def slowest(self) -> Slowest | None:
        """Return who has acked least of what is here; None: all have acked all."""
        with self._lock:
            found = slowest_of(self._cursors.values(), self._ring.put_sequence)
            self._free_and_wake_putter()
            return found

    def _append(self, spans: Sequence[Span]) -> None:
        assert self._lock.locked()
        self._rules.idle = self._rules.full = False
        self._putter = None
        try:
            self._ring.append(spans, now_ms())
        finally:
            self._wake_getters()
        if self._table_ids.ageing:
            self._forget_old_table_ids(spans)

    def _forget_old_table_ids(self, spans: Sequence[Span]) -> None:
        """Let names go that no entry is about any more; `spans` were put just now.

        A statement that was being read when numbers began anew has old ones in its
        rows, and may be in the buffer still. Behind the end of its transaction none
        comes; once the ring has freed what lies before, none is left.
        """
        if self._new_from is None:
            # In a group other sources may have old ones still.
            if not self._ring.grouped and any(
                block.last_boundary(first, stop) >= 0 for block, first, stop in spans
            ):
                self._new_from = self._ring.put_sequence
        elif self._ring.free_sequence >= self._new_from:
            self._table_ids.forget_old()
            self._new_from = None

    def note_new_table_ids(self) -> None:
        """Say that no source of a group has anything more with an old number."""
        with self._lock:
            if self._table_ids.ageing and self._new_from is None:
                self._new_from = self._ring.put_sequence

    def _has_room_made(self, count: int) -> bool:
        """Tell whether entries fit, if need be without what filters reject."""
        assert self._lock.locked()
        if self._has_room(count):
            return True
        while self._skip_rejected():
            if self._has_room(count):
                return True
        if not self._cursors and self._may_drop():
            self._ring.free_before(self._ring.put_sequence)
        return self._has_room(count) or self._pass_over(count)

    def _skip_rejected(self) -> bool:
        """Have those who hold the oldest entries skip what their filters reject.

        False when one of them holds them still; the others are not looked at then.
        """
        assert self._lock.locked()
        oldest = self._ring.free_sequence
        self._free_acked()
        if self._holder is None:
            return False
        holder = first_that_holds(oldest, self._holder, self._cursors.values())
        if holder is not None:
            self._holder = holder
            return False
        self._free_acked()
        return self._ring.free_sequence > oldest

    def _pass_over(self, count: int) -> bool:
        """Make room without those that float, the oldest first; false when none does.

        Only as many go as must: who is left finds its entries here when it returns.
        """
        while (
            holders := holders_of(self._cursors.values())
        ) and self._liveness.evictable_in_s(holders) == 0:
            for client_id in holders:
                cursor = self._cursors.pop(client_id)
                self._liveness.evicted(client_id, cursor.table_filter)
            self._free_acked()
            if self._has_room(count):
                return True
        return False

    def _has_room(self, count: int) -> bool:
        ring = self._ring
        if ring.held == 0:
            return True
        if ring.held + count > ring.size or self._blocks_exceed():
            return False
        return (
            self._config.batch_mode == BatchMode.ITEMSIZE
            or ring.held_bytes < ring.size * self._config.memunit
        )

    def _blocks_exceed(self) -> bool:
        used = bytes_in_use(self._pool) - self._held_elsewhere()
        return used > self._config.block_bytes_max

    # -- cursors ------------------------------------------------------------------

    def subscribe(
        self,
        client_id: int,
        table_filter: TablePredicate | None,
        after: EntryPosition | Mapping[int, EntryPosition] | None,
    ) -> None:
        """Give a client a cursor, or its cursor another filter (None: all entries).

        A new cursor stands at the oldest entry that the ring holds; entries at or
        before `after` are not given out (but a BEGIN at it is, and so is every
        entry of a compressed transaction at it). In a group they are places of its
        sources, by number. A cursor that is there stays where it is, whatever `after`
        says.
        """
        place = place_after(after)
        with self._lock:
            found = self._cursors.get(client_id)
            if found is not None:
                found.replace_filter(table_filter)
                self._wake_getters()
            else:
                self._cursors[client_id] = Cursor(
                    self._ring, client_id, table_filter, place
                )

    def begin_run(self, place: tuple[int, int] | None) -> None:
        """Take note that what is put from now on does not go on behind the last entry.

        It is read from `place` on, None: by a GTID set. Called by the pump.
        """
        with self._lock:
            self._run.begin(place, self._ring.put_sequence)

    @property
    def run(self) -> int:
        """Return the number of the run that is being read."""
        return self._run.number

    def covers(self, place: tuple[int, int], run: int) -> bool:
        """Tell whether all that the pump reads behind a place is in here, or will be.

        `place` is in the binlog of that run.
        """
        with self._lock:
            return self._covers(place, run)

    def _covers(self, place: tuple[int, int], run: int) -> bool:
        ring, here = self._ring, self._run
        if self._closed or not run or run != here.number:
            return False
        if ring.free_sequence < here.sequence:
            return False  # entries of another run are in front
        if ring.free_sequence > here.sequence:
            return place >= (ring.freed_file_number, ring.freed_offset)
        return here.place is None or place >= here.place

    def join(
        self,
        client_id: int,
        table_filter: TablePredicate | None,
        after: tuple[int, int],
        run: int,
        *,
        needs: tuple[int, int],
    ) -> bool:
        """Give a client a cursor as `subscribe`; false unless all is here it needs.

        That is what lies behind the place `needs`.
        """
        with self._lock:
            if not self._covers(needs, run):
                return False
            self._cursors[client_id] = Cursor(
                self._ring, client_id, table_filter, after
            )
            return True

    def end(self) -> None:
        """Say that nothing more is put: a get answers at once from now on."""
        with self._lock:
            self._ended = True
            for getter in self._getters:
                getter.wake()

    def is_drained(self, client_id: int, *, acked: bool) -> bool:
        """Tell whether a client got all, or has no cursor; `acked`: and acked that."""
        with self._lock:
            cursor = self._cursors.get(client_id)
            return cursor is None or is_drained(cursor, acked=acked)

    def has_all(self, client_id: int) -> bool:
        """Tell whether a client has a cursor, and has got and acked all there is."""
        with self._lock:
            cursor = self._cursors.get(client_id)
            return cursor is not None and is_drained(cursor, acked=True)

    def look_again(self) -> None:
        """Let a put that waits see that a client left."""
        with self._lock:
            if self._putter is not None:
                self._putter.wake()

    def unsubscribe(self, client_id: int) -> None:
        """Forget a client's cursor; what only it held is freed."""
        with self._lock:
            self._cursors.pop(client_id, None)
            for getter in self._getters:
                if getter.cursor.client_id == client_id:
                    getter.wake()
            self._free_and_wake_putter()

    def ack(self, client_id: int, last_sequence: int) -> None:
        """Free a client's entries up to and including this sequence."""
        with self._lock:
            cursor = self._cursor(client_id)
            cursor.ack(last_sequence)
            cursor.skip(make_room=False)
            self._free_and_wake_putter()

    def rollback(self, client_id: int) -> None:
        """Put a client's get sequence back to its ack sequence."""
        with self._lock:
            self._cursor(client_id).rollback()
            self._wake_getters()

    def forget_after(self, client_id: int, member: int = 0) -> None:
        """Give a client all entries, whatever place it was to begin after.

        In a group, those of one source. Without effect once it was given entries, and
        for a client without a cursor.
        """
        with self._lock:
            cursor = self._cursors.get(client_id)
            if cursor is not None:
                cursor.forget_after(member)
                self._wake_getters()

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return the boundary of transactions behind which the client's entries lie.

        None when the ring had none so far.
        """
        with self._lock:
            cursor = self._cursor(client_id)
            cursor.scan()
            place = cursor.resume_place()
        return None if place is None else position_of(place)

    def oldest_position(self) -> EntryPosition | None:
        """Return the boundary of transactions behind which all entries here lie."""
        with self._lock:
            place = self._ring.boundary_before(self._ring.free_sequence)
        return None if place is None else position_of(place)

    def resume_positions(self, client_id: int) -> dict[int, EntryPosition]:
        """Return the same for each source of a group, by number, where there is one."""
        with self._lock:
            cursor = self._cursor(client_id)
            cursor.scan()
            places = cursor.resume_places()
        return {member: position_of(place) for member, place in places.items()}

    def close(self) -> None:
        """Drop the content and end every waiting get and put."""
        with self._lock:
            self._closed = True
            self._cursors.clear()
            self._ring.free_before(self._ring.put_sequence)
            for getter in self._getters:
                getter.wake()
            if self._putter is not None:
                self._putter.wake()

    def _cursor(self, client_id: int) -> Cursor:
        assert self._lock.locked()
        if (found := self._cursors.get(client_id)) is None:
            raise StoreError(f"client {client_id} has no cursor; subscribe first")
        return found

    def _free_acked(self) -> None:
        """Free what every cursor has acked; without cursors everything stays."""
        assert self._lock.locked()
        cursors, holder = self._cursors, self._holder
        if (
            holder is not None
            and holder.ack_sequence == self._ring.free_sequence
            and cursors.get(holder.client_id) is holder
        ):
            return  # faster: so it is for each ack while others are idle
        self._holder = oldest_of(cursors.values())
        if self._holder is not None:
            self._ring.free_before(self._holder.ack_sequence)

    def _free_and_wake_putter(self) -> None:
        self._free_acked()
        if self._putter is not None and (
            self._has_room_made(self._putter_count) or self._holder_asks()
        ):
            self._putter.wake()

    # -- getting ------------------------------------------------------------------

    def get(
        self,
        client_id: int,
        batch_size: int,
        timeout_s: float | None,
        peer_fd: int | None = None,
    ) -> Batch | None:
        """Take the next entries, None when there are none in time.

        `timeout_s`: 0 does not wait, None waits without limit. Ends early with None
        when the peer of the socket `peer_fd` closes; then no entry is taken.
        Raises StoreError for a client without a cursor.
        """
        check_size(client_id, batch_size)
        deadline = Deadline(timeout_s)
        with self._lock:
            if self._closed:
                return None
            cursor = self._cursor(client_id)
        with Getter(cursor, self._rules.limits(batch_size), peer_fd) as getter:
            taken = self._get_waiting(getter, deadline)
        return None if taken is None else batch_of(taken)

    def _get_waiting(self, getter: Getter, deadline: Deadline) -> Fetched | None:
        try:
            while True:
                # What wakes the getter meanwhile is looked at next, with the lock.
                if not self._ask_filter(getter.cursor, lambda: getter.sleep(0)):
                    return None
                with self._lock:
                    wait_s = self._wait_s(getter, deadline)
                    if getter.cursor.asks and not self._closed:
                        continue
                    if wait_s == 0:
                        # The last look at the peer, just before entries are taken.
                        return None if getter.sleep(0) else self._take(getter)
                    self._getters.add(getter)
                if getter.sleep(wait_s):
                    return None
        finally:
            # Before its descriptor is closed: nobody wakes it from here on.
            with self._lock:
                self._getters.discard(getter)

    def _wait_s(self, getter: Getter, deadline: Deadline) -> float | None:
        """Return how long the get may still wait, 0: answer now, None: no limit."""
        if self._closed:
            return 0
        cursor = getter.cursor
        if self._cursors.get(cursor.client_id) is not cursor:
            raise StoreError(f"client {cursor.client_id} was unsubscribed meanwhile")
        cursor.scan()
        cursor.skip(make_room=False)
        self._free_and_wake_putter()
        return 0 if self._ended else self._rules.wait_s(getter, deadline)

    def _wake_getters(self) -> None:
        assert self._lock.locked()
        for getter in self._getters:
            getter.cursor.scan()
            if getter.cursor.asks or self._rules.is_news(getter):
                getter.wake()

    def _take(self, getter: Getter) -> Fetched | None:
        assert self._lock.locked()
        if self._closed:
            return None
        return getter.cursor.take(
            getter.count_max,
            getter.bytes_max,
            self._frame_bytes_max,
            self._config.ddl_isolation,
        )

    # -- metrics ------------------------------------------------------------------

    def counts(self) -> StoreCounts:
        """Return a moment's numbers."""
        with self._lock:
            return counts_of(
                self._ring,
                self._cursors.values(),
                put_waiting_ns=self.put_waiting_ns,
                block_bytes=bytes_in_use(self._pool),
            )
