"""A destination as the REST interface and the page show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from canal_server.observe.readings import READY_STATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.instance.instance_metrics import InstanceMetrics
    from canal_server.observe.readings import Reading

# What `status` has, and is here under other names or in more detail.
_LEFT_OUT: Final = ("state", "clients", "connected", "slowest_client", "life")


def view_of(reading: Reading) -> dict[str, Any]:
    """Return what is known of a destination, as JSON values."""
    status = reading.status
    return {
        **{key: value for key, value in status.items() if key not in _LEFT_OUT},
        "destination": reading.destination,
        "state": reading.state,
        "ready": reading.state in READY_STATES,
        "error": status.get("error") or None,
        "error_since_ms": status.get("error_since_ms"),
        "lag_s": reading.lag_s,
        "source": status.get("source"),
        "runs_on": status.get("runs_on"),
        "blocked": status.get("blocked"),
        "warnings": list(status.get("warnings", ())),
        "clients": list(_clients(reading)),
        "rows": _rows(reading.metrics),
        "store_fill_ratio": reading.store_fill_ratio,
    }


def _rows(metrics: InstanceMetrics | None) -> int | None:
    if metrics is None:
        return None
    return sum(each.rows for each in metrics.sources.values())


def _clients(reading: Reading) -> Iterator[dict[str, Any]]:
    metrics = reading.metrics
    if metrics is None:
        return
    in_ring = {each.client_id: each for each in metrics.store.cursors}
    blocking = (reading.status.get("blocked") or {}).get("clients", ())
    for client_id in reading.status.get("clients", ()):
        cursor = in_ring.get(client_id)  # None: evicted, or it never asked
        yield {
            "client_id": client_id,
            "connected": client_id in metrics.connected,
            "lag_entries": None
            if cursor is None
            else metrics.store.put_sequence - cursor.ack_sequence,
            "lag_s": None if cursor is None else cursor.lag_s,
            "rows": None if cursor is None else cursor.rows,
            "blocks": client_id in blocking,
        }
