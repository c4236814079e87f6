"""Adjusts a client's acked position to where its cursor in the store stands.

They differ for a client that is new to the store, and for one whose filter rejected
what arrived after its last ack.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.messages import server_messages

if TYPE_CHECKING:
    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogPosition
    from canal_server.ports import RunningInstance

log = logging.getLogger(__name__)


def join_cursors(instance: RunningInstance, identity: ClientIdentity) -> None:
    """Adjust the acked position of a client that is new to the store to its cursor.

    No entries are retained for a client that has unsubscribed: what others acked
    meanwhile is lost for it. Requires the identity's lock.
    """
    _join_source_positions(instance, identity)
    first = instance.resume_position(identity.client_id)
    if first is None:
        return
    acked, here = instance.meta.cursor(identity), instance.log_position(first)
    if acked is None:
        instance.meta.update_cursor(identity, here)
    elif _is_earlier(acked, here):
        _warn_of_gap(identity, acked, here)


def _join_source_positions(instance: RunningInstance, identity: ClientIdentity) -> None:
    """Do the same for each source of a group. Requires the identity's lock."""
    positions = instance.resume_source_positions(identity.client_id)
    if not positions:
        return
    acked = instance.meta.source_positions(identity)
    new = {source: here for source, here in positions.items() if source not in acked}
    instance.meta.update_source_positions(identity, new)
    for source, here in positions.items():
        if source in acked and _is_earlier(acked[source], here):
            _warn_of_gap(identity, acked[source], here)


def _warn_of_gap(
    identity: ClientIdentity, acked: LogPosition, here: LogPosition
) -> None:
    server_messages.CLIENT_MISSED_ENTRIES.log(
        log, identity.client_id, identity.destination, acked.position, here.position
    )


def skip_rejected(instance: RunningInstance, identity: ClientIdentity) -> None:
    """Move a client's acked position past what its filter rejected after it.

    Otherwise the client would seem to have missed that. Requires the identity's lock.
    """
    positions = instance.resume_source_positions(identity.client_id)
    known = instance.meta.source_positions(identity) if positions else {}
    moved = {
        source: here
        for source, here in positions.items()
        if source in known and _is_earlier(known[source], here)
    }
    if moved:
        instance.meta.update_source_positions(identity, moved)
    first = instance.resume_position(identity.client_id)
    acked = instance.meta.cursor(identity)
    if first is not None and acked is not None:
        here = instance.log_position(first)
        if _is_earlier(acked, here):
            instance.meta.update_cursor(identity, here)


def _is_earlier(position: LogPosition, other: LogPosition) -> bool:
    """Return whether a position is an earlier one on the same server."""
    return (
        position.identity == other.identity
        and position.position.order() < other.position.order()
    )
