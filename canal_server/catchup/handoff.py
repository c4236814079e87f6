"""Where a catch-up reader may hand its client over to the ring.

A reader has given its client all up to a boundary. It may hand over when the ring
holds, or will hold, all that follows that boundary in the same binlog. A cursor in the
ring that begins there then continues without loss and without duplicates.

Where the pump began to read by a GTID set, it left out what is in the set, wherever
that is in the binlog: then the client must also have been given all of the set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet

if TYPE_CHECKING:
    from canal_server.model.positions import LogPosition
    from canal_server.ports import TablePredicate
    from canal_server.source.begin.source_servers import Source
    from canal_server.source.pump.pump import Pump
    from canal_server.store.event_store import MemoryEventStore


class Handoff:
    """The ring of one instance and how its pump reads.

    `begin_run` is called by the pump's thread, all others by any.
    """

    def __init__(self, ring: MemoryEventStore, pump: Pump, *, gtid_on: bool) -> None:
        self._ring = ring
        self._pump = pump
        self._gtid_on = gtid_on
        self._left_out: GtidSet | MariaGtidSet | None = None  # in this run

    @property
    def source(self) -> Source:
        """Return the server that the pump reads."""
        return self._pump.sources.current

    def begin_run(self) -> None:
        """Note that the pump does not continue after the last record in the ring."""
        self._left_out = self._pump.reads_after_set
        self._ring.begin_run(self._pump.reads_after)

    def rejoin(
        self,
        client_id: int,
        table_filter: TablePredicate | None,
        acked: LogPosition | None,
    ) -> bool:
        """Give a client its cursor in the ring; false if it is too late for that.

        The record at the acked position must be in the ring: the client may have acked
        only a part of it.
        """
        run = self._ring.run
        after = self._pump.begins_after(acked)
        if after is None or not after.journal_name or not self._pump.server:
            return False
        file_number, offset = after.order()
        if not self._has_all(after.gtid or "", file_number):
            return False
        needs = file_number, offset - 1
        return self._ring.join(
            client_id, table_filter, (file_number, offset), run, needs=needs
        )

    def is_near(self, position: tuple[int, int], gtids: str, server: str) -> bool:
        """Return whether a client that has all up to a position could continue here."""
        run = self._ring.run
        return (
            self._pump.server == server
            and self._ring.covers(position, run)
            and self._has_all(gtids, position[0])
        )

    def join(
        self,
        client_id: int,
        table_filter: TablePredicate | None,
        position: tuple[int, int],
        gtids: str,
        server: str,
    ) -> bool:
        """Give a client its cursor after a boundary; false if it is too early.

        `position` is the last byte before what follows.
        """
        run = self._ring.run
        if self._pump.server != server or not self._has_all(gtids, position[0]):
            return False
        return self._ring.join(client_id, table_filter, position, run, needs=position)

    def _has_all(self, gtids: str, file_number: int) -> bool:
        """Return whether a client with this set has all that the pump left out."""
        left_out = self._left_out
        if left_out is None:
            return True
        whole_from = self._pump.whole_from
        if whole_from is not None and file_number >= whole_from:
            return True
        if not self._gtid_on or not gtids:
            return False
        try:
            if isinstance(left_out, GtidSet):
                return GtidSet.parse(gtids).contains(left_out)
            return MariaGtidSet.parse(gtids).contains(left_out)
        except ValueError:
            return False
