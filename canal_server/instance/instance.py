"""One destination: its stages, and what the server and the operator see of it.

::

    source ─► pipeline ─► ring ─► (server, per client)
      ▲                              │
      └── positions of clients ◄── acks

Its parts are in `stages` (what entries pass), `source_events` (what pumps report) and
`client_positions` (where clients stand). A destination with one source and a group of
several are both instances of this class.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.catchup.lagging_clients import LaggingClients
from canal_server.doors.zookeeper import ZooKeepers
from canal_server.errors import CanalError, StoreError
from canal_server.filters.client_filters import ClientFilters
from canal_server.instance.change_tap import ChangeTap
from canal_server.instance.client_lags import clients_now
from canal_server.instance.client_positions import ClientPositions, GroupPositions
from canal_server.instance.instance_metrics import metrics_of, received_by
from canal_server.instance.instance_status import status_of
from canal_server.instance.source_events import ServedClients
from canal_server.instance.stages import StageMaker, without_eviction
from canal_server.instance.wiring import (
    check_subscription_limit,
    completed_by,
    default_filter,
    executed_sets,
    history_owner_of,
    meta_manager_of,
    ranged_reads_of,
    serve_stored_clients,
    stop_writing,
    uncertain,
)
from canal_server.model.cursors import ClientCursor, DestinationCursors
from canal_server.model.identity import ClientIdentity
from canal_server.position.data_loss import LostClients
from canal_server.position.ended_files import furthest_of
from canal_server.position.log_position_managers import same_server
from canal_server.position.offline import check_subscribed, log_move
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from canal_server.capture.source_pipeline import SourcePipeline
    from canal_server.config.schema import InstanceConfig
    from canal_server.instance.client_lags import ClientsNow
    from canal_server.instance.instance_metrics import InstanceMetrics, Received
    from canal_server.instance.stages import Stages
    from canal_server.model.ddl_statement import FilteredNames
    from canal_server.model.positions import EntryPosition, LogPosition
    from canal_server.ports import EventStore, MetaManager, TablePredicate
    from canal_server.ranges.ranged_reads import RangedReads
    from canal_server.runtime.lifecycle import Deadline
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
        on_loaded: Callable[[MetaManager, Stop], None] | None = None,
    ) -> None:
        """Build without starting; instances of one process share `zookeepers`.

        `held` returns whether the right to run it is certain at this moment.
        `on_loaded` may move cursors when they are loaded, before anything is read; it
        raises CanalError, also for a stop.
        """
        self.config = config
        self.destination = config.destination
        zookeepers = zookeepers or ZooKeepers()
        executed = executed_sets(config)
        self.meta: MetaManager = meta_manager_of(
            config, zookeepers, completed_by(executed)
        )
        lagging = LaggingClients(
            without_eviction(config) if config.group else config,
            self.meta,
            zookeepers,
            on_lost=self._on_position_lost,
            on_refused=self._on_refused,
        )
        kind = GroupPositions if config.group else ClientPositions
        self._positions = kind(config, self.meta, lagging.retains)
        self._filters = ClientFilters(
            self.destination,
            config.filter,
            default_filter(config),
            self._change_client_filter,
        )
        resets = config.by_source[0].source.auto_reset_latest
        self._clients = ServedClients(
            positions=self._positions,
            filters=self._filters,
            lagging=lagging,
            lost=LostClients(
                self.destination, resets=resets, conf_option=config.conf_option
            ),
        )
        self._users: dict[int, str] = {}  # clients that are in this process
        self._on_loaded = on_loaded
        self._start_stop = Stop()  # ends a start that waits
        self._moving = threading.Lock()  # one move of cursors at a time
        self._is_whole = True  # guarded by `_moving`
        self._stopping = False  # guarded by `_clients.steady`
        # Guards both filters by which pumps read: that of clients and that of ranges.
        self._filter_lock = threading.Lock()
        self._client_filter: TablePredicate = self._filters.table_filter
        self._range_filter: TablePredicate | None = None
        self._stage_maker = StageMaker(
            config, self._clients, executed, history_owner_of(config, zookeepers, held)
        )
        # None in a group: a range is one of a single source's binlog.
        self._ranges: tuple[RangedReads, ...] = ()
        if not config.group:
            ranges = ranged_reads_of(config, zookeepers, self._change_range_filter)
            self._ranges = (ranges,)
        self._stages: Stages
        self._make_stages()
        # As the server sees it.
        self.store: EventStore = self._stages.stores

    def _make_stages(self) -> None:
        """Make the stages, empty: at first, and when cursors were moved."""
        self._filters.clear()
        self._client_filter = self._filters.table_filter
        self._stages = self._stage_maker.make(self._client_filter)
        self._stages.ring.users.update(self._users)
        for ranges, live in zip(self._ranges, self._stages.live, strict=True):
            ranges.attach(live)

    @property
    def ranges(self) -> RangedReads | None:
        """Return what serves ranged reads; None in a group."""
        return next(iter(self._ranges), None)

    @property
    def pipelines(self) -> Mapping[int, SourcePipeline]:
        """Return the pipelines, by the number of the source."""
        return self._stages.pipelines

    # --- Stage ----------------------------------------------------------------------

    def start(self) -> None:
        """Load what is stored, give each known client its cursor, start to read.

        Waits for ZooKeeper where cursors are there, until a stop is requested. Raises
        MetaStoreError when the stored cursors cannot be read.
        """
        self.meta.start()
        try:
            if self._on_loaded is not None:
                self._on_loaded(self.meta, self._start_stop)
            for ranges in self._ranges:
                ranges.start()
            self._clients.lagging.start(self._start_stop)
            self._clients.lagging.judge()
            for number, pipeline in self.pipelines.items():
                newest = self._positions.newest(number)
                pipeline.begin_with(newest.identity if newest else None)
            self._begin_stages(self._start_stop)
        except BaseException:
            self._stages.end()  # some of them may have started
            for stop in self._stops():
                stop()
            raise
        count = len(self.config.group)
        group = f", a group of {count} sources" if count else ""
        _log.info("destination %s started%s", self.destination, group)

    def _stops(self) -> Sequence[Callable[[], None]]:
        """Return what writes the rest of what is stored, in order."""
        ranges = (each.stop for each in self._ranges)
        return (self._clients.lagging.presence.stop, *ranges, self.meta.stop)

    def _begin_stages(self, stop: Stop | None = None) -> None:
        """Give each known client its cursor, and begin to read.

        With `stop` requested, some clients have none: then the pumps end at once.
        """
        serve_stored_clients(self.meta, self.destination, self._serve_stored, stop)
        if stop is not None and stop.requested():
            self._stages.request_stop()
        # Only now: who finds a store finds its cursor in it.
        self.store = self._stages.stores
        self._stages.start()

    def request_stop(self) -> None:
        """Ask the pumps to stop and end all waits."""
        self.meta.request_stop()
        for ranges in self._ranges:
            ranges.request_stop()
        self._start_stop.request()
        with self._clients.steady:  # stages that are being made are not started
            self._stopping = True
            self._stages.request_stop()
            self._stages.stores.close()

    def join(self, deadline: Deadline) -> bool:
        """Wait for the pumps, then write what is left of the cursors.

        They are written as well when a pump does not end, but only an instance that
        has ended raises MetaStoreError.
        """
        ended = self._stages.join(deadline)
        stop_writing(self.destination, *self._stops(), ended=ended)
        return ended

    # --- what the operator uses -----------------------------------------------------

    def status(self) -> dict[str, object]:
        """Return what an operator asks first, as plain values."""
        return self._status(clients_now(self._stages, self._clients))

    def reading(self) -> tuple[dict[str, object], InstanceMetrics]:
        """Return its status, and the numbers that its stages keep."""
        now = clients_now(self._stages, self._clients)
        return self._status(now), metrics_of(self._stages, now)

    def _status(self, now: ClientsNow) -> dict[str, object]:
        return status_of(self._stages, self._clients, now, self.ranges)

    def received(self) -> Received:
        """Return how much came from its sources."""
        return received_by(self._stages)

    def cursors(self) -> DestinationCursors:
        """Return where each client stands, and how far each source was read."""
        clients, sources = self._cursors()
        return self._positions.report(clients, sources)

    def _cursors(self) -> tuple[list[ClientCursor], dict[int, DestinationCursors]]:
        """Return the clients, and the same clients in each source."""
        clients = [
            ClientCursor(
                identity,
                self.meta.cursor(identity),
                open_batches=len(self.meta.batches(identity)),
            )
            for identity in self._positions.subscriptions()
        ]
        acked = [self._positions.acked(each.identity) for each in clients]
        held = [self._held(each.identity.client_id) for each in clients]
        return clients, {
            number: DestinationCursors(
                tuple(
                    replace(each, cursor=own.get(number), before=got.get(number))
                    for each, own, got in zip(clients, acked, held, strict=True)
                ),
                pipeline.parsed(),
                reads=pipeline.pump.identity,
            )
            for number, pipeline in self.pipelines.items()
        }

    def _held(self, client_id: int) -> dict[int, LogPosition]:
        """Return the positions after which all lies that a client has not acked."""
        # First: the store has all before them.
        passed = {
            number: each.pump.passed_to for number, each in self.pipelines.items()
        }
        stores, found = self._stages.stores, {}
        with contextlib.suppress(StoreError):  # it subscribed or unsubscribed just now
            for number, position in self._positions.held(stores, client_id).items():
                before = self.pipelines[number].log_position(position)
                if stores.has_all(client_id):
                    before = furthest_of(before, passed[number]) or before
                found[number] = before
        return found

    def tap(
        self, table_filter: TablePredicate, on_news: Callable[[], None]
    ) -> ChangeTap:
        """Return what follows the changes of some tables from now on, with no client.

        It ends when the instance does, or when cursors are moved.
        """
        return ChangeTap(self._stages, table_filter, self._is_read, on_news)

    def _is_read(self, names: FilteredNames) -> bool:
        """Return whether the pumps read tables: clients or ranges ask for them."""
        ranges = self._range_filter
        return self._client_filter(names) or (ranges is not None and ranges(names))

    def retry(self) -> None:
        """Read sources again now whose last session failed."""
        for pipeline in self.pipelines.values():
            pipeline.pump.retry()

    def seek(self, clients: Collection[int], *positions: LogPosition) -> None:
        """Move clients in the sources whose servers the positions name.

        Then all sources are read from the smallest position of all clients, as their
        entries are in one store. Blocks until the pumps have ended. Batches that any
        client has open are void, and what they held comes again where a client is not
        moved. Raises ClientError for clients that are not subscribed, MetaStoreError
        when they are moved but that could not be written, CanalError when a position is
        of a server that is not read, or the instance stops meanwhile.
        """
        moved = self._positions.targets(positions)
        for number, position in moved.items():
            pipeline = self.pipelines[number]
            read = pipeline.pump.identity
            if not same_server(position.identity, read):
                raise CanalError(
                    f"{position} is not a position of the {self._positions.reads} that"
                    f" destination {pipeline.config.destination} reads,"
                    f" {read.address}:{read.port}"
                )
        with self._moving:
            known = [each.client_id for each in self._positions.subscriptions()]
            check_subscribed(self.destination, clients, known)
            self._stages.end()
            # From here on no batch is registered or acked until all is moved.
            with self._clients.steady:
                if self._stopping:
                    raise CanalError(f"destination {self.destination} is being stopped")
                self._is_whole = False
                self._move(clients, moved)
                self._restart(moved)
                self._is_whole = True
            log_move(self.destination, clients, positions)
            self.meta.flush()

    def _move(self, clients: Collection[int], moved: Mapping[int, LogPosition]) -> None:
        """Give each client its positions: where it is moved to, or where it stands."""
        assert self._clients.steady.locked()
        found, sources = self._cursors()
        for index, client in enumerate(found):
            # What its filter rejected need not be read again.
            positions = {
                number: position
                for number, source in sources.items()
                if (position := source.clients[index].furthest()) is not None
            }
            if client.identity.client_id in clients:
                self._clients.lagging.on_move(client.identity.client_id)
                positions.update(
                    (number, replace(target, moved=True))
                    for number, target in moved.items()
                )
            self._positions.move(client.identity, positions)

    def _restart(self, moved: Mapping[int, LogPosition]) -> None:
        """Replace the stages, and read each source from the smallest position on."""
        assert self._clients.steady.locked()
        self._clients.lagging.judge()
        for identity in self._positions.subscriptions():
            self.meta.clear_batches(identity)
        old = self.store
        servers = {
            number: each.pump.identity for number, each in self.pipelines.items()
        }
        self._make_stages()
        self._clients.lost.clear()
        for number, pipeline in self.pipelines.items():
            target = moved.get(number)
            pipeline.begin_with(servers[number] if target is None else target.identity)
            start = self._positions.restart_position(number, moved)
            if start is not None:
                pipeline.begin_at(start)
        self._begin_stages()
        old.close()

    def is_whole(self) -> bool:
        """Return whether it reads, or will: not so when a move failed midway."""
        with self._moving:
            return self._is_whole

    # --- what the server uses -------------------------------------------------------

    def steady(self) -> AbstractContextManager[object]:
        """Keep store and positions as they are; nothing waits in this context."""
        return self._clients.steady

    def log_position(self, position: EntryPosition) -> LogPosition:
        """Return the position with the identity of the server that it is from."""
        return next(iter(self.pipelines.values())).log_position(position)

    def check_filter(self, expression: str) -> object:
        """Make a filter ready; raises ClientError when it cannot be used."""
        return self._filters.check(expression)

    def check_subscription_limit(self, identity: ClientIdentity) -> None:
        """Raise ClientError when no further client may subscribe."""
        check_subscription_limit(self.config, self.meta, identity)

    def why_refused(self, client_id: int) -> str:
        """Return why the stored filter of a client cannot be used, or nothing."""
        return self._filters.why_refused(client_id)

    def why_lost(self, client_id: int) -> str:
        """Return why a client can be given nothing, empty when it can."""
        return self._clients.lost.why(client_id)

    def on_connect(self, client_id: int, user: str = "") -> None:
        """Note that a connection serves a client; `user` if it is in this process."""
        if user:
            self._users[client_id] = self._stages.ring.users[client_id] = user
        self._clients.lagging.presence.on_connect(client_id)

    def on_disconnect(self, client_id: int) -> None:
        """Note that a connection that served a client ended."""
        self._clients.lagging.on_disconnect(client_id)

    def subscribed(self, identity: ClientIdentity) -> None:
        """Give the client its cursor and filter, and let the pumps read its tables."""
        table_filter = self._filters.enter(identity)
        self._clients.lagging.presence.enter(identity.client_id)
        with self._clients.cursors_lock:
            if self._clients.lost.why(identity.client_id):
                return
            acked = self._positions.acked(identity)
            after = {
                number: position
                for number, each in self.pipelines.items()
                if (position := each.pump.begins_after(acked.get(number))) is not None
            }
            self._stages.stores.subscribe(
                identity.client_id,
                table_filter.accepts,
                self._positions.begin_after(after),
            )

    def _serve_stored(self, identity: ClientIdentity) -> None:
        """Give a client its cursor before reading begins, unless it lags."""
        if self._clients.lagging.is_lagging(identity.client_id):
            table_filter = self._filters.enter(identity)
            self._stages.stores.divert(identity.client_id, table_filter.accepts)
        else:
            self.subscribed(identity)

    def unsubscribed(self, identity: ClientIdentity) -> None:
        """Remove the client's cursor and filter."""
        self._clients.lost.forget(identity.client_id)
        self._clients.lagging.presence.forget(identity.client_id)
        self._clients.drop(identity, self._stages.stores)

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return what lies before a client's entries, None: not known yet.

        In a group, in the source that it acked last, in any if it has acked nothing.
        """
        positions = self._resume_positions(client_id)
        position = self._positions.resume_position(client_id, positions)
        return None if position is None else position.position

    def resume_source_positions(self, client_id: int) -> Mapping[int, LogPosition]:
        """Return the same for each source of a group, by number."""
        return self._positions.resume_source_positions(
            self._resume_positions(client_id)
        )

    def _resume_positions(self, client_id: int) -> dict[int, LogPosition]:
        stores = self._stages.stores
        if self._clients.lost.why(client_id):
            return {}
        held = self._positions.held(stores, client_id)
        if stores.is_diverted(client_id):
            return {}
        return {
            number: pipeline.log_position(position)
            for number, pipeline in self.pipelines.items()
            if (position := held.get(number) or pipeline.pump.began_at) is not None
        }

    # --- what pumps read ------------------------------------------------------------

    def _change_client_filter(self, table_filter: TablePredicate) -> None:
        with self._filter_lock:
            self._client_filter = table_filter
            self._send_filter()

    def _change_range_filter(self, table_filter: TablePredicate | None) -> None:
        with self._filter_lock:
            self._range_filter = table_filter
            self._send_filter()

    def _send_filter(self) -> None:
        """Have the pumps read what clients or ranges ask for."""
        clients, ranges = self._client_filter, self._range_filter
        for pipeline in self.pipelines.values():
            pipeline.pump.change_table_filter(
                clients
                if ranges is None
                else lambda names: clients(names) or ranges(names)
            )

    # --- what readers of lagging clients report ---------------------------------------

    def _on_position_lost(self, identity: ClientIdentity, lost: LostPosition) -> None:
        """Refuse or move a lagging client: the source lacks what comes next for it."""
        clients, stores = self._clients, self._stages.stores
        (pipeline,) = self.pipelines.values()
        with clients.cursors_lock:
            cursor = self.meta.cursor(identity)
            oldest = self._stages.ring.oldest_position() or pipeline.pump.began_at
            if cursor is None or not stores.is_diverted(identity.client_id):
                return
            if clients.lost.resets and oldest is not None:
                to = pipeline.log_position(oldest)
                clients.lost.log_moved(identity, cursor, to, lost)
                self.meta.update_cursor(identity, to)
                stores.return_to_ring(identity.client_id)
            else:
                clients.lost.refuse_one(identity, cursor, lost)
                clients.drop(identity, stores)

    def _on_refused(self, client_id: int, why: str) -> None:
        """Refuse a lagging client whose tables' columns are not known."""
        identity = ClientIdentity(self.destination, client_id)
        with self._clients.cursors_lock:
            self._clients.lost.refuse_because(identity, why)
            self._clients.drop(identity, self._stages.stores)
