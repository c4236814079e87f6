"""What a pump tells people of itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PumpState(Enum):
    """What the pump is doing."""

    STOPPED = "stopped"
    CONNECTING = "connecting"
    RUNNING = "running"
    WAITING = "waiting"  # after an error, until the next attempt


@dataclass(slots=True)
class PumpStatus:
    """For people; written by the pump's thread."""

    state: PumpState = PumpState.STOPPED
    position: str = ""
    error: str = ""
    source: str = ""
    connections: int = 0
    received_bytes: int = 0
    delivered_at_ms: int = 0
