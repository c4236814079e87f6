"""The form that positions have in the JSON of commands and of the REST interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.model.moments import time_text

if TYPE_CHECKING:
    from canal_server.model.positions import EntryPosition


def position_as_json(position: EntryPosition) -> dict[str, str | None]:
    """Return a position, its time and its transaction in their JSON form."""
    return {
        "position": str(position),
        "time": time_text(position.timestamp) or None,
        "gtid": position.gtid,
    }
