"""Where clients of a group stand in each of its sources: beside their cursors.

A cursor of the original is one position, in a group that of whichever source the last
acked entry was of. So the positions in all sources stand beside it, in a file or node
with `SUFFIX`::

    {"sources":[{"number":1,"position":{as in a cursor},"executed":{…}}, …]}

with the GTID set that was executed there, if it is known (`unabridged`),

and in a file such an object, with its `clientId`, for each client. It is written before
the cursor. Unknown keys are skipped.

Leaves out where all this is stored (`file`, `nodes`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import ClientError
from canal_server.model.positions import LogIdentity, LogPosition
from canal_server.position.log_positions import earlier, same_server
from canal_server.position.meta_file import check, compact, damage_message
from canal_server.position.sidecar import entry_from_json, entry_to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from canal_server.config.schema import SourceConfig
    from canal_server.model.identity import ClientIdentity
    from canal_server.ports import MetaManager

    # Of each source: its server and the standby.
    Servers = Mapping[int, Sequence[LogIdentity]]

SUFFIX: Final = ".sources"  # behind the name of what has the cursor

Places = dict[int, LogPosition]  # by the number of the source


def encode(places: Mapping[int, LogPosition]) -> bytes:
    """Return the content beside one cursor."""
    return compact(_to_json(places))


def decode(content: bytes) -> Places:
    """Read what `encode` wrote. Raises ValueError when it is damaged."""
    with damage_message():
        return _from_json(json.loads(content))


def encode_clients(clients: Mapping[int, Mapping[int, LogPosition]]) -> bytes:
    """Return the content beside the cursors of several clients."""
    return compact(
        {
            "clients": [
                {"clientId": client_id} | _to_json(clients[client_id])
                for client_id in sorted(clients)
            ]
        }
    )


def decode_clients(content: bytes) -> dict[int, Places]:
    """Read what `encode_clients` wrote. Raises ValueError when it is damaged."""
    with damage_message():
        return {
            int(client["clientId"]): _from_json(client)
            for client in json.loads(content)["clients"]
        }


def servers_of(group: Sequence[SourceConfig]) -> dict[int, tuple[LogIdentity, ...]]:
    """Return the names of the servers that each source of a group may be read from."""
    return {
        source.member: tuple(
            LogIdentity(each.address.host, each.address.port)
            for each in (source.master, source.standby)
            if each.address is not None
        )
        for source in group
    }


def acked_places(
    meta: MetaManager, identity: ClientIdentity, servers: Servers
) -> Places:
    """Return where a client stands in each source of a group, where that is known."""
    return places_of(meta.places(identity), meta.cursor(identity), servers)


def places_of(
    beside: Mapping[int, LogPosition], cursor: LogPosition | None, servers: Servers
) -> Places:
    """Return the same of a cursor and what stands beside it.

    A position belongs to the source whose server it names, else to the one whose number
    it has. What the cursor says goes before what stands beside it: somebody may have
    moved it who knows nothing of that.
    """
    found: Places = {}
    for number, place in beside.items():
        owner = owner_of(place.identity, servers)
        if owner is None and number in servers:
            found.setdefault(number, place)
        elif owner is not None:
            found[owner] = place
    owner = None if cursor is None else owner_of(cursor.identity, servers)
    if cursor is not None and owner is not None and found.get(owner) != cursor:
        found[owner] = cursor  # else the place knows more of it
    return found


def cursor_among(
    places: Mapping[int, LogPosition], cursor: LogPosition | None, servers: Servers
) -> LogPosition | None:
    """Return the cursor of a client that was moved to these places.

    It stays one of the source that it names, so that it contradicts none of them.
    """
    owner = None if cursor is None else owner_of(cursor.identity, servers)
    return places.get(min(places, default=0) if owner is None else owner, cursor)


def by_source(
    positions: Sequence[LogPosition], destination: str, servers: Servers
) -> Places:
    """Return positions by the source whose server each names.

    Raises ClientError for one that none has, and for a second one of a source.
    """
    found: Places = {}
    for position in positions:
        owner = owner_of(position.identity, servers)
        if owner is None or owner in found:
            what = "one more" if owner in found else "of no source"
            raise ClientError(
                f"destination {destination} merges several sources: {position} is"
                f" {what}; give one place of each source at most"
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
    """The slowest client's place in one source; a `ports.LogPositionManager`."""

    def __init__(
        self, meta: MetaManager, destination: str, number: int, servers: Servers
    ) -> None:
        """Take the group's name, and of which of its sources the positions are."""
        self._meta = meta
        self._destination = destination
        self._number = number
        self._servers = servers

    def start(self) -> None:
        """Do nothing: whoever has the meta manager starts it."""

    def request_stop(self) -> None:
        """Do nothing: a start does not wait."""

    def stop(self) -> None:
        """Do nothing: there is nothing to write."""

    def latest(self, destination: str) -> LogPosition | None:
        """Return the smallest place, None when no client has one in this source.

        `destination` is the source's own name. Raises MetaStoreError.
        """
        del destination
        smallest: LogPosition | None = None
        for place in self.places():
            smallest = place if smallest is None else earlier(smallest, place)
        return smallest

    def places(self) -> Iterator[LogPosition]:
        """Yield where each client stands in the source, if it is known."""
        for identity in self._meta.subscriptions(self._destination):
            places = acked_places(self._meta, identity, self._servers)
            if self._number in places:
                yield places[self._number]

    def persist(self, destination: str, position: LogPosition) -> None:
        """Do nothing: clients move their places by acks."""


def _to_json(places: Mapping[int, LogPosition]) -> dict[str, Any]:
    return {
        "sources": [
            {"number": number} | entry_to_json(places[number])
            for number in sorted(places)
        ]
    }


def _from_json(content: dict[str, Any]) -> Places:
    found = {int(each["number"]): entry_from_json(each) for each in content["sources"]}
    for place in found.values():
        check(place)
    return found
