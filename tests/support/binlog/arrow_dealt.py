"""The oracle of rows that are dealt out to tasks by the hash of their key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from arrow_truth import GenericTruth

from canal_server.model.entry import EventType

if TYPE_CHECKING:
    from canal_server.protocol.entry_messages import Column, Entry, RowChange, RowData

BITS = (1 << 64) - 1


def hash_of(text: bytes) -> int:
    """Return FNV-1a of 64 bits."""
    hashed = 0xCBF29CE484222325
    for byte in text:
        hashed = (hashed ^ byte) * 0x100000001B3 & BITS
    return hashed


def part_of(hashed: int, count: int) -> int:
    """Return the part, by the finalizer of MurmurHash3."""
    hashed &= BITS
    hashed = (hashed ^ hashed >> 33) * 0xFF51AFD7ED558CCD & BITS
    hashed = (hashed ^ hashed >> 33) * 0xC4CEB9FE1A85EC53 & BITS
    return (hashed ^ hashed >> 33) % count


@dataclass
class DealtTruth(GenericTruth):
    """Rows with the part that each belongs to."""

    count: int = 1

    def put_change(self, entry: Entry, change: RowChange, row: RowData) -> None:
        """Split updates of a key, and say whose the rows are."""
        kinds = [change.event_type]
        if change.event_type == EventType.UPDATE:
            if any(c.is_key and c.updated for c in row.after_columns):
                kinds = [EventType.DELETE, EventType.INSERT]
            else:
                self.skip_number()
        for kind in kinds:
            super().put_change(entry, replace(change, event_type=kind), row)
            images = row.after_columns, row.before_columns
            if kind == EventType.DELETE:
                images = images[::-1]
            self._pending[-1]["part"] = self._part(entry, *images)

    def put_statement(self, entry: Entry, change: RowChange) -> None:
        """Give it to the first part."""
        super().put_statement(entry, change)
        self._pending[-1]["part"] = 0

    def _part(
        self, entry: Entry, image: tuple[Column, ...], other: tuple[Column, ...]
    ) -> int:
        keys = {c.index: c for c in (*other, *image) if c.is_key}
        if keys:
            sums = sum(hash_of(c.value.encode()) for c in keys.values())
            return part_of(sums, self.count)
        names = entry.header.schema_name + entry.header.table_name
        return part_of(hash_of(names.encode()), self.count)
