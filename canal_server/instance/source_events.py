"""What the pump of one source reports, and what that means for the clients."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from canal_server.position.ended_files import LeavingCursors
from canal_server.position.log_position_managers import same_server

if TYPE_CHECKING:
    from canal_server.capture.source_pipeline import SourcePipeline
    from canal_server.catchup.lagging_clients import LaggingClients
    from canal_server.catchup.store_router import ClientStores
    from canal_server.filters.client_filters import ClientFilters
    from canal_server.instance.client_positions import ClientPositions
    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import EntryPosition
    from canal_server.position.data_loss import LostClients
    from canal_server.source.begin.position_loss import LostPosition


@dataclass(slots=True, kw_only=True)
class ServedClients:
    """What is known about a destination's clients, whichever stages serve them."""

    positions: ClientPositions
    filters: ClientFilters
    lagging: LaggingClients
    lost: LostClients
    # Sources of which all clients lost their position: they are moved to where reading
    # begins.
    all_lost: set[int] = field(default_factory=set)
    # Held while a client's position is judged and handed to the store.
    cursors_lock: threading.Lock = field(default_factory=threading.Lock)
    # Held while clients' positions change, and while the stages are replaced.
    steady: threading.Lock = field(default_factory=threading.Lock)

    def drop(self, identity: ClientIdentity, stores: ClientStores) -> None:
        """Hold no entries for a client."""
        stores.unsubscribe(identity.client_id)
        self.filters.leave(identity)


class SourceEvents:
    """Implements `PumpEvents` for the pump of one source, given by `attach`."""

    def __init__(self, number: int, clients: ServedClients) -> None:
        self._number = number
        self._clients = clients
        self._positions = clients.positions
        self._pipeline: SourcePipeline
        self._stores: ClientStores
        self._leaving: LeavingCursors

    def attach(self, pipeline: SourcePipeline, stores: ClientStores) -> None:
        """Attach the pipeline whose events these are; it is not started yet."""
        self._pipeline, self._stores = pipeline, stores
        number, positions = self._number, self._positions
        self._leaving = LeavingCursors(
            lambda: (
                (each, positions.acked(each).get(number))
                for each in positions.subscriptions()
            ),
            stores.has_all,
            lambda identity, position: positions.put(identity, number, position),
            self._clients.steady,
        )

    # --- PumpEvents -----------------------------------------------------------------

    def cursors(self) -> list[EntryPosition]:
        """Return the positions of clients in the binlog that is read."""
        reads = self._pipeline.pump.identity
        return [
            each.position
            for each in self._positions.of_source(self._number)
            if same_server(each.identity, reads)
        ]

    def on_session(self) -> None:
        """Judge again which clients' positions are of the server that is read.

        A client subscribes under the same lock, so that it is judged either by this
        session or by the one before, and in the second case again here.
        """
        clients, number = self._clients, self._number
        with clients.cursors_lock:
            for identity in self._positions.subscriptions():
                acked = self._positions.acked(identity).get(number)
                if self._pipeline.pump.begins_after(acked) is None:
                    self._stores.forget_after(identity.client_id, number)
        clients.lagging.on_session()

    def on_reset(self) -> None:
        """Do nothing: the pipeline resets what it has passed on."""

    def on_begin(self, position: EntryPosition) -> None:
        """Let clients that have acked nothing begin here, also after a restart.

        A client that subscribes meanwhile gets the position from the pump, which knows
        it already.
        """
        number, positions = self._number, self._positions
        all_lost = number in self._clients.all_lost
        for identity in positions.subscriptions():
            if (
                all_lost
                or number not in positions.acked(identity)
                or positions.meta.cursor(identity) is None
            ):
                cursor = self._pipeline.log_position(position)
                positions.put(identity, number, cursor)
        self._clients.all_lost.discard(number)

    def on_idle(self) -> None:
        """Let clients that have all of the source leave its files that have ended."""
        self._leaving.look(self._pipeline.pump.passed_to)

    def on_position_lost(self, lost: LostPosition) -> bool:
        """Begin at the oldest of the clients' positions that is left.

        False when there is none: if the operator allows it, reading then begins
        at the end.
        """
        clients, number = self._clients, self._number
        began = self._pipeline.pump.has_delivered
        with clients.cursors_lock:
            acked = {
                identity: position
                for identity in self._positions.subscriptions()
                if (position := self._positions.acked(identity).get(number))
            }
            left = clients.lost.leave_behind(
                acked,
                lost,
                began=began,
                move=lambda each, to: self._positions.put(each, number, to),
                drop=lambda each: clients.drop(each, self._stores),
            )
        if left is None:
            if clients.lost.resets and not began:
                clients.all_lost.add(number)
            return False
        self._pipeline.begin_at(left)
        return True
