"""The metrics that the Java server lacks: states, lags, clients, failures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from canal_server.delivery.delivery_status import State
from canal_server.doors.prometheus.metric_families import Families
from canal_server.instance.client_lags import CLIENT_STATES
from canal_server.observe.readings import STATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from canal_server.doors.prometheus.metric_families import Metric
    from canal_server.instance.instance_metrics import InstanceMetrics
    from canal_server.observe.readings import Reading

_LAG_HELP: Final = (
    "For how long the oldest entry that the client has not acked has been in the ring,"
    " 0 if it has acked all; of a client that the ring does not serve, the age of the"
    " last change that it has acked"
)
_LAG_BYTES_HELP: Final = (
    "Bytes of the binlog between the client's position and the end of what was read,"
    " also of tables that its filter rejects; missing if a file between them is not"
    " known, and in a group"
)
_LAG_TRANSACTIONS_HELP: Final = (
    "Transactions of the set executed at the end of what was read that the client's"
    " set lacks; missing if a set is not known (no GTID), and in a group"
)
_REPEATED_HELP: Final = (
    "Transactions delivered again after reading continued by time on another server;"
    " counts from 0 for each such change"
)
_HISTORY_HELP: Final = (
    "Size of the table history's file; missing if it is in a database"
)
_UNCERTAIN_HELP: Final = (
    "Tables that are read and whose columns are not certain at this position"
)


def server_metrics(readings: Sequence[Reading]) -> Iterator[Metric]:
    """Yield the metrics of all destinations, also of those that do not run here."""
    families = Families()
    for reading in readings:
        _add_state(families, reading)
        if reading.metrics is not None:
            _add_sources(families, reading.destination, reading.metrics)
            _add_store(families, reading, reading.metrics)
            _add_clients(families, reading)
            _add_ranges(families, reading)
        if delivery := reading.status.get("delivery"):
            _add_delivery(families, reading.destination, delivery)
    yield from families.all()


def _add_state(families: Families, reading: Reading) -> None:
    name, now = reading.destination, reading.state
    families.states(
        "canal_instance_state",
        "1 for the state of the destination on this server",
        now,
        STATES,
        destination=name,
    )
    since_ms = reading.status.get("error_since_ms")
    families.gauge(
        "canal_instance_failing_seconds",
        "How long the destination has had an error; 0 without one",
        max(0.0, time.time() - since_ms / 1000) if since_ms else 0.0,
        destination=name,
    )
    lost = reading.status.get("lost_clients")
    if lost is not None:
        families.gauge(
            "canal_instance_lost_clients",
            "Clients that are refused, as they can be given nothing",
            len(lost),
            destination=name,
        )
    families.gauge(
        "canal_instance_warnings",
        "Warnings about the source that `canal-server status` shows",
        len(reading.status.get("warnings", ())),
        destination=name,
    )


def _add_sources(families: Families, name: str, found: InstanceMetrics) -> None:
    for number, source in found.sources.items():
        labels = {"destination": name, "source": str(number)}
        if source.lag_s is not None:
            families.gauge(
                "canal_instance_source_lag_seconds",
                "How far reading lags behind the source; 0 while the source is idle",
                source.lag_s,
                **labels,
            )
        for suffix, help_, value in (
            ("rows", "Rows put into the store", source.rows),
            ("source_connections", "Connections to the source", source.connections),
            ("source_switches", "Changes to another server", source.switches),
            ("skipped_events", "Unreadable events left out", source.skipped_events),
            ("raw_events", "Unreadable events delivered as bytes", source.raw_events),
            ("repeated_transactions", _REPEATED_HELP, source.repeated_transactions),
            (
                "repeated_rows",
                "Rows of the transactions that were delivered again",
                source.repeated_rows,
            ),
        ):
            families.counter(f"canal_instance_{suffix}_total", help_, value, **labels)
        for (event_type, action), events in source.unreadable.items():
            families.counter(
                "canal_instance_unreadable_events_total",
                "Unreadable events by the number of their type and by what was done",
                events,
                **labels,
                type=str(event_type),
                action=action,
            )
        for suffix, help_, known in (
            ("history_tables", "Tables of the table history", source.history_tables),
            ("history_bytes", _HISTORY_HELP, source.history_bytes),
            ("uncertain_tables", _UNCERTAIN_HELP, source.uncertain_tables),
        ):
            if known is not None:
                families.gauge(f"canal_instance_{suffix}", help_, known, **labels)


def _add_store(families: Families, reading: Reading, found: InstanceMetrics) -> None:
    store, name = found.store, reading.destination
    entries = store.put_sequence - store.ack_sequence
    families.gauge(
        "canal_instance_store_entries",
        "Entries in the ring that not all clients have acked",
        entries,
        destination=name,
    )
    if found.batch_mode == "MEMSIZE":
        families.gauge(
            "canal_instance_store_bytes",
            "Weight of these entries, as the limit counts them",
            store.put_bytes - store.ack_bytes,
            destination=name,
        )
    fill = reading.store_fill_ratio
    assert fill is not None, "it runs"
    families.gauge(
        "canal_instance_store_fill_ratio",
        "How full the ring is, 0 to 1; it may exceed 1 by one transaction",
        fill,
        destination=name,
    )
    families.gauge(
        "canal_instance_block_bytes",
        "Memory of decoded entries",
        store.block_bytes,
        destination=name,
    )


def _add_clients(families: Families, reading: Reading) -> None:
    found, name = reading.metrics, reading.destination
    assert found is not None, "only of running destinations"
    for each in found.clients:
        labels = {"destination": name, "client": str(each.client_id)}
        families.gauge(
            "canal_client_connected",
            "Whether the client is connected",
            float(each.connected),
            **labels,
        )
        families.states(
            "canal_client_state",
            "1 for the state of the client",
            each.state,
            CLIENT_STATES,
            **labels,
        )
        families.counter(
            "canal_client_rollbacks_total",
            "Rollbacks, after which what was not acked is delivered again",
            reading.requests.rollbacks[each.client_id],
            **labels,
        )
        for suffix, help_, value in (
            ("lag_seconds", _LAG_HELP, each.lag_s),
            (
                "lag_entries",
                "Entries in the ring that the client has not acked",
                each.entries,
            ),
            ("lag_bytes", _LAG_BYTES_HELP, each.bytes),
            ("lag_transactions", _LAG_TRANSACTIONS_HELP, each.transactions),
        ):
            if value is not None:
                families.gauge(f"canal_client_{suffix}", help_, value, **labels)
        if each.rows is not None:
            families.counter(
                "canal_client_rows_total",
                "Rows delivered to the client from the ring, redeliveries included",
                each.rows,
                **labels,
            )


def _add_ranges(families: Families, reading: Reading) -> None:
    """Add the ranged reads, as the status has them; a group has none."""
    ranges, name = reading.status.get("ranges"), reading.destination
    if ranges is None:
        return
    subscriptions = ranges["subscriptions"]
    families.gauge(
        "canal_range_subscriptions",
        "Ranged subscriptions, temporary ones included",
        len(subscriptions),
        destination=name,
    )
    for by in ("memory", "binlog"):
        families.counter(
            "canal_range_answers_total",
            "Requests for ranges that memory answered, and those for which the binlog"
            " was read again",
            ranges[f"from_{by}"],
            destination=name,
            by=by,
        )
    for subscription, found in subscriptions.items():
        # Temporary ones come and go, each with a name of its own.
        if not found["temporary"] and found["unacked_s"] is not None:
            families.gauge(
                "canal_range_unacked_seconds",
                "Time since the last ack of a ranged subscription; 0 if it has acked"
                " all that was read",
                found["unacked_s"],
                destination=name,
                subscription=subscription,
            )


def _add_delivery(families: Families, name: str, found: Mapping[str, Any]) -> None:
    """Add what a message queue has taken, as the status has it."""
    families.states(
        "canal_delivery_state",
        "1 for the state of the delivery to the message queue",
        found["state"],
        [state.value for state in State],
        destination=name,
    )
    fails = found["state"] in (State.BLOCKED, State.STOPPED)
    families.gauge(
        "canal_delivery_failing_seconds",
        "How long the delivery has been blocked or stopped; 0 while it is not",
        max(0.0, time.time() - found["since_ms"] / 1000) if fails else 0.0,
        destination=name,
    )
    for suffix, help_, value in (
        ("in_flight", "Messages that the broker has not confirmed", "in_flight"),
        ("in_flight_bytes", "Bytes of these messages", "in_flight_bytes"),
    ):
        families.gauge(
            f"canal_delivery_{suffix}", help_, found[value], destination=name
        )
    for suffix, help_, value in (
        ("batches", "Batches that were confirmed and acked", "batches"),
        ("failures", "Failures after which messages were sent again", "failures"),
        ("too_large", "Messages left out because of their size", "too_large"),
    ):
        families.counter(
            f"canal_delivery_{suffix}_total", help_, found[value], destination=name
        )
    for topic, counts in found["topics"].items():
        for suffix, help_ in (
            ("messages", "Messages that the broker has confirmed"),
            ("bytes", "Bytes of these messages"),
        ):
            families.counter(
                f"canal_delivery_{suffix}_total",
                help_,
                counts[suffix],
                destination=name,
                topic=topic,
            )
