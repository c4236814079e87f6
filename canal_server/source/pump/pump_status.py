"""The status of a pump, for operators."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


class PumpState(Enum):
    """What the pump is doing."""

    STOPPED = "stopped"
    CONNECTING = "connecting"
    RUNNING = "running"
    WAITING = "waiting"  # after an error, until the next attempt


@dataclass(slots=True)
class PumpStatus:
    """For operators; written by the pump's thread."""

    state: PumpState = PumpState.STOPPED
    position: str = ""
    error: str = ""  # set by `failed`, cleared by `reads`
    error_since_ms: int = 0  # of the first failure since it last read
    source: str = ""
    connections: int = 0
    received_bytes: int = 0
    delivered_at_ms: int = 0
    is_at_end: bool = False  # the source has nothing more at hand
    at_end_ms: int = 0  # when that was last so, by our clock
    warnings: tuple[str, ...] = ()  # of the source, as long as they hold; replaced

    certificate_expires_at: datetime | None = None  # the source's; None: it shows none

    def failed(self, error: str) -> None:
        """Record an error; it stays until the source is read again."""
        self.error = error
        self.error_since_ms = self.error_since_ms or _now_ms()
        self._leave_end()

    def reads(self) -> None:
        """Record that a connection is read, and clear the error."""
        self.state = PumpState.RUNNING
        self.connections += 1
        self.error, self.error_since_ms = "", 0

    def reached_end(self) -> None:
        """Record that the source has nothing more at hand."""
        self.is_at_end, self.at_end_ms = True, _now_ms()

    def received(self) -> None:
        """Record that something was received, which is to be delivered."""
        self._leave_end()

    def _leave_end(self) -> None:
        if self.is_at_end:
            self.is_at_end, self.at_end_ms = False, _now_ms()

    def lag_s(self) -> float | None:
        """Return how far reading may lag behind the source; None: not known yet.

        0 at the end of its binlog; else the time since the end was reached or the last
        delivered transaction was committed, whichever is later.
        """
        if self.is_at_end and self.state is PumpState.RUNNING:
            return 0.0
        known_ms = max(self.at_end_ms, self.delivered_at_ms)
        return max(0, _now_ms() - known_ms) / 1000 if known_ms else None

    def as_json(self) -> dict[str, object]:
        """Return the error's time, warnings and the lag, as values of JSON."""
        lag_s, ends = self.lag_s(), self.certificate_expires_at
        return {
            "warnings": list(self.warnings),
            "error_since_ms": self.error_since_ms or None,
            "certificate_expires_ms": ends and round(ends.timestamp() * 1000),
            "lag": {
                "seconds": None if lag_s is None else round(lag_s, 3),
                "bytes": 0 if lag_s == 0 else None,  # else the source had to be asked
            },
        }


def _now_ms() -> int:
    return round(time.time() * 1000)
