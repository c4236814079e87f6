"""Readings of a destination as its stages would give them, for what shows them."""

from __future__ import annotations

import time
from dataclasses import replace

from canal_server.instance.instance_metrics import InstanceMetrics, SourceMetrics
from canal_server.observe.readings import Reading
from canal_server.server.request_counts import RequestCounts
from canal_server.store.counts import StoreCounts


def ago(seconds: float) -> int:
    """Return a time before now, in ms since 1970."""
    return round((time.time() - seconds) * 1000)


def instance_metrics(**changes: object) -> InstanceMetrics:
    """Return the numbers of a destination with one source, and an empty ring."""
    store = StoreCounts(
        put_sequence=-1,
        get_sequence=-1,
        ack_sequence=-1,
        put_bytes=0,
        ack_bytes=0,
        put_rows=0,
        get_rows=0,
        ack_rows=0,
        put_time_ms=0,
        get_time_ms=0,
        ack_time_ms=0,
        put_waiting_ns=0,
        block_bytes=0,
        cursors=(),
    )
    source = SourceMetrics(
        received_bytes=0,
        transactions=0,
        rows=0,
        waiting_ms=0.0,
        delay_ms=0.0,
        lag_s=0.0,
        connections=1,
        switches=0,
        skipped_events=0,
        raw_events=0,
    )
    found = InstanceMetrics(
        batch_mode="ITEMSIZE",
        buffer_entries=1024,
        buffer_bytes=1024 * 1024,
        subscriptions=0,
        connected=frozenset(),
        store=store,
        sources={0: source},
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def reading_of(metrics: InstanceMetrics | None, **status: object) -> Reading:
    """Return a reading of destination `shop`, which runs."""
    found = {"destination": "shop", "running": True, "state": "running"} | status
    return Reading("shop", found, RequestCounts(), metrics)
