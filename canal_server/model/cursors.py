"""The cursors of a destination's clients, as a running server reports them.

Leaves out what a position is (`canal_server.model.positions`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import (
    LogIdentity,
    log_position_from_json,
    log_position_to_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.model.positions import LogPosition


@dataclass(frozen=True, slots=True)
class ClientCursor:
    """A client and what it has acked.

    `before`: everything that the client has not acked comes after this position. It may
    be further than the cursor, because entries that its filter rejects are not acked.
    Known only while the destination is served.
    """

    identity: ClientIdentity
    cursor: LogPosition | None
    before: LogPosition | None = None
    open_batches: int = 0

    def furthest(self) -> LogPosition | None:
        """Return the position after which everything unacked comes."""
        cursor, before = self.cursor, self.before
        if cursor is None or before is None or cursor.identity != before.identity:
            return cursor or before
        later = before.position.order() > cursor.position.order()
        return before if later else cursor


@dataclass(frozen=True, slots=True)
class DestinationCursors:
    """A destination's clients, by client id, and how far its source was read.

    `parsed` is the last position that was put into the store, `reads` the server that
    is read now; both are known only while the destination is served. For a group,
    `sources` maps the number of a source to the same clients with their positions
    there.
    """

    clients: tuple[ClientCursor, ...]
    parsed: LogPosition | None = None
    sources: Mapping[int, DestinationCursors] = field(default_factory=dict)
    reads: LogIdentity | None = None


def cursors_to_json(cursors: DestinationCursors) -> dict[str, Any]:
    """Return the JSON object with which a server reports them."""
    return {
        "parsed": _to_json(cursors.parsed),
        "reads": None
        if cursors.reads is None
        else [cursors.reads.address, cursors.reads.port],
        "clients": [
            {
                "client": each.identity.client_id,
                "filter": each.identity.filter,
                "cursor": _to_json(each.cursor),
                "before": _to_json(each.before),
                "open": each.open_batches,
            }
            for each in cursors.clients
        ],
        "sources": [
            {"number": number, **cursors_to_json(source)}
            for number, source in sorted(cursors.sources.items())
        ],
    }


def cursors_from_json(destination: str, value: dict[str, Any]) -> DestinationCursors:
    """Read what `cursors_to_json` wrote, also from a server of an older version."""
    reads = value.get("reads")
    return DestinationCursors(
        tuple(
            ClientCursor(
                ClientIdentity(destination, each["client"], each["filter"]),
                _from_json(each["cursor"]),
                _from_json(each["before"]),
                each["open"],
            )
            for each in value["clients"]
        ),
        _from_json(value["parsed"]),
        {
            int(source["number"]): cursors_from_json(destination, source)
            for source in value.get("sources", ())
        },
        LogIdentity(*reads) if reads else None,
    )


def _to_json(position: LogPosition | None) -> dict[str, Any] | None:
    return None if position is None else log_position_to_json(position)


def _from_json(value: dict[str, Any] | None) -> LogPosition | None:
    return None if value is None else log_position_from_json(value)
