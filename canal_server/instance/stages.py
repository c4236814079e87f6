"""What entries pass on their way to the clients of a destination.

::

    pipeline of source 1 ─┐
    pipeline of source 2 ─┼─► ring ─► (server, per client)
    …                     ┘

One source and several differ here, and in where clients stand (`client_positions`): a
single source is also read for lagging clients and for ranges, several take turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from canal_server.capture.source_parts import (
    access_of,
    block_pool,
    boundary_index_of,
    history_of,
    standby_access_of,
)
from canal_server.capture.source_pipeline import SourcePipeline
from canal_server.core.table_ids import TableIds
from canal_server.instance.merged_pipeline import MergedPipeline
from canal_server.instance.source_events import SourceEvents
from canal_server.pipeline.source_merge import Merge
from canal_server.ranges.range_access import Live
from canal_server.ranges.recent_records import Tail
from canal_server.runtime.lifecycle import Deadline
from canal_server.source.pump.pump_ports import PumpSource
from canal_server.store.event_store import MemoryEventStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from canal_server.catchup.lagging_clients import LaggingClients
    from canal_server.catchup.store_router import ClientStores
    from canal_server.config.schema import InstanceConfig
    from canal_server.core.blocks import BlockPool
    from canal_server.instance.source_events import ServedClients
    from canal_server.ports import Span, TablePredicate
    from canal_server.position.gtid_cache import ExecutedSets
    from canal_server.runtime.lifecycle import Stop
    from canal_server.tablemeta.storage.mysql_lock import Owner


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of one destination; others replace them when cursors are moved.

    `pipelines` are by the number of the source. `stores` is the ring and the stores of
    lagging clients; `live` is what ranges are served from, nothing in a group.
    """

    table_ids: TableIds
    ring: MemoryEventStore
    stores: ClientStores
    pipelines: Mapping[int, SourcePipeline]
    live: tuple[Live, ...] = ()

    def start(self) -> None:
        """Begin to read."""
        for pipeline in self.pipelines.values():
            pipeline.start()

    def request_stop(self) -> None:
        """Ask all pipelines to stop; returns at once."""
        for pipeline in self.pipelines.values():
            pipeline.request_stop()

    def end(self) -> None:
        """Stop reading, and wait until that has ended."""
        self.request_stop()
        self.stores.request_stop_of_readers()
        self.join(Deadline(None))

    def join(self, deadline: Deadline) -> bool:
        """Wait for the end of all threads."""
        ended = [pipeline.join(deadline) for pipeline in self.pipelines.values()]
        return self.stores.join(deadline) and all(ended)


class RingPipeline(SourcePipeline):
    """The pipeline of a single source; what it delivers is also kept for ranges."""

    def __init__(
        self,
        source: PumpSource,
        ring: MemoryEventStore,
        events: SourceEvents,
        table_filter: TablePredicate,
        *,
        tail: Tail,
        lagging: LaggingClients,
    ) -> None:
        super().__init__(source, ring, events, table_filter)
        self._tail = tail
        self._lagging = lagging

    def deliver(self, spans: list[Span], stop: Stop) -> Iterator[list[Span]]:
        """Store spans, and keep them in the tail."""
        self._tail.busy()
        if not self.sink.accept(spans, stop):
            yield []
            return
        self._tail.note(spans)  # before the pump counts them as delivered, thus once
        yield spans

    def reset(self) -> None:
        """Drop the open transaction: the ring and the tail have a gap here."""
        super().reset()
        self._lagging.begin_run()
        self._tail.reset(self.pump.reads_after, self.pump.server)

    def idle(self) -> None:
        """Let waiting gets and requests for ranges answer."""
        super().idle()
        self._tail.idle(self.pump.delivered_to)


@dataclass(frozen=True, slots=True)
class StageMaker:
    """Makes the stages of a destination, empty: at first, and for each move of cursors.

    `executed` caches the GTID sets of each source where they are followed.
    """

    config: InstanceConfig
    clients: ServedClients
    executed: Mapping[int, ExecutedSets]
    history_owner: Owner | None

    def make(self, table_filter: TablePredicate) -> Stages:
        """Return new stages, which are not started."""
        make = self._make_merged if self.config.group else self._make_single
        return make(TableIds(), block_pool(), table_filter)

    def _make_single(
        self, table_ids: TableIds, pool: BlockPool, table_filter: TablePredicate
    ) -> Stages:
        config, lagging = self.config, self.clients.lagging
        tail = Tail(config.store.ranged_bytes_max)
        ring = MemoryEventStore(
            config.store,
            table_ids,
            pool,
            destination=config.destination,
            held_elsewhere=tail.held_bytes,
            may_drop=lambda: tail.is_on,
            liveness=lagging,
        )
        number = config.source.number
        source = self._source(config, pool, table_ids)
        events = SourceEvents(number, self.clients)
        pipeline = RingPipeline(
            source, ring, events, table_filter, tail=tail, lagging=lagging
        )
        stores = lagging.attach(ring, pipeline.pump, source)
        events.attach(pipeline, stores)
        live = Live(pipeline.pump, table_ids, tail)
        return Stages(table_ids, ring, stores, {number: pipeline}, (live,))

    def _make_merged(
        self, table_ids: TableIds, pool: BlockPool, table_filter: TablePredicate
    ) -> Stages:
        config, clients = self.config, self.clients
        ring = MemoryEventStore(
            config.store,
            table_ids,
            pool,
            destination=config.destination,
            grouped=True,
        )
        merge = Merge(on_idle=ring.wake_getters)
        pipelines: dict[int, MergedPipeline] = {}

        def on_epoch() -> None:
            # Names of tables go once no source has anything more with an old id.
            epoch = table_ids.epoch
            if all(each.epoch == epoch for each in pipelines.values()):
                ring.note_new_table_ids()

        sources, events = {}, {}
        for each in config.by_source:
            number = each.source.number
            sources[number] = self._source(each, pool.of_source(number), table_ids)
            events[number] = SourceEvents(number, clients)
            pipelines[number] = MergedPipeline(
                sources[number],
                ring,
                events[number],
                table_filter,
                merge=merge,
                on_epoch=on_epoch,
            )
        # No client of a group is evictable, so that none is read for by itself.
        first = min(pipelines)
        stores = clients.lagging.attach(ring, pipelines[first].pump, sources[first])
        for number, pipeline in pipelines.items():
            events[number].attach(pipeline, stores)
        return Stages(table_ids, ring, stores, pipelines)

    def _source(
        self, config: InstanceConfig, pool: BlockPool, table_ids: TableIds
    ) -> PumpSource:
        return PumpSource(
            config=config,
            access=access_of(config.source, config.destination),
            standby=standby_access_of(config.source),
            pool=pool,
            table_ids=table_ids,
            positions=self.clients.positions.log_positions(config),
            history=history_of(config, self.history_owner),
            index=boundary_index_of(config),
            executed=self.executed.get(config.source.number),
        )


def without_eviction(config: InstanceConfig) -> InstanceConfig:
    """Return settings by which entries are retained for all clients."""
    return replace(config, store=replace(config.store, pin_seconds=-1))
