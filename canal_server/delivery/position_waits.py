"""Which destinations wait for their positions in the message queue, and why."""

from __future__ import annotations

import time
from typing import NamedTuple

from canal_server.delivery.delivery_status import State


class _Wait(NamedTuple):
    why: str
    since_ms: int


class PositionWaits:
    """Notes of the threads that wait, for those that ask; of any thread.

    A destination that waits has no instance yet that could say so itself.
    """

    def __init__(self) -> None:
        self._waits: dict[str, _Wait] = {}

    def note(self, destination: str, why: str) -> None:
        """Note why a destination waits; empty: it does not any more."""
        if not why:
            self._waits.pop(destination, None)
            return
        before = self._waits.get(destination)
        since_ms = before.since_ms if before else round(time.time() * 1000)
        self._waits[destination] = _Wait(why, since_ms)

    def shown_in(self, status: dict[str, object]) -> dict[str, object]:
        """Return the status of a destination, with the reason as its error.

        Its delivery waits for the destination: one cause is shown, counted and sent as
        an alarm once.
        """
        wait = self._waits.get(str(status["destination"]))
        if wait is None or status.get("running"):
            return status
        since_ms = wait.since_ms
        found = status | {
            "error": f"waits for its position in the message queue: {wait.why}",
            "error_since_ms": since_ms,
        }
        if isinstance(delivery := status.get("delivery"), dict):
            waiting = {"state": State.WAITING.value, "reason": "", "since_ms": since_ms}
            found["delivery"] = delivery | waiting
        return found
