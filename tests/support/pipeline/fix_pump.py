"""A pump with a transaction buffer after it, without the rest of an instance."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from fix_source_access import PATIENCE_S
from golden_form import entries_of

from canal_server.capture.source_parts import executed_sets_of
from canal_server.config.schema import FilterConfig, InstanceConfig, SourceConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import TableIds
from canal_server.filters.table_filters import TableFilter
from canal_server.model.entry import EntryType
from canal_server.pipeline.transaction_buffer import TransactionBuffer
from canal_server.position.log_position_managers import MemoryLogPositionManager
from canal_server.runtime.lifecycle import Deadline
from canal_server.source.pump.pump import Pump
from canal_server.source.pump.pump_ports import PumpSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fix_blocks import Span

    from canal_server.model.positions import EntryPosition
    from canal_server.mysql.source_settings import Access
    from canal_server.protocol.entry_messages import Entry
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.begin.boundary_index import BoundaryIndex
    from canal_server.source.begin.position_loss import LostPosition
    from canal_server.source.pump.pump_status import PumpState

DESTINATION = "pumped"


class Pumped:
    """A pump, its `Outlet` and `PumpEvents`, and what it delivered and reported."""

    def __init__(
        self,
        access: Access,
        schema: str,
        index: BoundaryIndex | None = None,
        schemas: Any = None,  # what gives columns instead of the history
        *,
        standby_access: Any = None,  # how to reach the standby
        own: Any = None,  # instance.properties
        **changes: object,
    ) -> None:
        self.fields = bytearray()
        self.lock = threading.Lock()
        self.begins: list[EntryPosition] = []
        self.resets = 0
        self.is_idle = threading.Event()
        self.positions = MemoryLogPositionManager()
        self.pool = BlockPool()
        config = InstanceConfig(
            destination=DESTINATION,
            file=own,
            source=SourceConfig(**changes),  # type: ignore[arg-type]
            filter=FilterConfig(),
        )
        self.buffer = TransactionBuffer(1024, 1 << 20)
        source = PumpSource(
            config=config,
            access=access,
            standby=standby_access,
            pool=self.pool,
            table_ids=TableIds(),
            positions=self.positions,
            schemas=schemas,
            index=index,
            executed=executed_sets_of(config),
        )
        table_filter = TableFilter(rf"{schema}\..*", "").accepts
        self.pump = Pump(source, self, self, table_filter)

    # --- Outlet -----------------------------------------------------------------------

    def begin(self) -> bool:
        """Continue open transactions always."""
        return False

    def put(self, spans: list[Span], stop: Stop) -> Iterator[list[Span]]:
        """Buffer spans and keep what leaves the buffer."""
        while spans:
            ready, spans = self.buffer.put(spans)
            if ready:
                with self.lock:
                    for block, first, end in ready:
                        self.fields += block.slice(first, end)
                yield ready
            self.buffer.commit()

    def reset(self) -> None:
        """Count the sessions that continue nothing."""
        self.resets += 1

    def idle(self) -> None:
        """Note that the source has nothing more at hand."""
        self.is_idle.set()

    def end(self) -> None:
        """Drop what is in the buffer."""
        self.buffer.reset()

    # --- PumpEvents -------------------------------------------------------------------

    def cursors(self) -> list[EntryPosition]:
        """Know no clients."""
        return []

    def on_session(self) -> None:
        """Do nothing."""

    def on_reset(self) -> None:
        """Do nothing: `reset` counts."""

    def on_begin(self, position: EntryPosition) -> None:
        """Keep where the first session begins."""
        self.begins.append(position)

    def on_idle(self) -> None:
        """Do nothing: `idle` notes it."""

    def on_position_lost(self, lost: LostPosition) -> bool:
        """Know no other position."""
        return False

    # --- what tests ask ---------------------------------------------------------------

    @property
    def entries(self) -> list[Entry]:
        """Return what was delivered."""
        with self.lock:
            return list(entries_of(bytes(self.fields)))

    @property
    def values(self) -> list[str]:
        """Return the first column of every row that was inserted."""
        return [
            row.after_columns[0].value
            for entry in self.entries
            if entry.entry_type == EntryType.ROWDATA
            for row in entry.row_change().row_datas
        ]

    @property
    def state(self) -> PumpState:
        """Return what the pump is doing."""
        return self.pump.status.state

    def stop(self) -> None:
        """Stop, within the patience of a test."""
        self.pump.request_stop()
        assert self.pump.join(Deadline(PATIENCE_S))
