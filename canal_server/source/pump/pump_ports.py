"""What a pump reads, where it delivers to, and whom it reports to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.config.schema import InstanceConfig
    from canal_server.core.blocks import BlockPool
    from canal_server.core.table_ids import TableIds
    from canal_server.model.positions import EntryPosition
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import LogPositionManager, Span
    from canal_server.position.gtid_cache import ExecutedSets
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.begin.boundary_index import BoundaryIndex
    from canal_server.source.begin.position_loss import LostPosition
    from canal_server.source.pump.session_schemas import SchemasOf
    from canal_server.source.read.binlog_reader import InTurn
    from canal_server.tablemeta.history.tsdb import TableMetaTsdb


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpSource:
    """One source: its settings, how to reach it, and what is stored about it.

    `history` has the tables' columns; None: those that the server has now. `schemas`
    replaces both. `index` stores the transaction boundaries that are read, `executed`
    the GTID sets outside of GTID mode. The pump opens and closes history and index.
    `in_turn` calls what decodes, and may wait before.
    """

    config: InstanceConfig
    access: Access
    standby: Access | None = None
    pool: BlockPool
    table_ids: TableIds
    positions: LogPositionManager
    history: TableMetaTsdb | None = None
    schemas: SchemasOf | None = None
    index: BoundaryIndex | None = None
    executed: ExecutedSets | None = None
    in_turn: InTurn | None = None


class Outlet(Protocol):
    """Where a pump delivers its spans to. Called by the pump's thread."""

    def begin(self) -> bool:
        """Start a session; return whether the open transaction has to come again.

        True when a part of it was delivered and the rest cannot follow any more.
        """

    def put(self, spans: list[Span], stop: Stop) -> Iterator[list[Span]]:
        """Accept the spans of a chunk and yield what is delivered, part by part.

        A part is complete transactions, of this chunk or of earlier ones, or a piece
        of one that is too large to be held. An empty part means that delivery was
        stopped. The pump records each part before it asks for the next one.
        """

    def reset(self) -> None:
        """Drop the open transaction: the session does not continue it."""

    def idle(self) -> None:
        """Note that the source has nothing more at hand."""

    def end(self) -> None:
        """End the session and drop what was not delivered."""


class PumpEvents(Protocol):
    """What a pump reports. Called by the pump's thread."""

    def cursors(self) -> list[EntryPosition]:
        """Return the positions of clients in the binlog that is read."""

    def on_session(self) -> None:
        """Note that a session starts: the pump's `skips` may have another answer."""

    def on_reset(self) -> None:
        """Note that the session does not continue after the last delivered record."""

    def on_begin(self, position: EntryPosition) -> None:
        """Note where the first session begins to read; called once."""

    def on_idle(self) -> None:
        """Note that the source has nothing more at hand."""

    def on_position_lost(self, lost: LostPosition) -> bool:
        """Note that the source lacks the stored position.

        Return whether another position is stored now.
        """
