"""The reader of one late client: a pump of its own into a store of its own.

::

    pump ─► transaction buffer ─► sink ─► store ─► the client
                                    └─ at each boundary: does the ring go on here?

It begins where the client has acked to, with the columns of that place, as the pump of
an instance begins after a restart, and ends when it meets the ring. Its store is a
quarter of the ring, and a full one stops its reading only. Leaves out who gets from
which store (`canal_server.catchup.store_router`).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import TableIds
from canal_server.errors import ClientError, SourceError
from canal_server.filters.column_filters import ColumnFilter
from canal_server.model.positions import EntryPosition, binlog_file_number
from canal_server.mysql.binlogs import current_end
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.pipeline.sink import EntrySink
from canal_server.pipeline.transaction_buffer import TransactionBuffer
from canal_server.protocol.range_messages import PURGED
from canal_server.ranges.range_schemas import RangeTables, schemas_at
from canal_server.ranges.range_unread import UnreadStatements
from canal_server.source.pump.pump import Pump
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.store.event_store import MemoryEventStore
from canal_server.tablemeta.history.replay_cache import KeptReplays

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.catchup.handoff import Handoff
    from canal_server.config.schema import InstanceConfig, StoreConfig
    from canal_server.model.positions import LogPosition
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import Liveness, Span, TablePredicate, TableSchemas
    from canal_server.runtime.lifecycle import Deadline
    from canal_server.source.begin.position_loss import LostPosition
    from canal_server.source.begin.source_servers import Source
    from canal_server.source.read.start_position import Place

_log = logging.getLogger(__name__)

SHARE: Final = 4  # of the ring's limits, that each late client's store may have
SPARE_BYTES_MAX: Final = 1 << 20


class ClientPlace:
    """Where one client's reader stands; a `ports.LogPositionManager`."""

    def __init__(self, acked: Callable[[], LogPosition | None]) -> None:
        self._acked = acked
        self._read: LogPosition | None = None

    def start(self) -> None:
        """Do nothing: cursors are there."""

    def request_stop(self) -> None:
        """Do nothing: a start does not wait."""

    def stop(self) -> None:
        """Do nothing: there is nothing to write."""

    def latest(self, destination: str) -> LogPosition | None:
        """Return what was read last, at first the client's cursor."""
        del destination
        return self._read or self._acked()

    def persist(self, destination: str, position: LogPosition) -> None:
        """Remember what was read."""
        del destination
        self._read = position


class CatchUpReader:
    """Implements `canal_server.catchup.store_router.CatchUp`.

    It reads `source`, which is asked when a session begins. `acked` is where the client
    has acked to; `lost` is told that the source no longer has what comes next, and
    `refused` why nothing can be made of it.
    """

    def __init__(  # noqa: PLR0917  # the parts of a small instance
        self,
        config: InstanceConfig,
        client_id: int,
        table_filter: TablePredicate | None,
        handoff: Handoff,
        liveness: Liveness,
        access: Access,
        standby: Access | None,
        *,
        source: Callable[[], Source],
        acked: Callable[[], LogPosition | None],
        lost: Callable[[LostPosition], None],
        refused: Callable[[str], None],
        is_judged_anew: bool,
    ) -> None:
        self.met = False
        self._client_id = client_id
        self._table_filter = table_filter
        self._handoff = handoff
        self._source = source
        self._acked = acked
        self._lost = lost
        self._refused = refused
        self._config = config
        # As another reader of the source, with a name for the log.
        self._named = replace(
            config,
            destination=f"{config.destination}, client {client_id}",
            source=replace(config.source, slave_id=0),
        )
        # The ring may lack what the client wants up to here, as the pump was not told
        # in time; to be asked for while None.
        self._admitted: tuple[int, int] | None = None if is_judged_anew else (0, 0)
        # The last boundary up to which all is in the store, and the set there.
        self._place: tuple[int, int] | None = None
        self._gtids = ""
        self._is_whole = True  # what is in the store ends with a boundary

        table_ids, pool = TableIds(), BlockPool(spare_max=SPARE_BYTES_MAX)
        self.store = MemoryEventStore(
            share_of(config.store),
            table_ids,
            pool,
            destination=self._named.destination,
            liveness=liveness,
        )
        self._sink = EntrySink(self.store, thin_markers=config.filter.transaction_entry)
        self._buffer = TransactionBuffer(
            config.buffer.transaction_size,
            config.buffer.memory_bytes_max,
            self._deliver,
        )
        self._pump = Pump(
            self._named,
            access,
            pool,
            table_ids,
            ClientPlace(acked),
            columns=ColumnFilter(config.filter.field, config.filter.black_field),
            table_filter=table_filter or _everything,
            deliver=self._buffer.put,
            reset=self._reset,
            idle=self._idle,
            begun=lambda _: None,
            session=self._session_begins,
            cursors=self._cursors,
            gone=self._gone,
            standby=standby,
            images=self._schemas_at,
        )
        self._pump.begin_with(source().identity)
        self.store.subscribe(client_id, table_filter, self._pump.begins_after(acked()))

    # --- CatchUp ----------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read."""
        acked = self._acked()
        self._gtids = (acked and acked.position.gtid) or ""
        _log.info(
            "client %d of %s is served by a reader of its own from %s on, until that"
            " meets the ring",
            self._client_id,
            self._config.destination,
            acked,
        )
        self._pump.start()

    def turn_to(self, source: Source) -> None:
        """Read the server that the instance reads now."""
        if self._pump.sources.current != source:
            self._pump.switch_to(source)

    def change_table_filter(self, table_filter: TablePredicate | None) -> None:
        """Read other tables from now on."""
        if table_filter == self._table_filter:
            return
        self._table_filter = table_filter
        # First: who finds the filter must not find the ring admitted.
        self._admitted = None
        self._pump.change_table_filter(table_filter or _everything)

    def request_stop(self) -> None:
        """End it; returns at once."""
        self._pump.request_stop()

    def join(self, deadline: Deadline) -> bool:
        """Wait until it has ended."""
        return self._pump.join(deadline)

    def status(self) -> dict[str, object]:
        """Return what an operator asks, as plain values."""
        status = self._pump.status
        return {
            "state": status.state.value,
            "position": status.position,
            "position_ms": status.delivered_at_ms or None,
            "met": self.met,
            "error": status.error,
        }

    # --- where it begins --------------------------------------------------------------

    def _session_begins(self) -> None:
        # The instance may have turned to it before it knew of this reader.
        self.turn_to(self._source())
        if self._pump.begins_after(self._acked()) is None:
            self.store.forget_after(self._client_id)

    def _cursors(self) -> list[EntryPosition]:
        acked = self._acked()
        return [] if acked is None else [acked.position]

    def _schemas_at(
        self, control: ControlConnection, info: ServerInfo, place: Place
    ) -> TableSchemas:
        """Return the tables as of where the session begins. Raises CanalError."""
        access = self._pump.sources.current.access
        scanner = DdlScanner(self._named, access, self._pump.stop)
        at: EntryPosition | None = EntryPosition(place.file, place.position)
        if place.by_gtid:
            at = scanner.first_position(place.dump_start())
        if at is None:
            end = current_end(control, info)
            at = EntryPosition(end.file, end.position)
        try:
            # Read once: nothing is kept, and the history tells what is known.
            tables = RangeTables(KeptReplays(), UnreadStatements(), lambda: None)
            return schemas_at(
                self._config,
                control,
                info,
                at,
                scanner,
                tables=tables,
                executed=lambda _: place.gtids,
            )
        except ClientError as error:
            if error.code == PURGED:
                self._refused(str(error))
                self._pump.request_stop()
            raise

    def _gone(self, gone: LostPosition) -> bool:
        self._lost(gone)
        self._pump.request_stop()
        return False

    # --- what it reads ----------------------------------------------------------------

    def _deliver(self, spans: list[Span]) -> bool:
        if not self._sink.accept(spans, self._pump.stop):
            return False
        self._pump.flushed(spans)
        block, _, stop = spans[-1]
        self._is_whole = block.last_boundary(stop - 1, stop) >= 0
        if not self._is_whole:
            return True
        record = block.record(stop - 1)
        end = record["offset"] + record["event_length"] - 1
        self._place = block.file_number, end
        if self._config.source.gtid_on:
            self._gtids = block.position(stop - 1)[4] or self._gtids
        return not self._meets()

    def _reset(self, goes_on: bool) -> None:
        self._buffer.reset()
        if not goes_on:
            self._sink.reset()
            self._is_whole, self._place = True, self._pump.reads_after

    def _idle(self) -> None:
        """Take note that the source has nothing more at hand."""
        self.store.wake_getters()
        reached = self._pump.reached
        if reached is None or self._buffer.pending or not self._is_whole:
            return
        file_number, offset = reached
        self._place = max(self._place or (0, 0), (file_number, offset - 1))
        self._meets()

    def _meets(self) -> bool:
        """Hand the client over if the ring goes on here; true when it was."""
        place, table_filter = self._place, self._table_filter
        if self.met or place is None:
            return self.met
        here = place, self._gtids, self._pump.server
        if not self._handoff.is_near(*here) or not self._is_admitted(place):
            return False
        if not self._handoff.join(self._client_id, table_filter, *here):
            return False
        self.met = True
        self.store.end()
        self._pump.request_stop()
        _log.info(
            "client %d of %s has caught up: it is served from the ring behind %s",
            self._client_id,
            self._config.destination,
            self._pump.status.position or acked_text(self._acked()),
        )
        return True

    def _is_admitted(self, place: tuple[int, int]) -> bool:
        """Tell whether the ring has all that the client wants behind a place.

        What the source had written when the filter was changed may have been read
        without it.
        """
        if self._admitted is None:
            access, stop = self._pump.sources.current.access, self._pump.stop
            try:
                with ControlConnection(access, stop) as control:
                    end = current_end(control, read_server_info(control))
            except SourceError:
                return False  # at the next boundary, then
            self._admitted = binlog_file_number(end.file), end.position - 1
        return place >= self._admitted


def share_of(config: StoreConfig) -> StoreConfig:
    """Return the limits of a late client's store."""
    return replace(
        config,
        buffer_size=max(config.buffer_size // SHARE, min(config.buffer_size, 256)),
        block_bytes_max=config.block_bytes_max // SHARE,
    )


def acked_text(acked: LogPosition | None) -> str:
    """Return a client's cursor for the log."""
    return "no place" if acked is None else str(acked.position)


def _everything(_names: object) -> bool:
    return True
