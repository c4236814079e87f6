"""The reader of one lagging client: a pipeline into a private store.

::

    pump ─► transaction buffer ─► sink ─► store ─► the client
                                    └─ at each boundary: does the ring continue here?

It begins at the client's cursor, with the columns of that position, as the pump of an
instance does after a restart, and ends at the handoff to the ring. Its store is a
quarter of the ring's size, and when it is full only this reader waits. Which client
gets from which store is decided elsewhere (`canal_server.catchup.store_router`).
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.capture.source_pipeline import SourcePipeline
from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import TableIds
from canal_server.errors import ClientError, SourceError
from canal_server.model.positions import EntryPosition, binlog_file_number
from canal_server.mysql.binlogs import current_end
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.protocol.range_messages import PURGED
from canal_server.ranges.range_schemas import RangeTables, schemas_at
from canal_server.ranges.range_unread import UnreadStatements
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.store.event_store import MemoryEventStore
from canal_server.tablemeta.history.replay_cache import KeptReplays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.catchup.handoff import Handoff
    from canal_server.config.schema import InstanceConfig, StoreConfig
    from canal_server.model.positions import LogPosition
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.ports import Liveness, Span, TablePredicate, TableSchemas
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.begin.position_loss import LostPosition
    from canal_server.source.begin.source_servers import Source
    from canal_server.source.pump.pump_ports import PumpSource
    from canal_server.source.read.start_position import StartPosition

_log = logging.getLogger(__name__)

SHARE: Final = 4  # of the ring's limits, for the store of each lagging client
SPARE_BYTES_MAX: Final = 1 << 20
# Many readers that decode at once would have all processors, and whoever has caught up
# would wait for one: one processor is left to those.
_turns: Final = threading.BoundedSemaphore(max(len(os.sched_getaffinity(0)) - 1, 1))


@dataclass(frozen=True, slots=True)
class LaggingClient:
    """A client that a reader serves.

    `acked` returns its cursor. `on_lost` is called when the source no longer has what
    the client needs next, `on_refused` with the reason why it cannot be served.
    `filter_changed`: the ring was read with another filter of the client.
    """

    client_id: int
    table_filter: TablePredicate | None
    acked: Callable[[], LogPosition | None]
    on_lost: Callable[[LostPosition], None]
    on_refused: Callable[[str], None]
    filter_changed: bool = False


class ReaderPosition:
    """Where one client's reader stands; a `ports.LogPositionManager`."""

    def __init__(self, acked: Callable[[], LogPosition | None]) -> None:
        self._acked = acked
        self._read: LogPosition | None = None

    def start(self) -> None:
        """Do nothing: cursors are loaded."""

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


class CatchUpReader(SourcePipeline):
    """A `canal_server.catchup.store_router.CatchUp`, and the events of its own pump.

    `source` is that of the instance, `handoff` leads to the instance's ring.
    """

    def __init__(
        self,
        source: PumpSource,
        client: LaggingClient,
        handoff: Handoff,
        liveness: Liveness,
    ) -> None:
        config = source.config
        self.met = False
        self._client = client
        self._client_id = client.client_id
        self._table_filter = client.table_filter
        self._handoff = handoff
        self._instance_config = config
        named = reader_config(config, client.client_id)
        # The ring may lack what the client needs up to here, as the pump learned its
        # filter too late; None: not known yet.
        self._admitted: tuple[int, int] | None = (
            None if client.filter_changed else (0, 0)
        )
        # The last boundary up to which all is in the store, and the set there.
        self._position: tuple[int, int] | None = None
        self._gtids = ""
        self._is_whole = True  # the store ends with a boundary

        table_ids, pool = TableIds(), BlockPool(spare_max=SPARE_BYTES_MAX)
        self.store = MemoryEventStore(
            share_of(config.store),
            table_ids,
            pool,
            destination=named.destination,
            liveness=liveness,
        )
        own = replace(
            source,
            config=named,
            pool=pool,
            table_ids=table_ids,
            positions=ReaderPosition(client.acked),
            history=None,
            schemas=self._schemas_at,
            index=None,
            executed=None,
            in_turn=_in_turn,
        )
        super().__init__(own, self.store, self, client.table_filter or _everything)
        self.begin_with(handoff.source.identity)
        self.store.subscribe(
            self._client_id,
            client.table_filter,
            self.pump.begins_after(client.acked()),
        )

    # --- CatchUp ----------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read."""
        acked = self._client.acked()
        self._gtids = (acked and acked.position.gtid) or ""
        _log.info(
            "client %d of %s is served by a catch-up reader from %s on, until that"
            " reaches the ring",
            self._client_id,
            self._instance_config.destination,
            acked,
        )
        super().start()

    def turn_to(self, source: Source) -> None:
        """Read the server that the instance reads now."""
        if self.pump.sources.current != source:
            self.pump.switch_to(source)

    def change_table_filter(self, table_filter: TablePredicate | None) -> None:
        """Read other tables from now on."""
        if table_filter == self._table_filter:
            return
        self._table_filter = table_filter
        # First: who finds the filter must not find the ring admitted.
        self._admitted = None
        self.pump.change_table_filter(table_filter or _everything)

    def status(self) -> dict[str, object]:
        """Return what an operator asks, as plain values."""
        status = self.pump.status
        return {
            "state": status.state.value,
            "position": status.position,
            "position_ms": status.delivered_at_ms or None,
            "met": self.met,
            "error": status.error,
        }

    # --- PumpEvents -------------------------------------------------------------------

    def cursors(self) -> list[EntryPosition]:
        """Return the client's position."""
        acked = self._client.acked()
        return [] if acked is None else [acked.position]

    def on_session(self) -> None:
        """Read the server that the instance reads, and judge the client's position."""
        # The instance may have switched before it knew of this reader.
        self.turn_to(self._handoff.source)
        if self.pump.begins_after(self._client.acked()) is None:
            self.store.forget_after(self._client_id)

    def on_reset(self) -> None:
        """Note where the session reads from: all before that is in the store."""
        self._is_whole, self._position = True, self.pump.reads_after

    def on_begin(self, position: EntryPosition) -> None:
        """Do nothing: the client has a cursor."""

    def on_idle(self) -> None:
        """Look for the ring also after events that are not for the client."""
        reached = self.pump.reached
        if reached is None or self._buffer.pending or not self._is_whole:
            return
        file_number, offset = reached
        self._position = max(self._position or (0, 0), (file_number, offset - 1))
        self._meets()

    def on_position_lost(self, lost: LostPosition) -> bool:
        """Report it and end: what becomes of the client is the instance's decision."""
        self._client.on_lost(lost)
        self.request_stop()
        return False

    # --- what it reads ----------------------------------------------------------------

    def deliver(self, spans: list[Span], stop: Stop) -> Iterator[list[Span]]:
        """Store spans until the ring continues after them."""
        if self.met:
            yield []
            return
        yield from super().deliver(spans, stop)
        block, _, end = spans[-1]
        self._is_whole = block.last_boundary(end - 1, end) >= 0
        if not self._is_whole:
            return
        record = block.record(end - 1)
        offset = record["offset"] + record["event_length"] - 1
        self._position = block.file_number, offset
        if self._instance_config.source.gtid_on:
            self._gtids = block.position(end - 1)[4] or self._gtids
        self._meets()

    def _meets(self) -> None:
        """Hand the client over to the ring if that continues here."""
        position, table_filter = self._position, self._table_filter
        if self.met or position is None:
            return
        here = position, self._gtids, self.pump.server
        if not self._handoff.is_near(*here) or not self._is_admitted(position):
            return
        if not self._handoff.join(self._client_id, table_filter, *here):
            return
        self.met = True
        self.store.end()
        self.request_stop()
        _log.info(
            "client %d of %s has caught up: it is served from the ring after %s",
            self._client_id,
            self._instance_config.destination,
            self.pump.status.position or acked_text(self._client.acked()),
        )

    def _is_admitted(self, position: tuple[int, int]) -> bool:
        """Return whether the ring has all that the client needs after a position.

        What the source had written when the filter changed may have been read with the
        old one.
        """
        if self._admitted is None:
            access, stop = self.pump.sources.current.access, self.pump.stop
            try:
                with ControlConnection(access, stop) as control:
                    end = current_end(control, read_server_info(control))
            except SourceError:
                return False  # ask again at the next boundary
            self._admitted = binlog_file_number(end.file), end.position - 1
        return position >= self._admitted

    def _schemas_at(
        self, control: ControlConnection, info: ServerInfo, position: StartPosition
    ) -> TableSchemas:
        """Return the tables as of where the session begins. Raises CanalError."""
        access = self.pump.sources.current.access
        scanner = DdlScanner(self.config, access, self.pump.stop)
        at: EntryPosition | None = EntryPosition(position.file, position.position)
        if position.by_gtid:
            at = scanner.first_position(position.dump_start())
        if at is None:
            end = current_end(control, info)
            at = EntryPosition(end.file, end.position)
        try:
            # They are read once: nothing is cached, and the history says what it has.
            tables = RangeTables(KeptReplays(), UnreadStatements(), lambda: None)
            return schemas_at(
                self._instance_config,
                control,
                info,
                at,
                scanner,
                tables=tables,
                executed=lambda _: position.gtids,
            )
        except ClientError as error:
            if error.code == PURGED:
                self._client.on_refused(str(error))
                self.request_stop()
            raise


def reader_config(config: InstanceConfig, client_id: int) -> InstanceConfig:
    """Return the settings of a client's reader: one more replica, named in the log.

    It follows the instance to another server, and does not switch by itself.
    """
    source = config.source
    detecting = replace(source.detecting, enable=False)
    return replace(
        config,
        destination=f"{config.destination}, client {client_id}",
        log_subject=config.subject._replace(client_id=client_id),
        source=replace(source, slave_id=0, detecting=detecting),
    )


def share_of(config: StoreConfig) -> StoreConfig:
    """Return the limits of a lagging client's store."""
    return replace(
        config,
        buffer_size=max(config.buffer_size // SHARE, min(config.buffer_size, 256)),
        block_bytes_max=config.block_bytes_max // SHARE,
    )


def acked_text(acked: LogPosition | None) -> str:
    """Return a client's cursor for the log."""
    return "no position" if acked is None else str(acked.position)


def _in_turn(decode: Callable[[], int]) -> int:
    with _turns:
        return decode()


def _everything(_names: object) -> bool:
    return True
