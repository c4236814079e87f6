"""What one reader follows of a destination: the entries of some tables, as they come.

::

    store ─► head tap ─► filter ─► (a reader, at its own speed)

It is no client: it has no cursor, and acks nothing. It sees what the destination reads
for its clients; a table that no client asks for is not among that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from canal_server.errors import StoreError
from canal_server.ranges.selection import RangeWalk
from canal_server.store.head_taps import TOO_SLOW, HeadTap, Skipped

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.instance.stages import Stages
    from canal_server.model.ddl_statement import FilteredNames
    from canal_server.ports import TablePredicate


class Tapped(NamedTuple):
    """What was skipped, and what comes after it: bytes of `Messages`, entries whole.

    Entries that are not those of rows or statements may be among them, or missing.
    """

    skipped: list[Skipped]
    bodies: tuple[memoryview, ...]


class ChangeTap:
    """Follows the stages of a destination until `close`, or until they end.

    `read` is for one thread at a time. `on_news` is called by any thread, must not
    block, and may be called once more after `close`.
    """

    def __init__(
        self,
        stages: Stages,
        table_filter: TablePredicate,
        reads: TablePredicate,
        on_news: Callable[[], None],
    ) -> None:
        """Begin to follow.

        `reads` returns whether the destination reads tables for its clients.
        """
        self._reads = reads
        self._table_ids = stages.table_ids
        self._walk = RangeWalk(table_filter, stages.table_ids, (0, 0), picks=True)
        self._head = HeadTap(on_news)
        self._taps = stages.ring.taps
        self._taps.add(self._head)

    @property
    def closed(self) -> bool:
        """Return whether nothing more will come, once `read` returns None."""
        return self._head.closed

    def reads(self, names: FilteredNames) -> bool:
        """Return whether a client asks for these tables; else nothing of them comes."""
        return self._reads(names)

    def read(self) -> Tapped | None:
        """Return the next entries, perhaps none of these tables; None: not now.

        After None, `on_news` is called when another call is worthwhile.
        """
        skipped, span = self._head.fetch()
        if span is None:
            return Tapped(skipped, ()) if skipped else None
        try:
            self._walk.walk([span])
        except StoreError:
            # The ring has dropped these entries so long ago that the names of their
            # tables were forgotten.
            block, first, stop = span
            rows = block.totals(first, stop)[1]
            skipped.append(Skipped(TOO_SLOW, stop - first, rows))
        slices, _ = self._walk.take()
        return Tapped(skipped, slices)

    def close(self) -> None:
        """Stop to follow, and release what is held."""
        self._taps.remove(self._head)
        self._head.close()
