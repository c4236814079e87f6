"""The in-memory event store: one ring, a cursor per client, and all waiting.

Threads meet here and nowhere below. One lock guards the ring and the cursors. No thread
blocks while holding it, and it is held for a pass over one chunk or one batch:

- The pump puts. It waits for room in `put`, on a `WakeUp` together with its stop. A
  thread that frees entries wakes it, but only once the pump's entries fit.
- A connection's thread gets. It waits on its own `WakeUp` together with its client's
  socket. The pump wakes it only when that changes its answer: when the first entry
  arrived (its linger begins), a batch is full, the pump has no more data for now, or
  the ring is full.
- A filter is asked about a table that is new to it without the lock: by the get that is
  about to answer, or by the put when the ring is full.
- Two connections of one client share its cursor; each entry goes to one of them.
- A tap is passed what was put, and has a lock of its own.
- A client's socket may close between the last check and the delivery. Its batch then
  stays open, as if the reply were lost, until a rollback.

What entries are and which pass a filter is in `ring` and `cursor`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from canal_server.errors import StoreError
from canal_server.runtime.lifecycle import Deadline
from canal_server.store.client_batches import batch_of, position_of, start_order
from canal_server.store.counts import Blocked, Slowest, StoreCounts, counts_of
from canal_server.store.cursor import Cursor
from canal_server.store.eviction import (
    NobodyEvictable,
    Run,
    awaited_by,
    evictable_of,
    first_that_holds,
    is_drained,
    oldest_of,
    slowest_of,
)
from canal_server.store.filter_queries import ask_filter
from canal_server.store.head_taps import HeadTaps
from canal_server.store.old_table_ids import OldTableIds
from canal_server.store.ring import Ring, bytes_in_use
from canal_server.store.ring_room import RingRoom
from canal_server.store.span_parts import count_of, parts_of
from canal_server.store.stall import REPORT_AFTER_S, StallNotice
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

# A frame has a 32-bit signed length; the rest is for the packet around a batch.
FRAME_BYTES_MAX = 2**31 - 1 - 4096
# Blocks are freed when the last view of a sent batch is dropped, without a call to the
# store. A put that waits for blocks checks again after this time.
BLOCKS_RECHECK_S = 0.02
EVICTION_RECHECK_S = 0.01  # at least, between two checks of who is evictable


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
        report_after_s: float = REPORT_AFTER_S,
        held_elsewhere: Callable[[], int] = lambda: 0,
        may_drop: Callable[[], bool] = lambda: False,
        liveness: Liveness | None = None,
    ) -> None:
        """Create an empty store.

        `held_elsewhere` returns bytes of blocks that others keep; they do not count
        here. With `may_drop`, a store without cursors drops entries instead of waiting
        for a first client. `liveness` decides who is evicted when there is no room;
        without it, nobody is.
        """
        self._liveness = liveness or NobodyEvictable()
        self._run = Run()
        self._may_drop = may_drop
        self._config = config
        self._table_ids = table_ids
        self._pool = pool
        self._frame_bytes_max = frame_bytes_max
        self._lock = threading.Lock()
        self._rules = WaitingRules(config)
        self._ring = Ring(
            config.buffer_size, config.raw_entry, frame_bytes_max, grouped
        )
        self._old_ids = OldTableIds(table_ids, self._ring)
        self._cursors: dict[int, Cursor] = {}
        self._holder: Cursor | None = None  # a cursor that holds the oldest entries
        self._getters: set[Getter] = set()  # those that wait
        self.taps = HeadTaps()
        self._room = RingRoom(
            self._ring, pool, config, lambda: held_elsewhere() + self.taps.held_bytes
        )
        self._putter: WakeUp | None = None  # the put that waits for room
        self._putter_count = 0  # and for how many entries
        self._stall = StallNotice(destination, report_after_s)
        self.users = self._stall.users  # what uses client ids in this process
        self._closed = self._ended = False
        self.put_waiting_ns = 0
        self._blocked_since_ms = 0  # while a put waits for room

    # -- the pump -----------------------------------------------------------------

    def put(self, spans: Sequence[Span], stop: Stop) -> bool:
        """Append entries; waits for room until `stop`, false when stopped first.

        Spans that are larger than the ring are put in parts. Raises EntryTooLarge.
        """
        count = count_of(spans)
        if count <= self._ring.size:
            return self._put_part(spans, count, stop)
        return all(
            self._put_part(part, count_of(part), stop)
            for part in parts_of(spans, max(1, self._ring.size // 2))
        )

    def wake_getters(self) -> None:
        """Report that the pump has no more data for now: waiting gets may answer."""
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
                        # Nothing more comes before a client acks: waiting gets answer
                        # with what there is.
                        self._wake_getters()
                        blocked = self._room.blocks_exceed()
                        holders = awaited_by(self._cursors.values(), self._liveness)
                        evictable_s = self._liveness.evictable_in_s(holders)
                    due_s = self._stall.due_s(time.monotonic())
                    if evictable_s is not None:
                        due_s = min(due_s, max(evictable_s, EVICTION_RECHECK_S))
                    if not due_s:
                        self._stall.report(holders, time.monotonic())
                    elif putter.sleep(BLOCKS_RECHECK_S if blocked else due_s):
                        return False
            finally:
                with self._lock:
                    self._putter = None
                    self._rules.full = False

    def _ask_filter(self, cursor: Cursor, is_over: Callable[[], bool]) -> bool:
        """Ask a filter about new tables; without the lock, because it may take long."""
        return ask_filter(cursor, self._table_ids, self._lock, self._cursors, is_over)

    def _holder_asks(self) -> bool:
        """Return whether the holder of the oldest entries waits for its filter."""
        assert self._lock.locked()
        return self._holder is not None and self._holder.asks

    def holders(self) -> tuple[int, ...]:
        """Return the clients for whose acks a put waits; empty when none waits."""
        with self._lock:
            return self._awaited() if self._rules.full else ()

    def blocked(self) -> Blocked | None:
        """Return whom a put waits for, and since when; None when none waits."""
        since_ms = self._blocked_since_ms
        with self._lock:
            if not self._rules.full or not since_ms:
                return None
            return Blocked(since_ms, self._awaited())

    def _awaited(self) -> tuple[int, ...]:
        assert self._lock.locked()
        found = tuple(awaited_by(self._cursors.values(), self._liveness))
        self._free_and_wake_putter()  # some may have skipped what they reject
        return found

    def slowest(self) -> Slowest | None:
        """Return the client that has acked least; None: all have acked everything."""
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
        self.taps.note(spans)
        if self._table_ids.ageing:
            self._old_ids.note_put(spans)

    def note_new_table_ids(self) -> None:
        """Note that no source of a group has anything left with an old table id."""
        with self._lock:
            self._old_ids.note_new_only()

    def _has_room_made(self, count: int) -> bool:
        """Return whether entries fit, after dropping what filters reject if needed."""
        assert self._lock.locked()
        if self._room.fits(count):
            return True
        while self._skip_rejected():
            if self._room.fits(count):
                return True
        if not self._cursors and self._may_drop():
            self._ring.free_before(self._ring.put_sequence)
        return self._room.fits(count) or self._evict(count)

    def _skip_rejected(self) -> bool:
        """Make the holders of the oldest entries skip what their filters reject.

        False when one of them still holds them; the others are not checked then.
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

    def _evict(self, count: int) -> bool:
        """Make room by evicting evictable clients, oldest first; false if none is.

        No more are evicted than necessary: the others find their entries here when they
        return.
        """
        cursors, liveness = self._cursors, self._liveness
        while True:
            client_ids, holder = evictable_of(cursors.values(), liveness)
            if not client_ids:
                # Only what holds the oldest entries is asked about new tables.
                self._holder = holder or self._holder
                return False
            for client_id in client_ids:
                cursor = cursors.pop(client_id)
                liveness.evicted(client_id, cursor.table_filter)
            self._free_acked()
            if self._room.fits(count):
                return True

    # -- cursors ------------------------------------------------------------------

    def subscribe(
        self,
        client_id: int,
        table_filter: TablePredicate | None,
        after: EntryPosition | Mapping[int, EntryPosition] | None,
    ) -> None:
        """Give a client a cursor, or its cursor another filter (None: all entries).

        A new cursor starts at the oldest entry in the ring. Entries at or before
        `after` are not delivered, except a BEGIN at it and every entry of a compressed
        transaction at it. In a group, `after` maps the number of each source to a
        position there. An existing cursor does not move, whatever `after` says.
        """
        position = start_order(after)
        with self._lock:
            found = self._cursors.get(client_id)
            if found is not None:
                found.replace_filter(table_filter)
                self._wake_getters()
            else:
                self._cursors[client_id] = Cursor(
                    self._ring, client_id, table_filter, position
                )

    def begin_run(self, position: tuple[int, int] | None) -> None:
        """Note that the next put does not continue after the last entry.

        The source is read from `position` on, None: by a GTID set. Called by the pump.
        """
        with self._lock:
            self._run.begin(position, self._ring.put_sequence)

    @property
    def run(self) -> int:
        """Return the number of the run that is being read."""
        return self._run.number

    def covers(self, position: tuple[int, int], run: int) -> bool:
        """Return whether everything that the pump reads after a position is kept here.

        `position` is in the binlog of that run.
        """
        with self._lock:
            return self._covers(position, run)

    def _covers(self, position: tuple[int, int], run: int) -> bool:
        is_this = not self._closed and run and run == self._run.number
        return bool(is_this) and self._run.is_kept_after(position, self._ring)

    def join(
        self,
        client_id: int,
        table_filter: TablePredicate | None,
        after: tuple[int, int],
        run: int,
        *,
        needs: tuple[int, int],
    ) -> bool:
        """Give a client a cursor as `subscribe`; false unless the store has its needs.

        It needs everything after the position `needs`.
        """
        with self._lock:
            if not self._covers(needs, run):
                return False
            self._cursors[client_id] = Cursor(
                self._ring, client_id, table_filter, after
            )
            return True

    def end(self) -> None:
        """Report that nothing more is put: from now on a get answers at once."""
        with self._lock:
            self._ended = True
            for getter in self._getters:
                getter.wake()

    def is_drained(self, client_id: int, *, acked: bool) -> bool:
        """Return whether a client got all (and acked it), or has no cursor."""
        with self._lock:
            cursor = self._cursors.get(client_id)
            return cursor is None or is_drained(cursor, acked=acked)

    def has_all(self, client_id: int) -> bool:
        """Return whether a client has a cursor and has got and acked everything."""
        with self._lock:
            cursor = self._cursors.get(client_id)
            return cursor is not None and is_drained(cursor, acked=True)

    def look_again(self) -> None:
        """Make a waiting put check again, after a client disconnected."""
        with self._lock:
            if self._putter is not None:
                self._putter.wake()

    def unsubscribe(self, client_id: int) -> None:
        """Forget a client's cursor and free what only it retained."""
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
        """Reset a client's get sequence to its ack sequence."""
        with self._lock:
            self._cursor(client_id).rollback()
            self._wake_getters()

    def forget_after(self, client_id: int, source: int = 0) -> None:
        """Deliver all entries to a client, whatever its `after` was.

        In a group, those of one source. No effect once the client got entries, and for
        a client without a cursor.
        """
        with self._lock:
            cursor = self._cursors.get(client_id)
            if cursor is not None:
                cursor.forget_after(source)
                self._wake_getters()

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return the transaction boundary after which the client's entries come.

        None when the ring had none so far.
        """
        with self._lock:
            cursor = self._cursor(client_id)
            cursor.scan()
            boundary = cursor.resume_boundary()
        return None if boundary is None else position_of(boundary)

    def oldest_position(self) -> EntryPosition | None:
        """Return the transaction boundary after which all entries in the ring come."""
        with self._lock:
            boundary = self._ring.boundary_before(self._ring.free_sequence)
        return None if boundary is None else position_of(boundary)

    def resume_positions(self, client_id: int) -> dict[int, EntryPosition]:
        """Return the same for each source of a group that has one, by number."""
        with self._lock:
            cursor = self._cursor(client_id)
            cursor.scan()
            boundaries = cursor.resume_boundaries()
        return {
            source: position_of(position) for source, position in boundaries.items()
        }

    def close(self) -> None:
        """Drop the content and end every waiting get and put."""
        with self._lock:
            self._closed = True
            self._cursors.clear()
            self._ring.free_before(self._ring.put_sequence)
            for getter in self._getters:
                getter.wake()
            self.taps.close()
            if self._putter is not None:
                self._putter.wake()

    def _cursor(self, client_id: int) -> Cursor:
        assert self._lock.locked()
        if (found := self._cursors.get(client_id)) is None:
            raise StoreError(f"client {client_id} has no cursor; subscribe first")
        return found

    def _free_acked(self) -> None:
        """Free what every cursor has acked; without cursors nothing is freed."""
        assert self._lock.locked()
        cursors, holder = self._cursors, self._holder
        if (
            holder is not None
            and holder.ack_sequence == self._ring.free_sequence
            and cursors.get(holder.client_id) is holder
        ):
            return  # a fast path: true for each ack while other clients are idle
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
        *,
        whole: bool = False,
    ) -> Batch | None:
        """Fetch the next entries, None when there are none in time.

        `timeout_s`: 0 does not wait, None waits without limit. Returns None early when
        the peer of the socket `peer_fd` disconnects; then no entry is fetched. `whole`:
        the last entry ends a transaction, or none of them does. Raises StoreError for a
        client without a cursor.
        """
        check_size(client_id, batch_size)
        deadline = Deadline(timeout_s)
        with self._lock:
            if self._closed:
                return None
            cursor = self._cursor(client_id)
        limits = self._rules.limits(batch_size)
        with Getter(cursor, limits, peer_fd, whole=whole) as getter:
            fetched = self._get_waiting(getter, deadline)
        return None if fetched is None else batch_of(fetched)

    def _get_waiting(self, getter: Getter, deadline: Deadline) -> Fetched | None:
        try:
            while True:
                # A wake-up meanwhile is noticed below, under the lock.
                if not self._ask_filter(getter.cursor, lambda: getter.sleep(0)):
                    return None
                with self._lock:
                    wait_s = self._wait_s(getter, deadline)
                    if getter.cursor.asks and not self._closed:
                        continue
                    if wait_s == 0:
                        # The last check of the peer, just before entries are fetched.
                        return None if getter.sleep(0) else self._fetch(getter)
                    self._getters.add(getter)
                if getter.sleep(wait_s):
                    return None
        finally:
            # Before its descriptor is closed: from here on nothing wakes it.
            with self._lock:
                self._getters.discard(getter)

    def _wait_s(self, getter: Getter, deadline: Deadline) -> float | None:
        """Return how long the get may still wait, 0: answer now, None: no limit."""
        if self._closed:
            return 0
        cursor = getter.cursor
        if self._cursors.get(cursor.client_id) is not cursor:
            raise StoreError(
                f"client {cursor.client_id} was unsubscribed during its get"
            )
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

    def _fetch(self, getter: Getter) -> Fetched | None:
        assert self._lock.locked()
        if self._closed:
            return None
        return getter.cursor.fetch(
            getter.count_max,
            getter.bytes_max,
            self._frame_bytes_max,
            self._config.ddl_isolation,
            getter.whole,
        )

    # -- metrics ------------------------------------------------------------------

    def counts(self) -> StoreCounts:
        """Return a snapshot of the numbers."""
        with self._lock:
            return counts_of(
                self._ring,
                self._cursors.values(),
                put_waiting_ns=self.put_waiting_ns,
                block_bytes=bytes_in_use(self._pool),
            )
