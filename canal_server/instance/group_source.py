"""One source of a group, wired: what reads it, up to its turns at the common store.

::

    pump ─► transaction buffer ─► lane ─► sink ─► (the group's store)

Leaves out what all sources of the group share (`group`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.filters.column_filters import ColumnFilter
from canal_server.instance.wiring import (
    access_of,
    boundary_index_of,
    history_of,
    standby_access_of,
)
from canal_server.model.positions import LogPosition
from canal_server.pipeline.sink import EntrySink
from canal_server.pipeline.transaction_buffer import TransactionBuffer
from canal_server.position.log_positions import (
    FailbackLogPositionManager,
    MemoryLogPositionManager,
    same_server,
)
from canal_server.position.source_positions import SourceLogPositionManager
from canal_server.source.pump.detecting import Detector
from canal_server.source.pump.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig
    from canal_server.core.blocks import BlockPool
    from canal_server.core.table_ids import TableIds
    from canal_server.model.positions import EntryPosition, LogIdentity
    from canal_server.pipeline.source_merge import Merge
    from canal_server.ports import MetaManager, Span, TablePredicate
    from canal_server.position.gtid_cache import ExecutedSets
    from canal_server.position.source_positions import Servers
    from canal_server.runtime.lifecycle import Deadline
    from canal_server.source.begin.position_loss import LostPosition
    from canal_server.store.event_store import MemoryEventStore
    from canal_server.tablemeta.storage.mysql_lock import Owner


class Member:
    """A Stage: the pump of one source, and what belongs to it alone.

    `begun` is told where the first session begins, `session` that one begins, both with
    this member; `changed` that its `epoch` did, `gone` that the source lacks the stored
    place (true: it was told to `begin_at` another), `idle` that its source has nothing
    more at hand. They are called on the pump's thread.
    """

    def __init__(
        self,
        config: InstanceConfig,
        group: str,
        meta: MetaManager,
        servers: Servers,
        *,
        store: MemoryEventStore,
        merge: Merge,
        pool: BlockPool,
        table_ids: TableIds,
        table_filter: TablePredicate,
        begun: Callable[[Member, EntryPosition], None],
        session: Callable[[Member], None],
        changed: Callable[[], None],
        gone: Callable[[Member, LostPosition], bool],
        idle: Callable[[Member], None],
        history_owner: Owner | None = None,
        executed: ExecutedSets | None = None,
    ) -> None:
        """Build without starting; `config` is that of this source alone.

        `executed` is told the GTID sets outside of GTID mode.
        """
        self.config = config
        self.number = config.source.member
        self.sink = EntrySink(store, thin_markers=config.filter.transaction_entry)
        self.lane = merge.lane(self._accept)
        self._is_torn = False
        self._table_ids = table_ids
        self._changed = changed
        self._told_idle = idle
        # Of the numbers of tables: that of the last chunk, and that from which on no
        # chunk has older ones; and that of all that comes behind the last boundary.
        self._epoch_seen = self._epoch_since = self.epoch = table_ids.epoch
        self._acked = SourceLogPositionManager(meta, group, self.number, servers)
        self._positions = FailbackLogPositionManager(
            MemoryLogPositionManager(), self._acked
        )
        self._buffer = TransactionBuffer(
            config.buffer.transaction_size,
            config.buffer.memory_bytes_max,
            self.lane.deliver,
        )
        self.pump = Pump(
            config,
            access_of(config.source, config.destination),
            pool.of_member(self.number),
            table_ids,
            self._positions,
            columns=ColumnFilter(config.filter.field, config.filter.black_field),
            table_filter=table_filter,
            deliver=self._put,
            reset=self._reset,
            idle=self._idle,
            begun=lambda position: begun(self, position),
            session=lambda: session(self),
            cursors=self._cursors,
            gone=lambda place: gone(self, place),
            history=history_of(config, history_owner),
            standby=standby_access_of(config.source),
            index=boundary_index_of(config),
            torn=self._begins,
            ended=self._end,
            executed=executed,
        )
        self.detector = Detector(config, self.pump, self.pump.stored)

    # --- Stage ----------------------------------------------------------------------

    def begin_with(self, server: LogIdentity | None = None) -> None:
        """Read first one of the source's servers; None: the one that was read last.

        Call before `start`, and before places are judged by the server that is read.
        """
        if server is None:
            newest = self._acked.newest()
            server = newest.identity if newest else None
        self.pump.begin_with(server)

    def start(self) -> None:
        """Start the pump and the watch over its server."""
        self.pump.start()
        self.detector.start()

    def request_stop(self) -> None:
        """Ask the pump to stop and end all its waits."""
        self.detector.request_stop()
        self.pump.request_stop()
        self.lane.close()

    def join(self, deadline: Deadline) -> bool:
        """Wait for the end of the threads."""
        ended = self.detector.join(deadline)
        return self.pump.join(deadline) and ended

    # --- positions ------------------------------------------------------------------

    def parsed(self) -> LogPosition | None:
        """Return how far the source was read; None before the first session."""
        # Then it would be a client's.
        return None if self.pump.began_at is None else self._stored()

    def _stored(self) -> LogPosition | None:
        return self._positions.latest(self.config.destination)

    def begin_at(self, place: LogPosition) -> None:
        """Begin the next session at a place of a client."""
        self._positions.persist(self.config.destination, place)

    def _cursors(self) -> list[EntryPosition]:
        """Return the places of clients in the binlog that is read."""
        return [
            place.position
            for place in self._acked.places()
            if same_server(place.identity, self.pump.identity)
        ]

    def log_position(self, position: EntryPosition) -> LogPosition:
        """Return a position with the name of the server that it is of."""
        return LogPosition(position.source or self.pump.identity, position)

    # --- what the pump's thread calls -----------------------------------------------

    def _put(self, spans: list[Span]) -> bool:
        # Reading looks at the epoch before each chunk: this one is of no older epoch
        # than the one that was seen with the chunk before.
        self._epoch_since, self._epoch_seen = self._epoch_seen, self._table_ids.epoch
        return self._buffer.put(spans)

    def _accept(self, spans: list[Span]) -> bool:
        """Put what has its turn into the store; then it counts as delivered."""
        if not self.sink.accept(spans, self.pump.stop):
            return False
        self.pump.flushed(spans)
        if self.epoch != self._epoch_since and any(
            block.last_boundary(first, stop) >= 0 for block, first, stop in spans
        ):
            # A statement that was being read when the epoch began is behind us.
            self._enter(self._epoch_since)
        return True

    def _enter(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.epoch = epoch
            self._changed()

    def _idle(self) -> None:
        self._told_idle(self)
        self.lane.idle()
        if self._buffer.pending == 0:
            self._enter(self._table_ids.epoch)

    def _end(self) -> None:
        self._buffer.reset()
        self.lane.end()
        self._enter(self._table_ids.epoch)

    def _begins(self) -> bool:
        """Take note of a session; tells whether an open transaction must come anew."""
        self._is_torn = self.lane.begin()
        return self._is_torn

    def _reset(self, goes_on: bool) -> None:
        """Forget what is pending, and the open transaction unless it goes on."""
        self._buffer.reset()
        if not goes_on or self._is_torn:
            self.sink.reset()
            self.lane.forget_open()

    # --- what people ask ------------------------------------------------------------

    def status(self) -> dict[str, object]:
        """Return what an operator asks first, as plain values."""
        pump = self.pump.status
        return {
            "name": f"master{self.number}",
            "state": pump.state.value,
            "source": pump.source,
            "position": pump.position,
            "error": pump.error,
            **pump.as_json(),
            "reads": str(self.pump.sources.current),
            "switches": self.pump.sources.switches,
            "repeated": self.pump.repeated(),
            "detecting": self.detector.status(),
            "unreadable": self.pump.unreadable.status(),
            "transactions": self.sink.counters.transactions,
            "rows": self.sink.counters.rows,
        }
