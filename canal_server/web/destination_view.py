"""A destination as the REST interface and the page show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from canal_server.model.position_json import position_as_json
from canal_server.observe.readings import READY_STATES
from canal_server.web.note_texts import error_notes, warning_notes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.instance.instance_metrics import InstanceMetrics
    from canal_server.model.positions import LogPosition
    from canal_server.observe.readings import Reading

GTID_MAX: Final = 4096  # characters of a set in a list of clients
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
        "uncertain_tables": status.get("uncertain_tables"),
        "error_notes": error_notes(str(status.get("error") or "")),
        "warning_notes": warning_notes(list(status.get("warnings", ()))),
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
    blocking = (reading.status.get("blocked") or {}).get("clients", ())
    for each in metrics.clients:
        yield {
            "client_id": each.client_id,
            "state": each.state,
            "connected": each.connected,
            "lag_entries": each.entries,
            "lag_s": each.lag_s,
            "rows": each.rows,
            "blocks": each.client_id in blocking,
            "acked": _position(each.acked),
            "sent": _position(each.sent or each.acked),
            "open_batches": each.open_batches,
        }


def _position(found: LogPosition | None) -> dict[str, Any] | None:
    """Return where a client stands; a large GTID set is left out."""
    if found is None:
        return None
    shown: dict[str, Any] = {
        **position_as_json(found.position),
        "source": f"{found.identity.address}:{found.identity.port}",
    }
    if len(shown["gtid"] or "") > GTID_MAX:
        shown["gtid"] = None
    return shown
