"""Where ranges of one destination are read: in memory, or of the source again.

Decides which of the two may answer, and lets so many dumps work at a time. Used by the
threads of connections, many at a time. Leaves out cursors (`ranged`) and how far a
batch goes (`range_heads`).
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
    order_of,
    tells_sets,
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
    from canal_server.model.ranges import Epoch, RangePart, RangePlace, Subscription
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.ports import Span
    from canal_server.ranges.range_cursors import Subscriptions
    from canal_server.ranges.range_mapping import Mapped
    from canal_server.ranges.recent_records import Tail
    from canal_server.source.pump.pump import Pump

_log = logging.getLogger(__name__)

DUMPS_MAX: Final = 8  # ranges that are read at a time
STALL_S: Final = 5.0  # then who takes nothing is cut off, if others wait for a turn
CUT_WAIT_S: Final = 5.0  # how long its turn may take to be free
DUMP_WAIT_S: Final = 30.0  # how long a request waits for its turn
BEGIN_S: Final = 30.0  # how long a request waits until the source is being read
LOOK_S: Final = 0.1  # how often it is looked whether the source refuses that
FILTERS_MAX: Final = 1000  # that are kept ready
NOWHERE: Final = 1 << 62  # number of a file that there is not
MAPPED_MAX: Final = 256  # places of older epochs that are kept
SWITCHING: Final = "another server is about to be read; try again"
STOPPING: Final = "a range cannot be read while the destination stops"


@dataclass(frozen=True, slots=True)
class Live:
    """The stages that a destination has now; another one once cursors were moved."""

    pump: Pump
    table_ids: TableIds
    tail: Tail


class RangeAccess:
    """What heads, plans and reads of one destination have in common."""

    def __init__(self, config: InstanceConfig, subscriptions: Subscriptions) -> None:
        self.stop = Stop()
        self._config = config
        self._subscriptions = subscriptions
        self._live: Live | None = None
        # Guards what follows, and that one thread at a time finds out the epoch.
        self._lock = threading.Lock()
        self._filters: dict[str, TableFilter] = {}  # by expression
        self._filters_size = 0
        # From where on the pump reads what a subscription wants: by its name the
        # filter, the tail and its resets then, and a place; all if there is none.
        self._admitted: dict[str, tuple[str, Tail, int, tuple[int, int]]] = {}
        # In GTID mode a boundary from which on the pump's sets are exact.
        self._exact: tuple[Tail, int, tuple[int, int]] | None = None
        self._checked: tuple[Tail, int] | None = None  # whose epoch is `_epoch`
        self._epoch: Epoch | None = None
        # Whose sets, outside of GTID mode, were found to be exact.
        self._followed: tuple[Tail, int] | None = None
        self._info: ServerInfo | None = None  # of the server that was looked at last
        # Of places of older epochs that stay where they are: by the epoch of now.
        self._mapped: dict[tuple[int, RangePlace, str], Mapped] = {}
        self.replays = KeptReplays()
        self._unread = UnreadStatements()
        self._slots = list(range(DUMPS_MAX))
        self._slot_free = threading.Condition()
        # Pieces that are being sent: since when, and what ends that. Guarded by it.
        self._sending: dict[object, tuple[float, Callable[[], None]]] = {}
        # Heads, plans and reads that memory answered, and looks at the binlog.
        self.answered = {"memory": 0, "binlog": 0}

    def attach(self, live: Live) -> None:
        """Read from these stages from now on."""
        self._live = live

    def request_stop(self) -> None:
        """End what is read and waited for; returns at once."""
        self.stop.request()
        if self._live is not None:
            self._live.tail.wake()
        with self._slot_free:
            self._slot_free.notify_all()

    def stages(self) -> Live:
        """Return what ranges are read from. Raises CanalError before there is any."""
        if self._live is None:
            raise CanalError(f"destination {self._config.destination} has not begun")
        return self._live

    def filter_of(self, expression: str, *, probe: bool = False) -> TableFilter:
        """Return the filter of an expression. Raises ClientError.

        `probe`: also where it takes too long on a long name; for what is not stored.
        """
        known = self._filters.get(expression)
        if known is not None:
            return known
        found = client_filter(expression, self._config.filter, probe=probe)
        with self._lock:
            self._filters_size += found.size
            if len(self._filters) >= FILTERS_MAX or self._filters_size > SIZE_MAX:
                self._filters.clear()
                self._filters_size = found.size
            self._filters[expression] = found
        return found

    # --- memory -----------------------------------------------------------------------

    def admit(self, name: str, expression: str, latest: RangePlace) -> None:
        """Take note that the pump was told what a subscription wants.

        What the source had written by then, up to `latest`, may have been read without.
        """
        live = self.stages()
        place = order_of(latest.journal, latest.position)
        with self._lock:
            self._admitted[name] = expression, live.tail, live.tail.resets, place

    def suspend(self, name: str) -> None:
        """Let memory answer nothing of a subscription until it is admitted."""
        tail = self.stages().tail
        with self._lock:
            self._admitted[name] = "", tail, tail.resets, (NOWHERE, 0)

    def forget(self, name: str) -> None:
        """Forget a subscription."""
        with self._lock:
            self._admitted.pop(name, None)

    def held(
        self, subscription: Subscription, start: RangePlace, end: RangePlace | None
    ) -> tuple[list[Span], TableIds] | None:
        """Return the tail's spans of a range; None unless it holds all that is wanted.

        So it is for a range of an older epoch.
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
            expression, then, count, place = admitted
            is_newer = (then, count) != (tail, resets)
            if expression != subscription.filter or not (is_newer or begin >= place):
                return None
        if not self._tells_sets_exactly(live, resets, begin):
            return None
        stop = None if end is None else order_of(end.journal, end.position)
        spans = tail.spans_from(begin, stop)
        if spans is None or tail.resets != resets:
            return None
        self.answered["memory"] += 1
        return spans, live.table_ids

    def epoch_of(self, live: Live) -> int | None:
        """Return the epoch of what the tail holds, None while nobody has looked."""
        if self._checked != (live.tail, live.tail.resets) or self._epoch is None:
            return None
        return self._epoch.number

    def _tells_sets_exactly(
        self, live: Live, resets: int, begin: tuple[int, int]
    ) -> bool:
        """Tell whether the sets in entries are those that reading again would give.

        A session that began with a client's set may count transactions as executed that
        the source has not, or not yet at that place.
        """
        if not self._config.source.gtid_on:
            return True
        exact_from = live.pump.exact_from
        if exact_from is not None and begin[0] >= exact_from:
            return True
        if self._exact is None:
            return False
        tail, count, place = self._exact
        return (tail, count) == (live.tail, resets) and begin >= place

    def _compare_sets(self, dump: RangeDump, tail: Tail, resets: int) -> None:
        """Learn from what was read again whether the pump's sets are exact."""
        if dump.executed is not None:
            place, gtids = dump.executed
            if tail.gtids_at(place) == gtids and tail.resets == resets:
                self._exact = tail, resets, place

    def walk_of(
        self,
        expression: str,
        start: RangePlace,
        end: RangePlace,
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
        """Look at the source, when it is this thread's turn. Raises CanalError."""
        with self.slot() as slot:
            live = self.stages()
            self._await_session(live)
            tail, resets = live.tail, live.tail.resets
            source = live.pump.sources.current
            access = source.access

            def reached() -> EntryPosition | None:
                # Of another session it may be a place of another server.
                place = live.pump.delivered_to
                return place if tail.resets == resets else None

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
                # Nothing is lost by that: the same is there once they answer again.
                if self.stop.requested():
                    raise ClientError(STOPPING, code=NOT_HERE) from error
                of_source = isinstance(error, SourceError)
                what = "the source cannot be read now: " if of_source else ""
                raise ClientError(f"{what}{error}; try again", code=NOT_HERE) from error

    def _await_session(self, live: Live) -> None:
        """Wait for the pump's first session, which learns what the tables are.

        Where cursors keep it from beginning, ranges are read without it.
        """
        deadline = Deadline(BEGIN_S)
        while not (live.tail.resets or live.pump.lacks_place or deadline.passed()):
            if self.stop.requested():
                return
            live.tail.wait(live.tail.changes, LOOK_S, None)

    def _note_epoch(self, dump: RangeDump, tail: Tail, resets: int) -> None:
        """Find out the epoch, and whether it is that of what the tail holds."""
        assert self._lock.locked()
        epoch = dump.look()
        is_of_tail = tail.server == epoch.source
        if (tail, resets) == self._checked and epoch != self._epoch:
            is_of_tail = False  # that was begun anew in front of the session's end
        self._epoch, self._info = epoch, dump.info
        self._checked = (tail, resets) if is_of_tail else None
        self.answered["binlog"] += 1

    def is_now(self, place: RangePlace) -> bool:
        """Tell whether a place is of the epoch that was found last."""
        return self._epoch is not None and place.epoch == self._epoch.number

    def mapped(self, dump: RangeDump, place: RangePlace) -> Mapped:
        """Return a place as one of the binlog that a dump looks at.

        What an older one is, is found once. Raises as `RangeDump.mapped`.
        """
        if place.epoch == dump.epoch.number:
            return dump.mapped(place)
        key = dump.epoch.number, place, place.gtids
        found = self._mapped.get(key)
        if found is None:
            found = dump.mapped(place)
            if len(self._mapped) >= MAPPED_MAX:
                self._mapped.clear()
            self._mapped[key] = found
            _log.info(
                "destination %s: %s is %s now",
                self._config.destination,
                place,
                found.place,
            )
        return found

    # --- sets -------------------------------------------------------------------------

    def with_set(self, place: RangePlace, since: RangePlace) -> RangePlace:
        """Return the end of a batch from `since` on with the set executed there.

        It is what tells it from others once the source is another server. Raises
        ClientError, when it cannot be read now.
        """
        info = self._info
        if place.gtids or info is None or not tells_sets(self._config, info):
            return place
        live = self.stages()
        tail, resets = live.tail, live.tail.resets
        epoch = self._epoch
        known = ""
        if self._checked == (tail, resets):
            known = self._known_set(live, place)
            is_exact = (tail, resets) == self._followed or self._config.source.gtid_on
            if known and is_exact and tail.resets == resets and epoch is self._epoch:
                return replace(place, gtids=known)
        with self.dump() as dump:
            if dump.epoch.number != place.epoch:
                raise ClientError(SWITCHING, code=NOT_HERE)
            found = dump.with_set(place, since)
        if known and self._checked == (tail, resets):
            # What follows on a set that is right is right as well.
            self._followed = (tail, resets) if known == found.gtids else None
        return found

    def with_sets(self, parts: list[RangePart]) -> list[RangePart]:
        """Return parts with the sets at their ends, where memory tells them."""
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

    def _known_set(self, live: Live, place: RangePlace) -> str:
        """Return the set at a place as the pump has it, empty if it has none there."""
        if self._config.source.gtid_on:
            where = order_of(place.journal, place.position)
            return live.tail.gtids_at(where) or ""
        sets = live.pump.sets
        sets.tells = True
        wanted = place.journal, place.position
        # A copy: the pump's thread adds to it.
        return next((text for *at, text in tuple(sets.told) if tuple(at) == wanted), "")

    @contextlib.contextmanager
    def sending(self, cut: Callable[[], None] | None) -> Iterator[None]:
        """Send a piece, for which others may have to wait; `cut` ends that.

        It is called when the reader takes nothing of it for a while and all turns are
        taken: whoever stalls holds up nobody else.
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
        """Cut off who stalls longest; returns when to look again, in seconds."""
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
        """Wait until fewer than the limit of ranges are read."""
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
