"""One destination, wired: the only place where its stages meet.

::

    pump ─► transaction buffer ─► sink ─► store ─► (server, per client)
     ▲                              │
     └── log positions ◄── flushed ─┘            meta manager ◄── acks
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from canal_server.catchup.lagging_clients import LaggingClients
from canal_server.core.table_ids import TableIds
from canal_server.doors.zookeeper import ZooKeepers
from canal_server.errors import (
    CanalError,
    StoreError,
)
from canal_server.filters.client_filters import ClientFilters
from canal_server.filters.column_filters import ColumnFilter
from canal_server.instance.wiring import (
    access_of,
    block_pool,
    boundary_index_of,
    check_room,
    default_filter,
    executed_sets_of,
    history_of,
    history_owner_of,
    log_position_manager_of,
    meta_manager_of,
    ranged_reads_of,
    serve_stored_clients,
    standby_access_of,
    standing_of,
    stop_writing,
    uncertain,
)
from canal_server.model.cursors import ClientCursor, DestinationCursors
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.pipeline.sink import EntrySink
from canal_server.pipeline.transaction_buffer import TransactionBuffer
from canal_server.position.data_loss import LostClients
from canal_server.position.ended_files import furthest_of, leaving_of
from canal_server.position.gtid_cache import unchanged
from canal_server.position.log_positions import (
    MetaLogPositionManager,
    same_server,
)
from canal_server.position.offline import check_subscribed, log_move, the_only
from canal_server.ranges.range_access import Live
from canal_server.ranges.recent_records import Tail
from canal_server.runtime.lifecycle import Deadline, Stop
from canal_server.source.pump.detecting import Detector
from canal_server.source.pump.pump import Pump
from canal_server.store.event_store import MemoryEventStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractContextManager

    from canal_server.config.schema import (
        InstanceConfig,
    )
    from canal_server.ports import MetaManager, RangeSource, Span, TablePredicate
    from canal_server.source.begin.position_loss import LostPosition

_log = logging.getLogger(__name__)


class Instance:
    """A Stage; also what the server sees of a destination (ports.RunningInstance)."""

    def __init__(
        self,
        config: InstanceConfig,
        zookeepers: ZooKeepers | None = None,
        *,
        held: Callable[[], bool] = uncertain,
    ) -> None:
        """Build without starting; instances of one process share `zookeepers`.

        `held` tells whether the right to run it is certain at this moment.
        """
        self.config = config
        self.destination = config.destination
        self._executed = executed_sets_of(config)
        zookeepers = zookeepers or ZooKeepers()
        self.meta: MetaManager = meta_manager_of(
            config,
            zookeepers,
            self._executed.completed if self._executed else unchanged,
        )
        self._history_owner = history_owner_of(config, zookeepers, held)
        self._late = LaggingClients(
            config,
            self.meta,
            zookeepers,
            lost=self._gone_for_one,
            refused=self._refuse_one,
        )
        self._log_positions = log_position_manager_of(
            config, self.meta, self._late.retains
        )
        self._default = default_filter(config)
        self._filters = ClientFilters(
            self.destination, config.filter, self._default, self._change_table_filter
        )
        self._lost = LostClients(
            self.destination, resets=config.source.auto_reset_latest
        )
        self._all_lost = False  # and so they are moved to where reading begins
        # Held while a client's place is judged and handed to the store.
        self._cursors_lock = threading.Lock()
        # Held while clients' places change, and while the stages are replaced.
        self._steady = threading.Lock()
        self._begin_stop = Stop()  # ends a start that waits
        self._moving = threading.Lock()  # one move of cursors at a time
        self._is_whole = True  # guarded by `_moving`
        self._stopping = False  # guarded by `_steady`
        # What clients want, and who reads ranges: the pump reads both.
        self._wants_lock = threading.Lock()
        self._client_wants: TablePredicate = self._filters.table_filter
        self._range_wants: TablePredicate | None = None
        self._ranges = ranged_reads_of(config, zookeepers, self._change_range_wants)
        self._make_stages()
        self.store = self._stores  # as the server sees it

    def _make_stages(self) -> None:
        """Make what the entries pass, empty: at first, and when cursors were moved."""
        config = self.config
        self._filters.clear()
        self._client_wants = self._filters.table_filter
        self._pool = block_pool()
        self._table_ids = TableIds()
        self._tail = tail = Tail(config.store.ranged_bytes_max)
        self._store = MemoryEventStore(
            config.store,
            self._table_ids,
            self._pool,
            destination=self.destination,
            held_elsewhere=tail.held_bytes,
            may_drop=lambda: tail.is_on,
            liveness=self._late,
        )
        self._sink = EntrySink(
            self._store, thin_markers=config.filter.transaction_entry
        )
        self._buffer = TransactionBuffer(
            config.buffer.transaction_size,
            config.buffer.memory_bytes_max,
            self._deliver,
        )
        access = access_of(config.source, config.destination)
        standby = standby_access_of(config.source)
        self._pump = Pump(
            config,
            access,
            self._pool,
            self._table_ids,
            self._log_positions,
            columns=ColumnFilter(config.filter.field, config.filter.black_field),
            table_filter=self._filters.table_filter,
            deliver=self._buffer.put,
            reset=self._reset,
            idle=self._idle,
            begun=self._begun,
            session=self._session_begins,
            cursors=self._cursors,
            gone=self._gone,
            history=history_of(config, self._history_owner),
            standby=standby,
            index=boundary_index_of(config),
            executed=self._executed,
        )
        self._stores = self._late.attach(self._store, self._pump, access, standby)
        self._leaving = leaving_of(
            self.destination, self.meta, self._stores.has_all, self._steady
        )
        self._ranges.attach(Live(self._pump, self._table_ids, tail))
        self._detector = Detector(config, self._pump, self._pump.stored)

    # --- Stage ----------------------------------------------------------------------

    def start(self) -> None:
        """Load what is stored, give each known client its cursor, start the pump.

        Waits for ZooKeeper where cursors are there, until a stop is asked for. Raises
        MetaStoreError when the stored cursors cannot be read.
        """
        self.meta.start()
        try:
            self._log_positions.start()
            self._ranges.start()
            self._late.start(self._begin_stop)
            self._late.judge()
            self._begin_stages(self._last_read())
        except BaseException:
            self._end_stages()  # one of them may have begun
            self._late.presence.stop()
            self._ranges.stop()
            self._log_positions.stop()
            self.meta.stop()
            raise
        _log.info("destination %s started", self.destination)

    def _begin_stages(self, server: LogIdentity | None) -> None:
        """Give each known client its cursor, and begin to read, first this server."""
        self._pump.begin_with(server)
        serve_stored_clients(self.meta, self.destination, self._serve_stored)
        # Only now: who finds a store finds its cursor in it.
        self.store = self._stores
        self._pump.start()
        self._detector.start()

    def _end_stages(self) -> None:
        """Have nothing read any more; no other server takes over meanwhile."""
        self._detector.request_stop()
        self._pump.request_stop()
        self._stores.request_stop_of_readers()
        self._detector.join(Deadline(None))
        self._pump.join(Deadline(None))
        self._stores.join(Deadline(None))

    def _last_read(self) -> LogIdentity | None:
        """Return the server that the newest cursor names, None without any.

        Not the oldest: that of a client which stays away may name a server which was
        left long ago.
        """
        cursors = [
            cursor
            for identity in self.meta.subscriptions(self.destination)
            if (cursor := self.meta.cursor(identity)) is not None
        ]
        if not cursors:
            return None
        return max(cursors, key=lambda each: each.position.timestamp or 0).identity

    def request_stop(self) -> None:
        """Ask the pump to stop and end all waits."""
        self.meta.request_stop()
        self._log_positions.request_stop()
        self._ranges.request_stop()
        self._begin_stop.request()
        with self._steady:  # stages that are being made are not started any more
            self._stopping = True
            self._detector.request_stop()
            self._pump.request_stop()
            self._stores.close()

    def join(self, deadline: Deadline) -> bool:
        """Wait for the pump, then write what is left of the cursors.

        They are written as well when the pump does not end, but only an instance that
        has ended raises MetaStoreError.
        """
        ended = self._detector.join(deadline)
        ended = self._pump.join(deadline) and ended
        ended = self._stores.join(deadline) and ended
        stops = (
            self._late.presence.stop,
            self._ranges.stop,
            self._log_positions.stop,
            self.meta.stop,
        )
        stop_writing(self.destination, *stops, ended=ended)
        return ended

    # --- what the operator uses -----------------------------------------------------

    def cursors(self) -> DestinationCursors:
        """Return where each client stands, and how far the source was read."""
        found = tuple(map(self._cursor_of, self._subscriptions()))
        # Before the first session it would be a client's.
        begun = self._pump.began_at is not None
        parsed = self._log_positions.latest(self.destination) if begun else None
        return DestinationCursors(found, parsed, reads=self._pump.identity)

    def _cursor_of(self, identity: ClientIdentity) -> ClientCursor:
        passed_to = self._pump.passed_to  # first: the store has all before it
        before, client_id = None, identity.client_id
        with contextlib.suppress(StoreError):  # it came or went just now
            # Of a late client's own store: what is in there is not acked.
            if (found := self._stores.resume_position(client_id)) is not None:
                before = self.log_position(found)
                if self._stores.has_all(client_id):
                    before = furthest_of(before, passed_to)
        open_batches = len(self.meta.batches(identity))
        return ClientCursor(identity, self.meta.cursor(identity), before, open_batches)

    def seek(self, clients: Collection[int], *positions: LogPosition) -> None:
        """Move clients' cursors, and begin to read anew at the smallest one of all.

        Blocks until the pump has ended. Batches that any client has open are void, and
        what they held comes again to those that are not moved. Raises ClientError for
        clients that are not subscribed, MetaStoreError when the cursors are moved but
        could not be written, CanalError when the place is another source's, or the
        instance stops meanwhile.
        """
        position = the_only(self.destination, positions)
        if not same_server(position.identity, self._pump.identity):
            raise CanalError(
                f"{position} is no place of the source that destination"
                f" {self.destination} reads, {self._pump.identity.address}:"
                f"{self._pump.identity.port}"
            )
        with self._moving:
            check_subscribed(
                self.destination,
                clients,
                [each.client_id for each in self._subscriptions()],
            )
            self._end_stages()
            # From here on no batch is registered or acked until all is moved.
            with self._steady:
                if self._stopping:
                    raise CanalError(f"destination {self.destination} is being stopped")
                self._is_whole = False
                for client in self.cursors().clients:
                    moved: LogPosition | None = position
                    if client.identity.client_id not in clients:
                        # What its filter rejected need not be read again.
                        moved = client.furthest()
                    else:
                        self._late.moved(client.identity.client_id)
                    if moved is not None:
                        self.meta.update_cursor(client.identity, moved)
                self._begin_anew(position)
                self._is_whole = True
            log_move(self.destination, clients, positions)
            self.meta.flush()

    def is_whole(self) -> bool:
        """Tell whether it reads, or will: not so when a move failed midway."""
        with self._moving:
            return self._is_whole

    def _subscriptions(self) -> list[ClientIdentity]:
        return self.meta.subscriptions(self.destination)

    def _begin_anew(self, moved_to: LogPosition) -> None:
        """Replace the stages, and read from the smallest cursor on."""
        assert self._steady.locked()
        self._late.judge()
        pinning = MetaLogPositionManager(self.meta, self._late.retains)
        smallest = pinning.latest(self.destination)
        self._log_positions.persist(self.destination, smallest or moved_to)
        for identity in self._subscriptions():
            self.meta.clear_batches(identity)
        old = self.store
        self._make_stages()
        self._lost.clear()
        self._begin_stages(moved_to.identity)
        old.close()

    # --- what the server uses -------------------------------------------------------

    def steady(self) -> AbstractContextManager[object]:
        """Keep store and cursors as they are; nothing waits in this context."""
        return self._steady

    @property
    def ranges(self) -> RangeSource:
        """Return what serves ranged reads."""
        return self._ranges

    def log_position(self, position: EntryPosition) -> LogPosition:
        """Return the position with this source's identity."""
        return LogPosition(position.source or self._pump.identity, position)

    def check_filter(self, expression: str) -> object:
        """Make a filter ready; raises ClientError when it cannot be used."""
        return self._filters.check(expression)

    def check_room(self, identity: ClientIdentity) -> None:
        """Raise ClientError when no further client may subscribe."""
        check_room(self.config, self.meta, identity)

    def why_refused(self, client_id: int) -> str:
        """Return why the stored filter of a client cannot be used, or nothing."""
        return self._filters.why_refused(client_id)

    def subscribed(self, identity: ClientIdentity) -> None:
        """Give the client its cursor and filter, and let the pump read its tables."""
        wanted = self._filters.enter(identity)
        self._late.presence.enter(identity.client_id)
        with self._cursors_lock:
            if not self._lost.why(identity.client_id):
                after = self._begins_after(identity)
                self._stores.subscribe(identity.client_id, wanted.accepts, after)

    def _serve_stored(self, identity: ClientIdentity) -> None:
        """Give a client its cursor before reading begins, unless it is late."""
        if self._late.is_late(identity.client_id):
            wanted = self._filters.enter(identity)
            self._stores.divert(identity.client_id, wanted.accepts)
        else:
            self.subscribed(identity)

    def came(self, client_id: int) -> None:
        """Take note that a connection serves a client."""
        self._late.presence.came(client_id)

    def left(self, client_id: int) -> None:
        """Take note that a connection that served a client ended."""
        self._late.left(client_id)

    def why_lost(self, client_id: int) -> str:
        """Return why a client can be given nothing, empty when it can."""
        return self._lost.why(client_id)

    def _begins_after(self, identity: ClientIdentity) -> EntryPosition | None:
        """Return the place behind which the client's entries begin, None: all."""
        return self._pump.begins_after(self.meta.cursor(identity))

    def _session_begins(self) -> None:
        """Look again which clients' places are places of the source that is read.

        A client subscribes under the same lock, so that it decides by the session
        before or by this one, and in the first case is looked at here.
        """
        with self._cursors_lock:
            for identity in self.meta.subscriptions(self.destination):
                if self._begins_after(identity) is None:
                    self._store.forget_after(identity.client_id)
        self._late.session_begins()

    def _cursors(self) -> list[EntryPosition]:
        """Return the places of clients in the binlog of this source."""
        found = map(self.meta.cursor, self.meta.subscriptions(self.destination))
        return [
            cursor.position
            for cursor in found
            if cursor and same_server(cursor.identity, self._pump.identity)
        ]

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return what lies before all of a client's entries, None: not known yet."""
        if self._lost.why(client_id):
            return None
        found = self._stores.resume_position(client_id)
        return (
            None
            if self._stores.is_diverted(client_id)
            else found or self._pump.began_at
        )

    def resume_places(self, client_id: int) -> dict[int, LogPosition]:
        """Return nothing: there is one source."""
        del client_id
        return {}

    def _begun(self, position: EntryPosition) -> None:
        """Let clients that have acked nothing begin here, also after a restart.

        A client that subscribes meanwhile finds the position with the pump, which
        knows it already.
        """
        for identity in self.meta.subscriptions(self.destination):
            if self._all_lost or self.meta.cursor(identity) is None:
                self.meta.update_cursor(identity, self.log_position(position))
        self._all_lost = False

    def _gone(self, gone: LostPosition) -> bool:
        """Begin at the oldest cursor that is left; false when there is none.

        Where the operator wants that, reading then begins at the end.
        """
        began = self._pump.has_delivered
        with self._cursors_lock:
            cursors = {
                identity: cursor
                for identity in self._subscriptions()
                if (cursor := self.meta.cursor(identity)) is not None
            }
            left = self._lost.leave_behind(
                cursors,
                gone,
                began=began,
                move=self.meta.update_cursor,
                drop=self._drop,
            )
        if left is None:
            self._all_lost = self._lost.resets and not began
            return False
        self._log_positions.persist(self.destination, left)
        return True

    def _gone_for_one(self, identity: ClientIdentity, gone: LostPosition) -> None:
        """Refuse or move a late client; the source lacks what comes next for it."""
        with self._cursors_lock:
            cursor = self.meta.cursor(identity)
            oldest = self._store.oldest_position() or self._pump.began_at
            if cursor is None or not self._stores.is_diverted(identity.client_id):
                return
            if self._lost.resets and oldest is not None:
                to = self.log_position(oldest)
                self._lost.tell_moved(identity, cursor, to, gone)
                self.meta.update_cursor(identity, to)
                self._stores.return_to_ring(identity.client_id)
            else:
                self._lost.refuse_one(identity, cursor, gone)
                self._drop(identity)

    def _refuse_one(self, client_id: int, why: str) -> None:
        """Refuse a late client of which the tables' columns are not known."""
        identity = ClientIdentity(self.destination, client_id)
        with self._cursors_lock:
            self._lost.refuse_because(identity, why)
            self._drop(identity)

    def _drop(self, identity: ClientIdentity) -> None:
        """Hold no entries for a client."""
        self._stores.unsubscribe(identity.client_id)
        self._filters.leave(identity)

    def unsubscribed(self, identity: ClientIdentity) -> None:
        """Take the client's cursor and wishes back."""
        self._lost.forget(identity.client_id)
        self._late.presence.forget(identity.client_id)
        self._drop(identity)

    def _change_table_filter(self, table_filter: TablePredicate) -> None:
        with self._wants_lock:
            self._client_wants = table_filter
            self._tell_wants()

    def _change_range_wants(self, table_filter: TablePredicate | None) -> None:
        with self._wants_lock:
            self._range_wants = table_filter
            self._tell_wants()

    def _tell_wants(self) -> None:
        clients, ranges = self._client_wants, self._range_wants
        self._pump.change_table_filter(
            clients if ranges is None else lambda names: clients(names) or ranges(names)
        )

    # --- what the pump's thread calls -----------------------------------------------

    def _deliver(self, spans: list[Span]) -> bool:
        """Put what leaves the buffer into the store; then it counts as delivered."""
        self._tail.busy()
        if not self._sink.accept(spans, self._pump.stop):
            return False
        self._tail.note(spans)  # once only, as what follows counts it as delivered
        self._pump.flushed(spans)
        return True

    def _reset(self, goes_on: bool) -> None:
        """Forget what is pending: it will be read again.

        The sink forgets an open transaction only when it is delivered anew from its
        beginning; where it goes on, its END must not count as that of an empty one.
        """
        self._buffer.reset()
        if not goes_on:
            self._sink.reset()
            self._late.begin_run()
            self._tail.reset(self._pump.reads_after, self._pump.server)

    def _idle(self) -> None:
        """Take note that the source has nothing more at hand."""
        self._store.wake_getters()
        self._tail.idle(self._pump.delivered_to)
        self._leaving.look(self._pump.passed_to)

    def status(self) -> dict[str, object]:
        """Return what an operator asks first, as plain values."""
        pump, diverted = self._pump.status, self._stores.diverted()
        return {
            "destination": self.destination,
            "state": pump.state.value,
            "source": pump.source,
            "position": pump.position,
            "position_ms": pump.delivered_at_ms or None,
            "error": pump.error,
            "reads": str(self._pump.sources.current),
            "switches": self._pump.sources.switches,
            "repeated": self._pump.repeated(),
            "detecting": self._detector.status(),
            "clients": [each.client_id for each in self._subscriptions()],
            "unreadable": self._pump.unreadable.status(),
            "lost_clients": self._lost.told(),
            "late_clients": self._late.status(),
            "waits_for": list(self._store.holders()),
            **pump.as_json(),
            **standing_of(
                self._store, self.meta, self.destination, self._late.presence, diverted
            ),
            "connected": self._late.presence.here(),
            "ranges": self._ranges.status(),
            "transactions": self._sink.counters.transactions,
            "rows": self._sink.counters.rows,
        }
