"""The client that lags most, for `status`.

Leaves out the distance to the end of a binlog, for which the source has to be asked
(`canal_server.source.begin.source_lag`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from canal_server.model.identity import ClientIdentity

if TYPE_CHECKING:
    from collections.abc import Collection

    from canal_server.ports import MetaManager
    from canal_server.position.presence import Presence


def slowest_client(
    meta: MetaManager,
    destination: str,
    in_ring: tuple[int, int, float] | None,
    presence: Presence,
    apart: Collection[int] = (),
) -> dict[str, object] | None:
    """Return the client that lags most, as JSON values; None: no client lags.

    `in_ring` is the slowest client of the ring: its id, the entries that it has not
    acked, and for how many seconds they have been there. Clients `apart` are read for
    separately, and lag since the commit of what they have acked; the number of their
    missing entries is not known. `presence` knows whether a connection serves a client.
    """
    found: list[tuple[int, int | None, float | None]] = [in_ring] if in_ring else []
    found += [(each, None, _since_ack_s(meta, destination, each)) for each in apart]
    if not found:
        return None
    client_id, entries, seconds = max(found, key=lambda each: each[2] or 0.0)
    away_s = presence.away_s(client_id)
    return {
        "client": client_id,
        "entries": entries,
        "seconds": None if seconds is None else round(seconds, 3),
        "connected": client_id in presence.here(),
        "away_s": None if away_s is None else round(away_s, 3),
    }


def _since_ack_s(meta: MetaManager, destination: str, client_id: int) -> float | None:
    cursor = meta.cursor(ClientIdentity(destination, client_id))
    if cursor is None or not cursor.position.timestamp:
        return None
    return max(0.0, time.time() - cursor.position.timestamp / 1000)
