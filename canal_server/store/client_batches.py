"""Converts what a cursor fetched to the batch that its client gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.model.batch import Batch
from canal_server.model.positions import EntryPosition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.store.fetched import Fetched
    from canal_server.store.ring import BlockPosition


def position_of(position: BlockPosition) -> EntryPosition:
    """Return the position of an entry from its block's fields."""
    file, offset, timestamp_ms, server_id, gtid, source = position
    return EntryPosition(
        file, offset, timestamp_ms, server_id, gtid or None, source=source
    )


def batch_of(fetched: Fetched) -> Batch:
    """Return the batch; its slices keep the entries' memory."""
    start, end, ack = fetched.positions()
    return Batch(
        first_sequence=fetched.first_sequence,
        last_sequence=fetched.last_sequence,
        slices=fetched.slices(),
        count=fetched.count,
        size=fetched.size,
        start=position_of(start),
        end=position_of(end),
        ack=None if ack is None else position_of(ack),
        is_open=fetched.is_open,
        begins_anew=fetched.begins_anew,
        is_broken=fetched.is_broken,
        source_positions={
            source: position_of(position)
            for source, position in (fetched.boundaries or {}).items()
        },
    )


def start_order(
    after: EntryPosition | Mapping[int, EntryPosition] | None,
) -> tuple[int, int] | dict[int, tuple[int, int]] | None:
    """Return the form in which a cursor compares positions."""
    if isinstance(after, EntryPosition):
        return after.order() if after.journal_name else None
    if after is None:
        return None
    return {
        source: position.order()
        for source, position in after.items()
        if position.journal_name
    }
