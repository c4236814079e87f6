"""From what a cursor took to the batch that its client gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.model.batch import Batch
from canal_server.model.positions import EntryPosition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.store.fetched import Fetched
    from canal_server.store.ring import Place


def position_of(place: Place) -> EntryPosition:
    """Return the position of an entry from what its block tells."""
    file, offset, timestamp_ms, server_id, gtid, source = place
    return EntryPosition(
        file, offset, timestamp_ms, server_id, gtid or None, source=source
    )


def batch_of(taken: Fetched) -> Batch:
    """Return the batch; its slices keep the entries' memory."""
    start, end, ack = taken.positions()
    return Batch(
        first_sequence=taken.first_sequence,
        last_sequence=taken.last_sequence,
        slices=taken.slices(),
        count=taken.count,
        size=taken.size,
        start=position_of(start),
        end=position_of(end),
        ack=None if ack is None else position_of(ack),
        places={
            member: position_of(place) for member, place in (taken.places or {}).items()
        },
    )


def place_after(
    after: EntryPosition | Mapping[int, EntryPosition] | None,
) -> tuple[int, int] | dict[int, tuple[int, int]] | None:
    """Return what a cursor compares places with."""
    if isinstance(after, EntryPosition):
        return after.order() if after.journal_name else None
    if after is None:
        return None
    return {
        member: place.order() for member, place in after.items() if place.journal_name
    }
