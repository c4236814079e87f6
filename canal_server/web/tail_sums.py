"""Notes what a tail has shown: now and then, and at its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from canal_server.users.audit_log import SUM_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.client.change_reader import Change


class TailSums:
    """The rows of one tail since they were noted last; one thread at a time."""

    def __init__(self, note: Callable[..., None]) -> None:
        """`note` gets an event and its fields; that of the beginning at once."""
        self._note = note
        self._first: tuple[str, int] | None = None
        self._last: tuple[str, int] | None = None
        self._rows = 0
        self._since_s = time.monotonic()
        note("tail")

    def add(self, change: Change) -> None:
        """Add a change that is sent."""
        self._first = self._first or change.position
        self._last = change.end_position
        if change.before is not None or change.after is not None:
            self._rows += 1

    def look(self) -> None:
        """Note the sum, if the last one is long ago."""
        if self._first is not None and time.monotonic() - self._since_s >= SUM_S:
            self._flush("tail_read")

    def end(self) -> None:
        """Note the remaining sum, and the end."""
        self._flush("tail_end")

    def _flush(self, event: str) -> None:
        self._note(event, **self._sum())
        self._first = self._last = None
        self._rows = 0
        self._since_s = time.monotonic()

    def _sum(self) -> dict[str, Any]:
        return {
            "from": _text(self._first),
            "to": _text(self._last),
            "rows": self._rows,
        }


def _text(position: tuple[str, int] | None) -> str | None:
    return None if position is None else f"{position[0]}:{position[1]}"
