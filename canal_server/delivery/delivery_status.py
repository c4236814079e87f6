"""What the delivery of a destination shows: for people, metrics and alarms."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from canal_server.config.queue_section import CLIENT_ID

if TYPE_CHECKING:
    from canal_server.queues.producers.queue_producer import Sending

TOPICS_MAX: Final = 1000  # that are counted one by one
OTHERS: Final = "(others)"


class State(StrEnum):
    """What the delivery of a destination does."""

    WAITING = "waiting"  # until the destination runs here, or for a first connection
    DELIVERING = "delivering"
    BLOCKED = "blocked"  # nothing is acked now; it is tried again
    STOPPED = "stopped"  # a message was refused for good


@dataclass(slots=True)
class DeliveryCounts:
    """What the broker has confirmed since the start; one thread changes them."""

    batches: int = 0
    failures: int = 0
    too_large: int = 0  # of what was acked or committed
    topics: dict[str, tuple[int, int]] = field(default_factory=dict)  # messages, bytes

    def acked(self, sending: Sending) -> None:
        """Count a batch that was acked, with what was sent last of it."""
        self.batches += 1
        self.confirmed(sending)

    def confirmed(self, sending: Sending) -> None:
        """Count messages, of which none is pending any more."""
        for (topic, _), (messages, size) in sending.partitions.items():
            if not messages:
                continue
            known = topic in self.topics or len(self.topics) < TOPICS_MAX
            name = topic if known else OTHERS
            before = self.topics.get(name, (0, 0))
            self.topics[name] = before[0] + messages, before[1] + size


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStatus:
    """One moment of the delivery of a destination."""

    queue: str  # kind and address of the broker
    state: State
    reason: str  # why it is not delivering
    since_ms: int  # when this state began
    position: str  # up to where it was acked, or moved; empty: unknown, or a group
    in_flight: int  # messages that the broker has not confirmed
    in_flight_bytes: int
    batches: int
    failures: int
    too_large: int
    topics: dict[str, tuple[int, int]]

    def as_json(self) -> dict[str, object]:
        """Return it as `canal-server status --json` has it."""
        return {
            "queue": self.queue,
            "client_id": CLIENT_ID,
            "state": self.state.value,
            "reason": self.reason,
            "since_ms": self.since_ms,
            "position": self.position or None,
            "in_flight": self.in_flight,
            "in_flight_bytes": self.in_flight_bytes,
            "batches": self.batches,
            "messages": sum(each[0] for each in self.topics.values()),
            "bytes": sum(each[1] for each in self.topics.values()),
            "failures": self.failures,
            "too_large": self.too_large,
            "topics": {
                name: {"messages": messages, "bytes": size}
                for name, (messages, size) in sorted(self.topics.items())
            },
        }
