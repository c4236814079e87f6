"""What one destination shows at one moment; metrics are made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.instance.instance_metrics import greatest_lag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.instance.instance_metrics import InstanceMetrics
    from canal_server.server.request_counts import RequestCounts

CATCHING_UP_S: Final = 10.0  # a lag from which on reading is not just busy

STATES: Final = {  # and what they mean
    "idle": "lazy, and no client has connected yet",
    "standby": "another server runs it, or none does yet",
    "no_lease": "ZooKeeper does not answer, or refuses what is needed to run it here",
    "starting": "loading what is stored",
    "locating": "connecting to the source, and finding where to start",
    "dumping": f"reading, and lagging less than {CATCHING_UP_S:g} s",
    "catching_up": f"reading, and lagging {CATCHING_UP_S:g} s or more",
    "waiting": "waiting to retry the source after an error",
    "blocked_on_client": "the ring is full until a client acks",
    "blocked_on_store": "the ring is full, and no client is subscribed",
    "stopping": "shutting down",
    "failed": "could not start, and is retried, or ended with an internal error",
    "stopped": "stopped by an operator",
}
# A destination that is in one of them does what is asked of it, or is not to run here.
READY_STATES: Final = (
    "idle",
    "standby",
    "dumping",
    "catching_up",
    "blocked_on_client",
    "blocked_on_store",
    "stopping",
    "stopped",
)
_READING: Final = ("dumping", "catching_up", "blocked_on_client", "blocked_on_store")
_BY_LIFE: Final = {
    "idle": "idle",
    "competing": "standby",
    "starting": "starting",
    "running": "stopping",  # it may not run any longer
    "stopping": "stopping",
    "paused": "failed",
    "stopped": "stopped",
    "ended": "failed",  # by an internal error: the process ends its page before it
}
_BY_PUMP: Final = {
    "connecting": "locating",
    "waiting": "waiting",
    "stopped": "stopping",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """One destination; `metrics` is None while it does not run on this server."""

    destination: str
    status: Mapping[str, Any]  # as `canal-server status --json` has it
    requests: RequestCounts
    metrics: InstanceMetrics | None

    @property
    def state(self) -> str:
        """One of STATES."""
        status = self.status
        if not status.get("running"):
            if status.get("life") == "competing" and status.get("error"):
                # Else it failed to start, and is about to try again.
                return "no_lease" if status["lease"]["error"] else "failed"
            return _BY_LIFE.get(str(status.get("life")), "stopped")
        blocked = status.get("blocked")
        if blocked:
            return "blocked_on_client" if blocked["clients"] else "blocked_on_store"
        found = _BY_PUMP.get(str(status.get("state")))
        if found is not None:
            return found
        lag_s = self.lag_s
        return "dumping" if lag_s is None or lag_s < CATCHING_UP_S else "catching_up"

    @property
    def reads_source(self) -> bool:
        """Whether it reads a source, without an error, or would if clients acked."""
        return self.state in _READING and not self.status.get("error")

    @property
    def store_fill_ratio(self) -> float | None:
        """How full the ring is, 0 to 1; it may exceed 1 by one transaction."""
        found = self.metrics
        if found is None:
            return None
        store = found.store
        used = (store.put_sequence - store.ack_sequence) / found.buffer_entries
        if found.batch_mode == "MEMSIZE":
            bytes_used = store.put_bytes - store.ack_bytes
            used = max(used, bytes_used / found.buffer_bytes)
        return used

    @property
    def lag_s(self) -> float | None:
        """How far reading lags, in seconds; of the source that lags most."""
        if self.metrics is None:
            return None
        return greatest_lag(each.lag_s for each in self.metrics.sources.values())
