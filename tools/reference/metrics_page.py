"""The page of metrics, from what the code exposes for a destination."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.delivery.delivery_status import DeliveryStatus, State
from canal_server.instance.client_lags import CLIENT_STATES, IN_RING, ClientLag
from canal_server.instance.instance_metrics import InstanceMetrics, SourceMetrics
from canal_server.observe.certificate_expiry import (
    SERVER,
    Certificate,
    certificate_metrics,
)
from canal_server.observe.java_metrics import java_metrics
from canal_server.observe.lease_metrics import lease_metrics
from canal_server.observe.readings import STATES, Reading
from canal_server.observe.server_metrics import server_metrics
from canal_server.server.request_counts import RequestCounts
from canal_server.store.counts import CursorCounts, StoreCounts
from reference.markdown import notice, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

PAGE = Path("docs/reference/metrics.md")
TEMPLATE = Path(__file__).parent / "templates/metrics.md"
SOURCES = "canal_server/observe and tools/reference/templates"

_CERTIFICATE = Certificate(SERVER, "", "server.pem", "", 0)

# The same states in `canal-server status`, whose words scripts use.
IN_STATUS = {
    "idle": "`life` idle",
    "standby": "`life` competing",
    "no_lease": "`life` competing, with an `error` (text: `no lease`)",
    "starting": "`life` starting",
    "locating": "`state` connecting",
    "dumping": "`state` running",
    "catching_up": "`state` running, with a `lag`",
    "waiting": "`state` waiting",
    "blocked_on_client": "`blocked` names clients (text: `blocked`)",
    "blocked_on_store": "`blocked` names none (text: `blocked`)",
    "stopping": "`life` stopping, or `state` stopped",
    "failed": "`life` paused",
    "stopped": "`life` stopped",
}


def pages() -> dict[Path, str]:
    """Return the page by its path."""
    readings = [_reading()]
    text = TEMPLATE.read_text()
    for slot, found in (
        ("canal", java_metrics(readings)),
        (
            "server",
            [
                *server_metrics(readings),
                *lease_metrics(readings),
                *certificate_metrics([_CERTIFICATE], 0),
            ],
        ),
    ):
        text = text.replace(f"{{{{{slot}}}}}", metrics_table(found))
    states = [(f"`{name}`", IN_STATUS[name], what) for name, what in STATES.items()]
    clients = [(f"`{name}`", what) for name, what in CLIENT_STATES.items()]
    for slot, shown in (
        ("states", table(("state", "in `canal-server status`", "meaning"), states)),
        ("client_states", table(("state", "meaning"), clients)),
    ):
        text = text.replace(f"{{{{{slot}}}}}", shown.strip())
    return {PAGE: notice(SOURCES) + text}


def metrics_table(metrics: Iterable[Metric]) -> str:
    """Return the table of metrics, with the names of their samples."""
    rows = []
    for each in sorted(metrics, key=lambda metric: metric.name):
        labels = {name for sample in each.samples for name in sample.labels}
        shown = ", ".join(f"`{name}`" for name in sorted(labels - {"le"}))
        name = each.samples[0].name if each.type == "counter" else each.name
        rows.append((f"`{name}`", each.type, shown, each.documentation))
    return table(("metric", "type", "labels", "meaning"), rows).strip()


def _reading() -> Reading:
    """Return a destination that shows every metric."""
    store = StoreCounts(
        put_sequence=0,
        get_sequence=0,
        ack_sequence=0,
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
        cursors=(CursorCounts(1001, 0, 0, 0, 0.0),),
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
        unreadable={(30, "skip"): 1},
        history_tables=1,
        history_bytes=1,
    )
    metrics = InstanceMetrics(
        batch_mode="MEMSIZE",
        buffer_entries=16384,
        buffer_bytes=16384 * 1024,
        subscriptions=1,
        connected=frozenset({1001}),
        store=store,
        sources={1: source},
        clients=(
            ClientLag(
                1001,
                IN_RING,
                connected=True,
                lag_s=0.0,
                entries=0,
                rows=0,
                bytes=0,
                transactions=0,
            ),
        ),
    )
    requests = RequestCounts(packets=Counter(GET=1), errors=Counter({400: 1}))
    delivery = DeliveryStatus(
        queue="kafka at 127.0.0.1:9092",
        state=State.DELIVERING,
        reason="",
        since_ms=0,
        position="",
        in_flight=0,
        in_flight_bytes=0,
        batches=0,
        failures=0,
        too_large=0,
        topics={"example": (0, 0)},
    )
    status = {
        "running": True,
        "state": "running",
        "clients": [1001],
        "delivery": delivery.as_json(),
        "lost_clients": {},
        "ranges": {
            "subscriptions": {"query": {"temporary": False, "unacked_s": 0.0}},
            "from_memory": 0,
            "from_binlog": 0,
        },
        "lease": {
            "held": True,
            "certain_s": 60.0,
            "zookeeper": {"servers": "zk1:2181", "state": "connected", "expired": 0},
        },
    }
    return Reading("example", status, requests, metrics)
