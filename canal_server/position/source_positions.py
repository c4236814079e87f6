"""Clients' positions in each source of a group, next to their cursors.

A cursor of the Java server is one position; in a group, it is that of the source of the
last acked entry. Therefore the positions in all sources are stored next to it, in a
file or node with `SUFFIX`::

    {"sources":[{"number":1,"position":{as in a cursor},"executed":{…}}, …]}

with the GTID set that was executed there, if it is known (`sidecar`). A file holds such
an object, with its `clientId`, for each client. It is written before the cursor.
Unknown keys are ignored.

Leaves out where all this is stored (`file_meta`, `zookeeper_meta`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import ClientError
from canal_server.model.positions import LogIdentity, LogPosition
from canal_server.position.log_position_managers import earlier, same_server
from canal_server.position.meta_file import check, compact, damage_message
from canal_server.position.sidecar import entry_from_json, entry_to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from canal_server.config.schema import SourceConfig
    from canal_server.model.identity import ClientIdentity
    from canal_server.ports import MetaManager

    # Of each source: its server and the standby.
    Servers = Mapping[int, Sequence[LogIdentity]]

SUFFIX: Final = ".sources"  # appended to the name of the cursor's file or node

SourcePositions = dict[int, LogPosition]  # by the number of the source


def encode(positions: Mapping[int, LogPosition]) -> bytes:
    """Return the content next to one cursor."""
    return compact(_to_json(positions))


def decode(content: bytes) -> SourcePositions:
    """Read what `encode` wrote. Raises ValueError when it is damaged."""
    with damage_message():
        return _from_json(json.loads(content))


def encode_clients(clients: Mapping[int, Mapping[int, LogPosition]]) -> bytes:
    """Return the content next to the cursors of several clients."""
    return compact(
        {
            "clients": [
                {"clientId": client_id} | _to_json(clients[client_id])
                for client_id in sorted(clients)
            ]
        }
    )


def decode_clients(content: bytes) -> dict[int, SourcePositions]:
    """Read what `encode_clients` wrote. Raises ValueError when it is damaged."""
    with damage_message():
        return {
            int(client["clientId"]): _from_json(client)
            for client in json.loads(content)["clients"]
        }


def servers_of(group: Sequence[SourceConfig]) -> dict[int, tuple[LogIdentity, ...]]:
    """Return the addresses of the servers that each source of a group is read from."""
    return {
        source.number: tuple(
            LogIdentity(each.address.host, each.address.port)
            for each in (source.master, source.standby)
            if each.address is not None
        )
        for source in group
    }


def acked_source_positions(
    meta: MetaManager, identity: ClientIdentity, servers: Servers
) -> SourcePositions:
    """Return a client's acked position in each source of a group, if it is known."""
    return source_positions_of(
        meta.source_positions(identity), meta.cursor(identity), servers
    )


def source_positions_of(
    beside: Mapping[int, LogPosition], cursor: LogPosition | None, servers: Servers
) -> SourcePositions:
    """Return the same from a cursor and the source positions stored next to it.

    A position belongs to the source whose server it names, otherwise to the source with
    its number. The cursor takes precedence, because other programs may have moved it
    without changing the source positions.
    """
    found: SourcePositions = {}
    for number, position in beside.items():
        owner = owner_of(position.identity, servers)
        if owner is None and number in servers:
            found.setdefault(number, position)
        elif owner is not None:
            found[owner] = position
    owner = None if cursor is None else owner_of(cursor.identity, servers)
    if cursor is not None and owner is not None and found.get(owner) != cursor:
        found[owner] = cursor  # an equal position may know more, such as a GTID set
    return found


def cursor_among(
    positions: Mapping[int, LogPosition], cursor: LogPosition | None, servers: Servers
) -> LogPosition | None:
    """Return the cursor of a client that was moved to these positions.

    It remains a position in the source that it names, so that it contradicts none.
    """
    owner = None if cursor is None else owner_of(cursor.identity, servers)
    return positions.get(min(positions, default=0) if owner is None else owner, cursor)


def by_source(
    positions: Sequence[LogPosition], destination: str, servers: Servers
) -> SourcePositions:
    """Return positions by the source whose server each names.

    Raises ClientError for a position in no source, and for a second one in a source.
    """
    found: SourcePositions = {}
    for position in positions:
        owner = owner_of(position.identity, servers)
        if owner is None or owner in found:
            what = "a second one in its source" if owner in found else "in none of them"
            raise ClientError(
                f"destination {destination} merges several sources: {position} is"
                f" {what}; give at most one position for each source"
            )
        found[owner] = position
    return found


def owner_of(identity: LogIdentity, servers: Servers) -> int | None:
    """Return the number of the source that has this server, None when none has."""
    for number, own in servers.items():
        if identity in own:
            return number
    for number, own in servers.items():
        if any(same_server(identity, each) for each in own):
            return number
    return None


class SourceLogPositionManager:
    """The slowest client's position in one source; a `ports.LogPositionManager`."""

    def __init__(
        self, meta: MetaManager, destination: str, number: int, servers: Servers
    ) -> None:
        """Create the manager of the source `number` in the group `destination`."""
        self._meta = meta
        self._destination = destination
        self._number = number
        self._servers = servers

    def start(self) -> None:
        """Do nothing: the owner of the meta manager starts it."""

    def request_stop(self) -> None:
        """Do nothing: a start does not wait."""

    def stop(self) -> None:
        """Do nothing: there is nothing to write."""

    def latest(self, destination: str) -> LogPosition | None:
        """Return the smallest position, None when no client has one in this source.

        `destination` is the source's own name. Raises MetaStoreError.
        """
        del destination
        smallest: LogPosition | None = None
        for position in self.positions():
            smallest = position if smallest is None else earlier(smallest, position)
        return smallest

    def positions(self) -> Iterator[LogPosition]:
        """Yield each client's position in the source, if it is known."""
        for identity in self._meta.subscriptions(self._destination):
            positions = acked_source_positions(self._meta, identity, self._servers)
            if self._number in positions:
                yield positions[self._number]

    def persist(self, destination: str, position: LogPosition) -> None:
        """Do nothing: clients move their positions by acks."""


def _to_json(positions: Mapping[int, LogPosition]) -> dict[str, Any]:
    return {
        "sources": [
            {"number": number} | entry_to_json(positions[number])
            for number in sorted(positions)
        ]
    }


def _from_json(content: dict[str, Any]) -> SourcePositions:
    found = {int(each["number"]): entry_from_json(each) for each in content["sources"]}
    for position in found.values():
        check(position)
    return found
