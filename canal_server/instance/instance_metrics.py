"""The numbers of a running destination that its stages keep, for metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from canal_server.capture.source_pipeline import SourcePipeline
    from canal_server.instance.client_lags import ClientLag, ClientsNow
    from canal_server.instance.stages import Stages
    from canal_server.store.counts import StoreCounts


@dataclass(frozen=True, slots=True)
class SourceMetrics:
    """One source: counters since the start of the destination, and how far it lags.

    `delay_ms` is the age of the last entry that reached the sink, 0 at the end of the
    binlog; `lag_s` does not grow either while the source has nothing new; None: not
    known yet.
    """

    received_bytes: int
    transactions: int
    rows: int
    waiting_ms: float  # for room in the store
    delay_ms: float
    lag_s: float | None
    connections: int
    switches: int  # to another server
    skipped_events: int  # that could not be read
    raw_events: int  # delivered as bytes, for the same reason
    # By type and by what was done: events that could not be read.
    unreadable: Mapping[tuple[int, str], int] = field(default_factory=dict)
    repeated_transactions: int = 0  # since the last change of servers by time
    repeated_rows: int = 0
    history_tables: int | None = None  # None: no history is open
    history_bytes: int | None = None  # None: it is in a database
    uncertain_tables: int = 0


class Received(NamedTuple):
    """What came from all sources of a destination since its start.

    `lag_s` is of the source that lags most, None if it is not known of one of them.
    """

    rows: int
    size: int  # bytes
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class InstanceMetrics:
    """A running destination; `sources` by the number of each, clients by their ids."""

    batch_mode: str
    buffer_entries: int
    buffer_bytes: int  # the limit of the ring with the batch mode MEMSIZE
    subscriptions: int
    connected: frozenset[int]  # client ids
    store: StoreCounts
    sources: Mapping[int, SourceMetrics]
    clients: tuple[ClientLag, ...] = ()


def received_by(stages: Stages) -> Received:
    """Return how much came; takes a fraction of the time of `metrics_of`."""
    pipelines = stages.pipelines.values()
    pumps = [each.pump.status for each in pipelines]
    return Received(
        sum(each.sink.counters.rows for each in pipelines),
        sum(each.received_bytes for each in pumps),
        greatest_lag(each.lag_s() for each in pumps),
    )


def greatest_lag(lags_s: Iterable[float | None]) -> float | None:
    """Return the greatest of the lags of sources, None if one is not known."""
    greatest_s: float | None = None
    for lag_s in lags_s:
        if lag_s is None:
            return None
        greatest_s = lag_s if greatest_s is None else max(greatest_s, lag_s)
    return greatest_s


def metrics_of(stages: Stages, clients: ClientsNow) -> InstanceMetrics:
    """Return the numbers of a destination; costs the hot path nothing."""
    config = next(iter(stages.pipelines.values())).config
    return InstanceMetrics(
        batch_mode=config.store.batch_mode.value,
        buffer_entries=config.store.buffer_size,
        buffer_bytes=config.store.buffer_size * config.store.memunit,
        subscriptions=len(clients.lags),
        connected=frozenset(clients.connected),
        store=clients.store,
        sources={n: _source_metrics(each) for n, each in stages.pipelines.items()},
        clients=clients.lags,
    )


def _source_metrics(pipeline: SourcePipeline) -> SourceMetrics:
    pump, sink = pipeline.pump, pipeline.sink.counters
    lag_s = pump.status.lag_s()
    delay_ms = 0.0
    if lag_s != 0 and sink.last_time_ms:
        delay_ms = max(0.0, time.time() * 1000 - sink.last_time_ms)
    tables, repeated = pump.schemas.tables, pump.repeated() or {}
    return SourceMetrics(
        received_bytes=pump.status.received_bytes,
        transactions=sink.transactions,
        rows=sink.rows,
        waiting_ms=sink.waiting_ns / 1e6,
        delay_ms=delay_ms,
        lag_s=lag_s,
        connections=pump.status.connections,
        switches=pump.sources.switches,
        skipped_events=pump.unreadable.passed_over(raw=False),
        raw_events=pump.unreadable.passed_over(raw=True),
        unreadable=pump.unreadable.by_type(),
        repeated_transactions=repeated.get("transactions", 0),
        repeated_rows=repeated.get("rows", 0),
        history_tables=None if tables is None else tables.number,
        history_bytes=pump.schemas.history_bytes(),
        uncertain_tables=len(pump.schemas.uncertain(pump.table_filter)),
    )
