"""The conditions for which there is an alarm, from what a destination shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from canal_server.instance.client_lags import LOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from canal_server.observe.readings import Reading


@dataclass(frozen=True, slots=True)
class AlarmLimits:
    """Limits in seconds; 0: no alarm of that kind."""

    after_s: float = 60.0  # for how long something must last
    lag_s: float = 0.0
    client_lag_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is wrong now; `since_s` is for how long, if that is known.

    Conditions with the same key are the same alarm, whatever their texts. One that is
    a part of another condition raises no alarm, and keeps one that was raised before.
    """

    destination: str
    kind: str
    text: str
    about: str = ""  # ids of clients, a message queue, or the warning itself
    since_s: float | None = None
    is_one: bool = False  # the same alarm whatever it is about now
    is_part: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What distinguishes it from others."""
        return self.destination, self.kind, "" if self.is_one else self.about


def conditions_of(
    reading: Reading, limits: AlarmLimits, now_s: float
) -> Iterator[Condition]:
    """Yield what is wrong with a destination; `now_s` is since 1970."""
    name, status = reading.destination, reading.status
    if status.get("error"):
        since_ms = status.get("error_since_ms")
        since_s = None if not since_ms else now_s - since_ms / 1000
        yield Condition(name, "failed", str(status["error"]), since_s=since_s)
    delivery = status.get("delivery") or {}
    is_failing = delivery.get("state") in ("blocked", "stopped")
    if blocked := status.get("blocked"):
        yield Condition(
            name,
            "blocked",
            str(blocked["reason"]),
            _blocking(delivery, blocked),
            since_s=now_s - blocked["since_ms"] / 1000,
            is_one=True,
            is_part=is_failing and _waits_for_delivery(delivery, blocked),
        )
    lag_s = reading.lag_s
    if limits.lag_s and lag_s is not None and lag_s > limits.lag_s:
        text = f"reading lags {lag_s:.0f} s behind the source"
        yield Condition(name, "lag", text)
    failing_id = delivery.get("client_id") if is_failing else None
    yield from _lagging_clients(reading, limits, failing_id)
    yield from _lost_clients(reading)
    if is_failing:
        since_s = now_s - delivery["since_ms"] / 1000
        queue = str(delivery["queue"])
        text = f"delivery to {queue}: {delivery['reason']}"
        yield Condition(name, "delivery", text, queue, since_s=since_s)
    if uncertain := status.get("uncertain_tables"):
        yield Condition(name, "uncertain_tables", str(uncertain["reason"]))
    for warning in status.get("warnings", ()):
        yield Condition(name, "warning", str(warning), about=str(warning))


def _waits_for_delivery(
    delivery: Mapping[str, Any], blocked: Mapping[str, Any]
) -> bool:
    """Return whether reading waits for nobody but the delivery.

    That has an alarm of its own if it fails, which says more.
    """
    return set(blocked["clients"]) <= {delivery.get("client_id")}


def _blocking(delivery: Mapping[str, Any], blocked: Mapping[str, Any]) -> str:
    """Return what reading waits for: the ids of clients, of the delivery its queue.

    Empty: no client is subscribed.
    """
    clients = [str(e) for e in blocked["clients"] if e != delivery.get("client_id")]
    if delivery and len(clients) < max(1, len(blocked["clients"])):
        clients.append(str(delivery["queue"]))
    return ", ".join(clients)


def _lagging_clients(
    reading: Reading, limits: AlarmLimits, failing_id: object
) -> Iterator[Condition]:
    """Yield the clients that lag; `failing_id` is that of a delivery that fails."""
    if not limits.client_lag_s or reading.metrics is None:
        return
    for each in reading.metrics.clients:
        if each.state != LOST and (each.lag_s or 0.0) > limits.client_lag_s:
            text = f"client {each.client_id} has not acked for {each.lag_s:.0f} s"
            about = str(each.client_id)
            is_part = each.client_id == failing_id
            yield Condition(
                reading.destination, "client_lag", text, about, is_part=is_part
            )


def _lost_clients(reading: Reading) -> Iterator[Condition]:
    for client_id, why in reading.status.get("lost_clients", {}).items():
        yield Condition(reading.destination, "client_lost", why, about=client_id)


def switches_of(reading: Reading) -> int:
    """Return how often the destination changed to another server."""
    if reading.metrics is None:
        return 0
    return sum(each.switches for each in reading.metrics.sources.values())
