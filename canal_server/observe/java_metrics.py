"""The metrics of the Java server, with its names, labels, units and meanings.

Its published dashboard for Grafana works with them. Counters have no suffix `_total`
there, so these have none. See docs/reference/metrics.md for the meanings.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from canal_server.doors.prometheus.metric_families import Families
from canal_server.server.request_counts import LATENCY_BOUNDS_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from canal_server.doors.prometheus.metric_families import Metric
    from canal_server.observe.readings import Reading
    from canal_server.store.counts import StoreCounts

# Where the settings of instances are from: files, or canal-admin.
FILES: Final = "spring"
MANAGER: Final = "manager"
_DELAYS: Final = {
    "put_delay": "put into the ring",
    "get_delay": "received by a client",
    "ack_delay": "acked",
}


def java_metrics(readings: Sequence[Reading], mode: str = FILES) -> Iterator[Metric]:
    """Yield the metrics of the Java server."""
    families = Families()
    for reading in readings:
        _add_instance(families, reading, mode)
        _add_store(families, reading)
        _add_requests(families, reading)
    _add_latencies(families, readings)
    yield from families.all()


def _add_instance(families: Families, reading: Reading, mode: str) -> None:
    found, name = reading.metrics, reading.destination
    if found is None:
        return
    families.gauge(
        "canal_instance", "A running destination", 1, destination=name, mode=mode
    )
    families.gauge(
        "canal_instance_subscriptions",
        "Subscribed clients",
        found.subscriptions,
        destination=name,
    )
    families.gauge(
        "canal_instance_traffic_delay",
        "Age of the last entry read, ms; 0 at the end of the binlog",
        max(each.delay_ms for each in found.sources.values()),
        destination=name,
    )
    families.counter(
        "canal_instance_transactions",
        "Transactions put into the store",
        sum(each.transactions for each in found.sources.values()),
        destination=name,
    )
    families.counter(
        "canal_instance_sink_blocking_time",
        "Time that reading waited for room in the store, ms",
        sum(each.waiting_ms for each in found.sources.values()),
        destination=name,
    )
    families.gauge(
        "canal_instance_parser_mode",
        "Whether decoding is parallel: it is compiled, and needs one thread",
        1,
        destination=name,
        parallel="false",
    )
    single = len(found.sources) == 1
    for number, source in found.sources.items():
        families.counter(
            "canal_instance_received_binlog_bytes",
            "Bytes received from the source",
            source.received_bytes,
            destination=name,
            parser="0" if single else str(number),
        )


def _add_store(families: Families, reading: Reading) -> None:
    found, name = reading.metrics, reading.destination
    if found is None:
        return
    store = found.store
    families.gauge(
        "canal_instance_store",
        "The event store",
        1,
        destination=name,
        batchMode=found.batch_mode,
        size=str(found.buffer_entries),
    )
    counters = {
        "store_produce_seq": ("Sequence of the last entry put", store.put_sequence),
        "store_consume_seq": ("Sequence of the last entry acked", store.ack_sequence),
        "put_rows": ("Rows put", store.put_rows),
        "get_rows": ("Rows received by the client that lags most", store.get_rows),
        "ack_rows": ("Rows acked by all clients", store.ack_rows),
    }
    if found.batch_mode == "MEMSIZE":
        counters["store_produce_mem"] = ("Bytes put", store.put_bytes)
        counters["store_consume_mem"] = ("Bytes acked by all clients", store.ack_bytes)
    for suffix, (help_, value) in counters.items():
        families.counter(f"canal_instance_{suffix}", help_, value, destination=name)
    for suffix, value_ms in _delays(store).items():
        families.gauge(
            f"canal_instance_{suffix}",
            f"Age of the last entry that was {_DELAYS[suffix]}, ms",
            value_ms,
            destination=name,
        )


def _delays(store: StoreCounts) -> dict[str, float]:
    """Return the ages in ms; what was not put yet has none."""
    now_ms = time.time() * 1000
    put = max(0.0, now_ms - store.put_time_ms) if store.put_time_ms else 0.0
    got = max(put, now_ms - store.get_time_ms if store.get_time_ms else put)
    acked = max(got, now_ms - store.ack_time_ms if store.ack_time_ms else got)
    return {"put_delay": put, "get_delay": got, "ack_delay": acked}


def _add_requests(families: Families, reading: Reading) -> None:
    counts, name = reading.requests, reading.destination
    for kind, number in sorted(counts.packets.items()):
        families.counter(
            "canal_instance_client_packets",
            "Requests of clients; a get without changes is not counted here",
            number,
            destination=name,
            packetType=kind,
        )
    families.counter(
        "canal_instance_client_bytes",
        "Bytes sent to clients",
        counts.sent_bytes,
        destination=name,
    )
    families.counter(
        "canal_instance_client_empty_batches",
        "Gets that were answered without changes",
        counts.empty_batches,
        destination=name,
    )
    for code, number in sorted(counts.errors.items()):
        families.counter(
            "canal_instance_client_request_error",
            "Requests of clients that were refused",
            number,
            destination=name,
            errorCode=str(code),
        )


def _add_latencies(families: Families, readings: Iterable[Reading]) -> None:
    bounds = [*map(str, LATENCY_BOUNDS_MS), "+Inf"]  # "10.0", as Java writes them
    for reading in readings:
        families.histogram(
            "canal_instance_client_request_latency",
            "Time from a request until its answer was sent, ms",
            {"destination": reading.destination},
            bounds=bounds,
            numbers=reading.requests.latencies,
            sum_=reading.requests.latency_ms,
        )
