"""Where the clients of a destination stand in each of its sources.

A client has one cursor, as the original knows it. With one source that is its
position. In a group there is a position in each source beside it: an ack moves those of
all sources that have a boundary of transactions in what was acked. Each source starts,
and resumes after a restart, at its own positions.

All positions are by the number of the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from canal_server.config.schema import Wiring
from canal_server.model.cursors import DestinationCursors
from canal_server.position.log_position_managers import (
    FailbackLogPositionManager,
    MemoryLogPositionManager,
    MetaLogPositionManager,
)
from canal_server.position.offline import the_only
from canal_server.position.source_positions import (
    SourceLogPositionManager,
    acked_source_positions,
    by_source,
    cursor_among,
    owner_of,
    servers_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from canal_server.catchup.store_router import ClientStores
    from canal_server.config.schema import InstanceConfig
    from canal_server.model.cursors import ClientCursor
    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import EntryPosition, LogPosition
    from canal_server.ports import LogPositionManager, MetaManager

    Positions = Mapping[int, LogPosition]
    EntryPositions = Mapping[int, EntryPosition]


class ClientPositions:
    """With one source, a client's cursor is its position.

    Reading begins at the smallest one of a client that `retains` names.
    """

    reads: ClassVar = "source"  # what a pump reads, in messages

    def __init__(
        self,
        config: InstanceConfig,
        meta: MetaManager,
        retains: Callable[[ClientIdentity], bool],
    ) -> None:
        self.meta = meta
        self.destination = config.destination
        self.servers = servers_of([each.source for each in config.by_source])
        self._number = config.source.number
        self._in_memory = config.position.wiring is Wiring.MEMORY
        self._stored = MetaLogPositionManager(meta, retains)

    def subscriptions(self) -> list[ClientIdentity]:
        """Return all clients, by client id."""
        return self.meta.subscriptions(self.destination)

    def of_source(self, number: int) -> Iterator[LogPosition]:
        """Yield where each client stands in a source, if that is known."""
        for identity in self.subscriptions():
            if (position := self.acked(identity).get(number)) is not None:
                yield position

    def newest(self, number: int) -> LogPosition | None:
        """Return the newest position by time: it names the server that was read last.

        The oldest one may be that of a client that stays away, and name a server that
        was left long ago.
        """
        return max(
            self.of_source(number),
            key=lambda each: each.position.timestamp or 0,
            default=None,
        )

    def resume_position(
        self, client_id: int, positions: Positions
    ) -> LogPosition | None:
        """Return the position in the source that the client acked last, or in any."""
        cursors = [
            self.meta.cursor(identity)
            for identity in self.subscriptions()
            if identity.client_id == client_id
        ]
        owner = None
        if cursors and cursors[0] is not None:
            owner = owner_of(cursors[0].identity, self.servers)
        return positions.get(min(positions, default=0) if owner is None else owner)

    # --- with several sources this is different -------------------------------------

    def acked(self, identity: ClientIdentity) -> Positions:
        """Return where a client stands in each source, where that is known."""
        cursor = self.meta.cursor(identity)
        return {} if cursor is None else {self._number: cursor}

    def put(self, identity: ClientIdentity, number: int, position: LogPosition) -> None:
        """Put a client elsewhere in one source, and give it a cursor."""
        del number
        self.meta.update_cursor(identity, position)

    def move(self, identity: ClientIdentity, positions: Positions) -> None:
        """Move a client to a position in each of these sources."""
        for position in positions.values():
            self.meta.update_cursor(identity, position)

    def targets(self, positions: Sequence[LogPosition]) -> Positions:
        """Return the positions of a move by source. Raises ClientError."""
        return {self._number: the_only(self.destination, positions)}

    def held(self, stores: ClientStores, client_id: int) -> EntryPositions:
        """Return the boundary in each source after which a client's entries lie.

        Raises StoreError.
        """
        found = stores.resume_position(client_id)
        return {} if found is None else {self._number: found}

    def begin_after(
        self, positions: EntryPositions
    ) -> EntryPosition | EntryPositions | None:
        """Return what the store expects of where a client's entries begin."""
        return positions.get(self._number)

    def resume_source_positions(self, positions: Positions) -> Positions:
        """Return the positions that the server has to store beside a cursor."""
        del positions
        return {}

    def report(
        self, clients: Sequence[ClientCursor], sources: Mapping[int, DestinationCursors]
    ) -> DestinationCursors:
        """Return all cursors for an operator."""
        del clients
        return sources[self._number]

    def log_positions(self, config: InstanceConfig) -> LogPositionManager:
        """Return where the pump of one source keeps its position.

        After a start that is the smallest position of a client.
        """
        del config
        memory = MemoryLogPositionManager()
        if self._in_memory:
            return memory
        return FailbackLogPositionManager(memory, self._stored)

    def restart_position(self, number: int, moved: Positions) -> LogPosition | None:
        """Return where to restart a source after a move; None: by `log_positions`."""
        return self._stored.latest(self.destination) or moved[number]


class GroupPositions(ClientPositions):
    """In a group, a client has a position in each source beside its cursor."""

    reads = "server"

    def acked(self, identity: ClientIdentity) -> Positions:
        """Return the positions beside the cursor, and that of the cursor."""
        return acked_source_positions(self.meta, identity, self.servers)

    def put(self, identity: ClientIdentity, number: int, position: LogPosition) -> None:
        """Move the position, and the cursor if it is of the same source or missing."""
        self.meta.update_source_positions(identity, {number: position})
        cursor = self.meta.cursor(identity)
        if cursor is None or owner_of(cursor.identity, self.servers) == number:
            self.meta.update_cursor(identity, position)

    def move(self, identity: ClientIdentity, positions: Positions) -> None:
        """Move the positions; the cursor stays one of its source."""
        cursor = cursor_among(positions, self.meta.cursor(identity), self.servers)
        self.meta.update_source_positions(identity, positions)
        if cursor is not None:
            self.meta.update_cursor(identity, cursor)

    def targets(self, positions: Sequence[LogPosition]) -> Positions:
        """Return the positions by the source whose server each names."""
        return by_source(positions, self.destination, self.servers)

    def held(self, stores: ClientStores, client_id: int) -> EntryPositions:
        """Return the boundaries that are known. Raises StoreError."""
        return stores.resume_positions(client_id)

    def begin_after(
        self, positions: EntryPositions
    ) -> EntryPosition | EntryPositions | None:
        """Return all; a client is given all entries of the other sources."""
        return positions

    def resume_source_positions(self, positions: Positions) -> Positions:
        """Return all of them."""
        return positions

    def report(
        self, clients: Sequence[ClientCursor], sources: Mapping[int, DestinationCursors]
    ) -> DestinationCursors:
        """Return the cursors, and the positions in each source."""
        return DestinationCursors(tuple(clients), sources=sources)

    def log_positions(self, config: InstanceConfig) -> LogPositionManager:
        """Return the smallest position in the source, and memory in front of it."""
        number = config.source.number
        return FailbackLogPositionManager(
            MemoryLogPositionManager(),
            SourceLogPositionManager(self.meta, self.destination, number, self.servers),
        )

    def restart_position(self, number: int, moved: Positions) -> LogPosition | None:
        """Leave it to `log_position_managers`."""
        del number, moved
        return None
