"""Chooses where ranges of one destination are read: from memory, or from the source.

Limits how many dumps run at a time. Used by many connection threads at once. Leaves out
cursors (`ranged_reads`) and how far a batch reaches (`range_heads`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.errors import (
    BinlogPurged,
    CanalError,
    ClientError,
    SourceError,
    TableMetaStoreError,
)
from canal_server.filters.client_filters import SIZE_MAX, client_filter
from canal_server.messages import ranged_read_messages
from canal_server.protocol.range_messages import NOT_HERE
from canal_server.ranges.range_schemas import RangeTables
from canal_server.ranges.range_source import (
    CUT_ROWS,
    RangeDump,
    has_sets_at_positions,
    order_of,
)
from canal_server.ranges.range_unread import UnreadStatements
from canal_server.ranges.selection import RangeWalk
from canal_server.runtime.lifecycle import Deadline, Stop
from canal_server.tablemeta.history.replay_cache import KeptReplays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.config.schema import InstanceConfig
    from canal_server.core.table_ids import TableIds
    from canal_server.filters.table_filters import TableFilter
    from canal_server.model.positions import EntryPosition
    from canal_server.model.ranges import Epoch, EpochPosition, RangePart, Subscription
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.ports import Span
    from canal_server.ranges.range_cursors import Subscriptions
    from canal_server.ranges.range_mapping import Mapped
    from canal_server.ranges.recent_records import Tail
    from canal_server.source.pump.pump import Pump

_log = logging.getLogger(__name__)

DUMPS_MAX: Final = 8  # ranges that are read at a time
STALL_S: Final = 5.0  # then a stalled reader is cut off, if others wait for a slot
CUT_WAIT_S: Final = 5.0  # how long its slot may take to become free
DUMP_WAIT_S: Final = 30.0  # how long a request waits for a slot
BEGIN_S: Final = 30.0  # how long a request waits until the source is being read
LOOK_S: Final = 0.1  # interval of checks whether the source refuses to start
FILTERS_MAX: Final = 1000  # compiled filters in the cache
NOWHERE: Final = 1 << 62  # a file number that does not exist
MAPPED_MAX: Final = 256  # positions of older epochs in the cache
SWITCHING: Final = "the source is being switched to another server; try again"
STOPPING: Final = "a range cannot be read while the destination is stopping"


@dataclass(frozen=True, slots=True)
class Live:
    """The current stages of a destination; replaced after cursors were moved."""

    pump: Pump
    table_ids: TableIds
    tail: Tail


class RangeAccess:
    """What heads, plans and reads of one destination share."""

    def __init__(self, config: InstanceConfig, subscriptions: Subscriptions) -> None:
        self.stop = Stop()
        self._config = config
        self._subscriptions = subscriptions
        self._live: Live | None = None
        # Guards what follows, and lets one thread at a time determine the epoch.
        self._lock = threading.Lock()
        self._filters: dict[str, TableFilter] = {}  # by expression
        self._filters_size = 0
        # By subscription: filter, tail and its reset count at that time, and the
        # position from which the pump has read what the subscription selects.
        self._admitted: dict[str, tuple[str, Tail, int, tuple[int, int]]] = {}
        # In GTID mode a boundary from which the pump's sets are exact.
        self._exact: tuple[Tail, int, tuple[int, int]] | None = None
        self._checked: tuple[Tail, int] | None = None  # whose epoch is `_epoch`
        self._epoch: Epoch | None = None
        # The tail whose sets, outside of GTID mode, were found to be exact.
        self._followed: tuple[Tail, int] | None = None
        self._info: ServerInfo | None = None  # of the server that was queried last
        # Positions of older epochs that no longer move, by the current epoch.
        self._mapped: dict[tuple[int, EpochPosition, str], Mapped] = {}
        self.replays = KeptReplays()
        self._unread = UnreadStatements()
        self._slots = list(range(DUMPS_MAX))
        self._slot_free = threading.Condition()
        # Pieces being sent: since when, and how to cut them off. Guarded by the
        # condition.
        self._sending: dict[object, tuple[float, Callable[[], None]]] = {}
        # Heads, plans and reads that memory answered, and queries of the binlog.
        self.answered = {"memory": 0, "binlog": 0}

    def attach(self, live: Live) -> None:
        """Read from these stages from now on."""
        self._live = live

    def request_stop(self) -> None:
        """End all reads and waits; returns at once."""
        self.stop.request()
        if self._live is not None:
            self._live.tail.wake()
        with self._slot_free:
            self._slot_free.notify_all()

    def stages(self) -> Live:
        """Return the stages that ranges are read from; CanalError before a start."""
        if self._live is None:
            raise CanalError(f"destination {self._config.destination} has not started")
        return self._live

    def filter_of(self, expression: str, *, probe: bool = False) -> TableFilter:
        """Return the filter of an expression. Raises ClientError.

        `probe`: also reject one that is too slow on a long name; for filters not stored
        yet.
        """
        known = self._filters.get(expression)
        if known is not None:
            return known
        # Readers of ranges follow tables, whose rows a statement on another one moves.
        found = client_filter(expression, self._config.filter, probe=probe, beside=True)
        with self._lock:
            self._filters_size += found.size
            if len(self._filters) >= FILTERS_MAX or self._filters_size > SIZE_MAX:
                self._filters.clear()
                self._filters_size = found.size
            self._filters[expression] = found
        return found

    # --- memory -----------------------------------------------------------------------

    def admit(self, name: str, expression: str, latest: EpochPosition) -> None:
        """Record that the pump was given a subscription's filter.

        What the source had written by then, up to `latest`, may have been read without
        it.
        """
        live = self.stages()
        position = order_of(latest.journal, latest.position)
        with self._lock:
            self._admitted[name] = expression, live.tail, live.tail.resets, position

    def suspend(self, name: str) -> None:
        """Stop answering a subscription from memory until it is admitted again."""
        tail = self.stages().tail
        with self._lock:
            self._admitted[name] = "", tail, tail.resets, (NOWHERE, 0)

    def forget(self, name: str) -> None:
        """Remove a subscription."""
        with self._lock:
            self._admitted.pop(name, None)

    def held(
        self,
        subscription: Subscription,
        start: EpochPosition,
        end: EpochPosition | None,
    ) -> tuple[list[Span], TableIds] | None:
        """Return the tail's spans of a range; None unless it holds all selected rows.

        None for a range of an older epoch, too.
        """
        live = self.stages()
        tail, resets = live.tail, live.tail.resets
        if self._checked != (tail, resets) or self._epoch is None:
            return None
        if start.epoch != self._epoch.number:
            return None
        begin = order_of(start.journal, start.begin or start.position)
        admitted = self._admitted.get(subscription.name)
        if admitted is not None:
            expression, then, count, position = admitted
            is_newer = (then, count) != (tail, resets)
            if expression != subscription.filter or not (is_newer or begin >= position):
                return None
        if not self._sets_are_exact(live, resets, begin):
            return None
        stop = None if end is None else order_of(end.journal, end.position)
        spans = tail.spans_from(begin, stop)
        if spans is None or tail.resets != resets:
            return None
        self.answered["memory"] += 1
        return spans, live.table_ids

    def epoch_of(self, live: Live) -> int | None:
        """Return the epoch of what the tail holds, None while it is not determined."""
        if self._checked != (live.tail, live.tail.resets) or self._epoch is None:
            return None
        return self._epoch.number

    def _sets_are_exact(self, live: Live, resets: int, begin: tuple[int, int]) -> bool:
        """Return whether the sets in entries are those that a second read would give.

        A session that started with a client's set may count transactions as executed
        that the source has not, or not yet at that position.
        """
        if not self._config.source.gtid_on:
            return True
        exact_from = live.pump.exact_from
        if exact_from is not None and begin[0] >= exact_from:
            return True
        if self._exact is None:
            return False
        tail, count, position = self._exact
        return (tail, count) == (live.tail, resets) and begin >= position

    def _compare_sets(self, dump: RangeDump, tail: Tail, resets: int) -> None:
        """Learn from a second read whether the pump's sets are exact."""
        if dump.executed is not None:
            position, gtids = dump.executed
            if tail.gtids_at(position) == gtids and tail.resets == resets:
                self._exact = tail, resets, position

    def walk_of(
        self,
        expression: str,
        start: EpochPosition,
        end: EpochPosition,
        table_ids: TableIds,
        *,
        picks: bool = False,
    ) -> RangeWalk:
        """Return a walk over the tail's spans of a range."""
        begin = start.begin or start.position
        return RangeWalk(
            self.filter_of(expression).accepts,
            table_ids,
            order_of(start.journal, start.position),
            order_of(end.journal, end.position),
            begin=order_of(start.journal, begin),
            cut_rows=CUT_ROWS,
            picks=picks,
        )

    # --- the binlog -------------------------------------------------------------------

    @contextlib.contextmanager
    def dump(self) -> Iterator[RangeDump]:
        """Query the source when a slot is free. Raises CanalError."""
        with self.slot() as slot:
            live = self.stages()
            self._await_session(live)
            tail, resets = live.tail, live.tail.resets
            source = live.pump.sources.current
            access = source.access

            def reached() -> EntryPosition | None:
                # In another session it may be a position of another server.
                position = live.pump.delivered_to
                return position if tail.resets == resets else None

            dump = RangeDump(
                self._config,
                access,
                self._subscriptions,
                live.pump.index,
                self.stop,
                slot,
                RangeTables(self.replays, self._unread, reached),
            )
            try:
                with dump:
                    with self._lock:
                        if live.pump.sources.current is not source:
                            raise ClientError(SWITCHING, code=NOT_HERE)
                        self._note_epoch(dump, tail, resets)
                    yield dump
                    self._compare_sets(dump, tail, resets)
            except BinlogPurged:
                raise
            except (SourceError, TableMetaStoreError) as error:
                # Nothing is lost: the data is there once the source answers again.
                if self.stop.requested():
                    raise ClientError(STOPPING, code=NOT_HERE) from error
                of_source = isinstance(error, SourceError)
                what = "the source cannot be read now: " if of_source else ""
                raise ClientError(f"{what}{error}; try again", code=NOT_HERE) from error

    def _await_session(self, live: Live) -> None:
        """Wait for the pump's first session, which loads the table schemas.

        Where cursors keep it from starting, ranges are read without it.
        """
        deadline = Deadline(BEGIN_S)
        while not (live.tail.resets or live.pump.is_purged or deadline.passed()):
            if self.stop.requested():
                return
            live.tail.wait(live.tail.changes, LOOK_S, None)

    def _note_epoch(self, dump: RangeDump, tail: Tail, resets: int) -> None:
        """Determine the epoch, and whether the tail's content belongs to it."""
        assert self._lock.locked()
        epoch = dump.look()
        is_of_tail = tail.server == epoch.source
        if (tail, resets) == self._checked and epoch != self._epoch:
            is_of_tail = False  # the tail was reset before the end of the session
        self._epoch, self._info = epoch, dump.info
        self._checked = (tail, resets) if is_of_tail else None
        self.answered["binlog"] += 1

    def is_now(self, position: EpochPosition) -> bool:
        """Return whether a position is of the current epoch."""
        return self._epoch is not None and position.epoch == self._epoch.number

    def mapped(self, dump: RangeDump, position: EpochPosition) -> Mapped:
        """Return a position translated to the binlog that a dump reads.

        An older position is translated once. Raises as `RangeDump.mapped`.
        """
        if position.epoch == dump.epoch.number:
            return dump.mapped(position)
        key = dump.epoch.number, position, position.gtids
        found = self._mapped.get(key)
        if found is None:
            found = dump.mapped(position)
            if len(self._mapped) >= MAPPED_MAX:
                self._mapped.clear()
            self._mapped[key] = found
            _log.info(
                "destination %s: position %s of an earlier epoch is %s now",
                self._config.destination,
                position,
                found.position,
            )
        return found

    # --- sets -------------------------------------------------------------------------

    def with_set(self, position: EpochPosition, since: EpochPosition) -> EpochPosition:
        """Return the end of a batch from `since` on with the set executed there.

        The set identifies it once the source is another server. Raises ClientError,
        when the source cannot be read now.
        """
        info = self._info
        if (
            position.gtids
            or info is None
            or not has_sets_at_positions(self._config, info)
        ):
            return position
        live = self.stages()
        tail, resets = live.tail, live.tail.resets
        epoch = self._epoch
        known = ""
        if self._checked == (tail, resets):
            known = self._known_set(live, position)
            is_exact = (tail, resets) == self._followed or self._config.source.gtid_on
            if known and is_exact and tail.resets == resets and epoch is self._epoch:
                return replace(position, gtids=known)
        with self.dump() as dump:
            if dump.epoch.number != position.epoch:
                raise ClientError(SWITCHING, code=NOT_HERE)
            found = dump.with_set(position, since)
        if known and self._checked == (tail, resets):
            # What continues an exact set is exact as well.
            self._followed = (tail, resets) if known == found.gtids else None
        return found

    def with_sets(self, parts: list[RangePart]) -> list[RangePart]:
        """Return parts with the sets at their ends, where memory has them."""
        live = self.stages()
        tail, resets = live.tail, live.tail.resets
        if not self._config.source.gtid_on or self._checked != (tail, resets):
            return parts
        found: list[RangePart] = []
        for part in parts:
            end = part.end
            if not (end.gtids or end.begin):
                end = replace(end, gtids=self._known_set(live, end))
            start = found[-1].end if found else part.start
            found.append(replace(part, start=start, end=end))
        return found if tail.resets == resets else parts

    def _known_set(self, live: Live, position: EpochPosition) -> str:
        """Return the pump's set at a position; empty if it has none there."""
        if self._config.source.gtid_on:
            where = order_of(position.journal, position.position)
            return live.tail.gtids_at(where) or ""
        sets = live.pump.sets
        sets.records_chunk_ends = True
        boundary = position.journal, position.position
        # A copy: the pump's thread adds to it.
        return next(
            (text for *at, text in tuple(sets.chunk_ends) if tuple(at) == boundary), ""
        )

    @contextlib.contextmanager
    def sending(self, cut: Callable[[], None] | None) -> Iterator[None]:
        """Send a piece, for which others may have to wait; `cut` aborts the sending.

        It is called when the reader accepts nothing for a while and all slots are in
        use: a stalled reader must not block the others.
        """
        key = object()
        if cut is not None:
            with self._slot_free:
                self._sending[key] = time.monotonic(), cut
        try:
            yield
        finally:
            with self._slot_free:
                self._sending.pop(key, None)

    def _cut_stalled(self) -> float:
        """Cut off the longest stalled reader; return the delay to the next check, s."""
        if not self._sending:
            return STALL_S
        key, (since_s, cut) = min(self._sending.items(), key=lambda each: each[1][0])
        age_s = time.monotonic() - since_s
        if age_s < STALL_S:
            return STALL_S - age_s
        del self._sending[key]
        ranged_read_messages.RANGE_READER_STALLED.log(
            _log, self._config.destination, age_s, DUMPS_MAX
        )
        cut()
        return CUT_WAIT_S

    @contextlib.contextmanager
    def slot(self) -> Iterator[int]:
        """Wait until fewer ranges than the limit are being read."""
        deadline = Deadline(DUMP_WAIT_S)
        with self._slot_free:
            while not (self._slots or self.stop.requested() or deadline.passed()):
                left_s = deadline.remaining_s() or 0.0
                self._slot_free.wait(min(left_s, self._cut_stalled()))
            if self.stop.requested():
                raise ClientError(STOPPING, code=NOT_HERE)
            if not self._slots:
                raise ClientError(
                    f"{DUMPS_MAX} ranges of destination {self._config.destination} are"
                    " already being read, which is the limit; try again",
                    code=NOT_HERE,
                )
            slot = self._slots.pop()
        try:
            yield slot
        finally:
            with self._slot_free:
                self._slots.append(slot)
                self._slot_free.notify()
