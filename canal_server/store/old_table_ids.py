"""When the names of old table ids are forgotten: once no entry in the ring has one.

Leaves out the ids themselves, and when a new epoch of them begins (`core.table_ids`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.core.table_ids import TableIds
    from canal_server.ports import Span
    from canal_server.store.ring import Ring


class OldTableIds:
    """The ids of the previous epoch; used under the lock of the store.

    A statement that was being read when a new epoch began has old ids in its rows, and
    may still be in the transaction buffer. After the end of its transaction no more of
    them follow; once the ring has freed the entries before, none is left.
    """

    def __init__(self, table_ids: TableIds, ring: Ring) -> None:
        self._table_ids = table_ids
        self._ring = ring
        # While old ids exist: entries from this sequence on have new ones only.
        self._new_from: int | None = None

    def note_put(self, spans: Sequence[Span]) -> None:
        """Forget the old names if no entry has them; `spans` were just put.

        Called only while old ids exist.
        """
        ring = self._ring
        if self._new_from is None:
            # In a group, other sources may still have old ids.
            if not ring.grouped and any(
                block.last_boundary(first, stop) >= 0 for block, first, stop in spans
            ):
                self._new_from = ring.put_sequence
        elif ring.free_sequence >= self._new_from:
            self._table_ids.forget_old()
            self._new_from = None

    def note_new_only(self) -> None:
        """Note that entries which are put from now on have new ids only."""
        if self._table_ids.ageing and self._new_from is None:
            self._new_from = self._ring.put_sequence
