"""Cursors where they are stored, of a destination that no instance runs here.

They are read and moved for an operator. A file is its server's: whoever moves cursors
in it keeps servers out (`canal_server.daemon.control.locked`). In ZooKeeper they are
moved under the node with which servers agree on who runs a destination. Leaves out the
form of what is stored (`file_meta`, `zookeeper_meta`).
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.config.schema import Wiring
from canal_server.doors.zookeeper import session_for
from canal_server.errors import (
    ClientError,
    MetaStoreError,
    NodeExists,
    ZooKeeperError,
)
from canal_server.model.cursors import ClientCursor, DestinationCursors
from canal_server.model.running import owner_of
from canal_server.model.znodes import lease_path, running_path
from canal_server.position.file_meta import MetaFiles
from canal_server.position.source_positions import (
    by_source,
    cursor_among,
    places_of,
    servers_of,
)
from canal_server.position.write_behind import StoredClient
from canal_server.position.zookeeper_meta import MetaNodes
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from canal_server.config.schema import InstanceConfig
    from canal_server.doors.zookeeper import ZooKeeper
    from canal_server.model.positions import LogPosition
    from canal_server.position.write_behind import MetaStorage

logger = logging.getLogger(__name__)

CONNECT_S: Final = 10.0  # for ZooKeeper to answer; an operator waits
# Says who has a destination while its cursors are moved. It is no address: clients,
# which look there for a server, find none.
MOVER: Final = b'{"active":false,"address":"an operator who moves cursors"}'


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored of a destination, and who says that it runs it ("": nobody)."""

    cursors: DestinationCursors
    owner: str = ""


def read_stored(config: InstanceConfig) -> Stored:
    """Return what is stored of a destination. Raises MetaStoreError."""
    destination = config.destination
    if config.position.wiring is Wiring.ZOOKEEPER:
        with connected(config.position.zookeeper_servers) as zookeeper:
            clients = MetaNodes(zookeeper).read(destination)
            return Stored(_cursors(config, clients), owner_in(zookeeper, destination))
    if config.position.wiring is Wiring.FILE:
        clients = MetaFiles(config.position.data_dir).read(destination)
        return Stored(_cursors(config, clients))
    return Stored(DestinationCursors(()))


def move_stored(
    config: InstanceConfig, clients: Collection[int], *positions: LogPosition
) -> None:
    """Move the cursors of some clients; their open batches are void.

    In a group, in the sources whose servers the positions name. Raises ClientError for
    clients that are not subscribed, MetaStoreError when a server runs the destination,
    or they cannot be moved.
    """
    destination = config.destination
    if config.group:
        by_source(positions, destination, servers_of(config.group))
    else:
        the_only(destination, positions)
    if config.position.wiring is Wiring.MEMORY:
        raise MetaStoreError(
            f"destination {destination} keeps its cursors in memory: there is nothing"
            " to move while it does not run"
        )
    if config.position.wiring is Wiring.FILE:
        _move(MetaFiles(config.position.data_dir), config, clients, positions)
    else:
        with (
            connected(config.position.zookeeper_servers) as zookeeper,
            kept_from_servers(zookeeper, destination),
        ):
            nodes = MetaNodes(zookeeper, leased=True)
            nodes.open((destination,), Stop())
            try:
                _move(nodes, config, clients, positions)
            finally:
                nodes.close()
    log_move(destination, clients, positions)


def log_move(
    destination: str, clients: Collection[int], positions: Sequence[LogPosition]
) -> None:
    """Say in the log that clients were moved; of a group, in which servers' binlogs."""
    (told,) = positions if len(positions) == 1 else (None,)
    logger.warning(
        "destination %s: an operator moved client%s %s to %s",
        destination,
        "s" if len(clients) > 1 else "",
        ", ".join(map(str, sorted(clients))),
        told.position if told else ", ".join(map(str, positions)),
    )


def the_only(destination: str, positions: Sequence[LogPosition]) -> LogPosition:
    """Return the place to which clients of a single source are moved.

    Raises ClientError when there is not one.
    """
    if len(positions) != 1:
        raise ClientError(
            f"destination {destination} has one source, and {len(positions)} places are"
            " given: give one"
        )
    return positions[0]


def check_subscribed(
    destination: str, clients: Collection[int], known: Collection[int]
) -> None:
    """Raise ClientError when some of the clients are not known ones."""
    unknown = sorted(set(clients) - set(known))
    if unknown:
        raise ClientError(
            f"client {', '.join(map(str, unknown))} is not subscribed to {destination};"
            f" known are {', '.join(map(str, sorted(known))) or 'none'}"
        )


def _move(
    place: MetaStorage,
    config: InstanceConfig,
    clients: Collection[int],
    positions: Sequence[LogPosition],
) -> None:
    destination = config.destination
    stored = place.read(destination)
    check_subscribed(destination, clients, [each.identity.client_id for each in stored])
    place.write(
        destination,
        [
            _moved(config, each, positions)
            if each.identity.client_id in clients
            else StoredClient(each.identity, each.cursor, places=each.places)
            for each in stored
        ],
    )


def _moved(
    config: InstanceConfig, client: StoredClient, positions: Sequence[LogPosition]
) -> StoredClient:
    """Return a client as it is stored when it was moved."""
    if not config.group:
        return StoredClient(client.identity, positions[0])
    servers = servers_of(config.group)
    places = {
        **places_of(client.places, client.cursor, servers),
        **by_source(positions, config.destination, servers),
    }
    return StoredClient(
        client.identity, cursor_among(places, client.cursor, servers), places=places
    )


def _cursors(config: InstanceConfig, clients: list[StoredClient]) -> DestinationCursors:
    servers = servers_of(config.group)
    places = [places_of(each.places, each.cursor, servers) for each in clients]
    return DestinationCursors(
        tuple(ClientCursor(each.identity, each.cursor) for each in clients),
        sources={
            number: DestinationCursors(
                tuple(
                    ClientCursor(each.identity, of_client.get(number))
                    for each, of_client in zip(clients, places, strict=True)
                )
            )
            for number in servers
        },
    )


# --- ZooKeeper ------------------------------------------------------------------------


@contextlib.contextmanager
def connected(servers: str) -> Iterator[ZooKeeper]:
    """Give a session of its own. Raises MetaStoreError when it fails."""
    try:
        with session_for(servers, CONNECT_S) as zookeeper:
            yield zookeeper
    except ZooKeeperError as error:
        raise MetaStoreError(str(error)) from error


@contextlib.contextmanager
def kept_from_servers(zookeeper: ZooKeeper, destination: str) -> Iterator[None]:
    """Have the destination within the context, so that no server starts it.

    Raises MetaStoreError when one runs it.
    """
    path, session = running_path(destination), zookeeper.session
    try:
        zookeeper.create(path, MOVER, ephemeral=True)
    except NodeExists:
        raise MetaStoreError(
            f"destination {destination} is run by {owner_in(zookeeper, destination)}:"
            " do it there, or stop that server"
        ) from None  # it is what the text says
    # Nothing is written once this session has ended: a server may have it then.
    fence = lease_path(destination, session or 0)
    zookeeper.create(fence, ephemeral=True)
    try:
        yield
    finally:
        zookeeper.delete(fence)
        node = zookeeper.read(path)
        if node is not None and node.owner == session:
            zookeeper.delete_version(path, node.version)


def owner_in(zookeeper: ZooKeeper, destination: str) -> str:
    """Return who says in ZooKeeper that it runs a destination; empty: nobody."""
    node = zookeeper.read(running_path(destination))
    return "" if node is None else owner_of(node.data)
