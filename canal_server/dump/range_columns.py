"""What tables are since the last statement, for those who ask again and again.

Each task of a typed stream asks what its table was where it begins. To find out takes a
look at the source and at the history; while no statement came, the answer stays.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from canal_server.model.positions import EntryPosition, binlog_file_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.dump.range_access import RangeAccess
    from canal_server.model.ranges import RangePlace
    from canal_server.model.table import TableMeta

TABLES_MAX: Final = 1000  # that are remembered


class SteadyColumns:
    """Remembers what was told of places behind the last statement; thread-safe."""

    def __init__(self, access: RangeAccess) -> None:
        self._access = access
        self._lock = threading.Lock()
        # By the epoch, the number of the history's state, and the name.
        self._known: dict[tuple[int, int, str, str], TableMeta | None] = {}

    def find(
        self,
        schema: str,
        table: str,
        at: RangePlace,
        ask: Callable[[], TableMeta | None],
    ) -> TableMeta | None:
        """Return what a table is at a place: as remembered, else what `ask` says."""
        number = self._state_at(at)
        if number is None:
            return ask()
        key = at.epoch, number, schema, table
        with self._lock:
            if key in self._known:
                return self._known[key]
        found = ask()
        # A session that began meanwhile may be one of another server.
        if self._state_at(at) == number:
            with self._lock:
                if len(self._known) >= TABLES_MAX:
                    self._known.clear()
                self._known[key] = found
        return found

    def _state_at(self, at: RangePlace) -> int | None:
        """Return the history's state at a place; None where it may not be the last one.

        The tail first: a statement is in the history before the tail has what follows
        it, so one that comes in between the two looks lies behind the place.
        """
        live = self._access.stages()
        epoch, latest = self._access.epoch_of(live), live.tail.latest()
        steady = live.pump.steady
        if epoch is None or latest is None or steady is None or at.epoch != epoch:
            return None
        end = binlog_file_number(latest[0]), latest[1]
        if (binlog_file_number(at.journal), at.position) > end:
            return None
        place = EntryPosition(at.journal, at.begin or at.position)
        return steady.number if steady.since.order() <= place.order() else None
