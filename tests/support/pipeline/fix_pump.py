"""A pump with a transaction buffer behind it, without the rest of an instance."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from fix_source_access import PATIENCE_S
from golden_form import entries_of

from canal_server.config.schema import FilterConfig, InstanceConfig, SourceConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import TableIds
from canal_server.filters.column_filters import ColumnFilter
from canal_server.filters.table_filters import TableFilter
from canal_server.instance.wiring import executed_sets_of
from canal_server.model.entry import EntryType
from canal_server.pipeline.transaction_buffer import TransactionBuffer
from canal_server.position.log_positions import MemoryLogPositionManager
from canal_server.runtime.lifecycle import Deadline
from canal_server.source.pump.pump import Pump

if TYPE_CHECKING:
    from fix_blocks import Span

    from canal_server.model.positions import EntryPosition
    from canal_server.mysql.source_settings import Access
    from canal_server.protocol.entry_messages import Entry
    from canal_server.source.begin.boundary_index import BoundaryIndex
    from canal_server.source.pump.pump_status import PumpState

DESTINATION = "pumped"


class Pumped:
    """A pump with a transaction buffer behind it, and what came out of that."""

    def __init__(
        self,
        access: Access,
        schema: str,
        index: BoundaryIndex | None = None,
        images: Any = None,  # what gives columns in the history's place
        *,
        standby_access: Any = None,  # how to reach the standby
        own: Any = None,  # instance.properties
        **changes: object,
    ) -> None:
        self.fields = bytearray()
        self.lock = threading.Lock()
        self.places: list[EntryPosition] = []
        self.resets: list[bool] = []
        self.idle = threading.Event()
        self.positions = MemoryLogPositionManager()
        config = InstanceConfig(
            destination=DESTINATION,
            file=own,
            source=SourceConfig(**changes),  # type: ignore[arg-type]
            filter=FilterConfig(),
        )
        self.buffer = TransactionBuffer(1024, 1 << 20, self._deliver)
        self.pump = Pump(
            config,
            access,
            BlockPool(),
            TableIds(),
            self.positions,
            columns=ColumnFilter("", ""),
            table_filter=TableFilter(rf"{schema}\..*", "").accepts,
            deliver=self.buffer.put,
            reset=self._reset,
            idle=self.idle.set,
            begun=self.places.append,
            index=index,
            executed=executed_sets_of(config),
            images=images,
            standby=standby_access,
        )

    def _reset(self, same: bool) -> None:
        self.resets.append(same)
        self.buffer.reset()

    def _deliver(self, spans: list[Span]) -> bool:
        with self.lock:
            for block, first, stop in spans:
                self.fields += block.slice(first, stop)
        self.pump.flushed(spans)
        return True

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
