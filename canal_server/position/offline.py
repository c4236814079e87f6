"""Stored cursors of a destination that no instance runs here.

They are read and moved for an operator. A file belongs to its server: code that moves
cursors in it locks servers out (`canal_server.daemon.control.locked`). In ZooKeeper
cursors are moved under the node by which servers agree on who runs a destination.
Leaves out the stored form (`file_meta`, `zookeeper_meta`).
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.config.schema import Wiring
from canal_server.doors.zookeeper import session_for
from canal_server.errors import (
    ClientError,
    MetaStoreError,
    NodeExists,
    ZooKeeperError,
)
from canal_server.messages import position_messages
from canal_server.model.cursors import ClientCursor, DestinationCursors
from canal_server.model.running import owner_of
from canal_server.model.znodes import lease_path, running_path
from canal_server.position.file_meta import MetaFiles
from canal_server.position.source_positions import (
    by_source,
    cursor_among,
    servers_of,
    source_positions_of,
)
from canal_server.position.stored_meta import StoredClient
from canal_server.position.zookeeper_meta import MetaNodes
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from canal_server.config.schema import InstanceConfig
    from canal_server.doors.zookeeper import ZooKeeper
    from canal_server.model.positions import LogPosition
    from canal_server.position.stored_meta import MetaStorage

logger = logging.getLogger(__name__)

CONNECT_S: Final = 10.0  # for ZooKeeper to answer; an operator waits
# Names the owner of a destination while its cursors are moved. It is not an address, so
# that clients, which look for a server there, find none.
MOVER: Final = b'{"active":false,"address":"an operator who moves cursors"}'


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored cursors of a destination, and the server that runs it ("": none)."""

    cursors: DestinationCursors
    owner: str = ""


def read_stored(config: InstanceConfig) -> Stored:
    """Return the stored cursors of a destination. Raises MetaStoreError."""
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
    """Move the cursors of some clients; their open batches become void.

    In a group, the servers that the positions name decide which sources are meant.
    Raises ClientError for clients that are not subscribed, and MetaStoreError when a
    server runs the destination, or when the cursors cannot be moved.
    """
    destination = config.destination
    if config.group:
        by_source(positions, destination, servers_of(config.group))
    else:
        the_only(destination, positions)
    if config.position.wiring is Wiring.MEMORY:
        raise MetaStoreError(
            f"destination {destination} keeps its cursors in memory: nothing can be"
            " moved while it does not run"
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
    """Log that clients were moved; for a group, with the servers of the positions."""
    (common,) = positions if len(positions) == 1 else (None,)
    position_messages.CLIENT_MOVED.log(
        logger,
        destination,
        "s" if len(clients) > 1 else "",
        ", ".join(map(str, sorted(clients))),
        common.position if common else ", ".join(map(str, positions)),
    )


def the_only(destination: str, positions: Sequence[LogPosition]) -> LogPosition:
    """Return the position to which clients of a single source are moved.

    Raises ClientError unless exactly one is given.
    """
    if len(positions) != 1:
        raise ClientError(
            f"destination {destination} has one source, but {len(positions)} positions"
            " were given: give one"
        )
    return positions[0]


def check_subscribed(
    destination: str, clients: Collection[int], known: Collection[int]
) -> None:
    """Raise ClientError when some of the clients are unknown."""
    unknown = sorted(set(clients) - set(known))
    if unknown:
        raise ClientError(
            f"client {', '.join(map(str, unknown))} is not subscribed to {destination};"
            f" known clients: {', '.join(map(str, sorted(known))) or 'none'}"
        )


def _move(
    storage: MetaStorage,
    config: InstanceConfig,
    clients: Collection[int],
    positions: Sequence[LogPosition],
) -> None:
    destination = config.destination
    stored = storage.read(destination)
    check_subscribed(destination, clients, [each.identity.client_id for each in stored])
    storage.write(
        destination,
        [
            _moved(config, each, positions)
            if each.identity.client_id in clients
            else StoredClient(
                each.identity, each.cursor, source_positions=each.source_positions
            )
            for each in stored
        ],
    )


def _moved(
    config: InstanceConfig, client: StoredClient, positions: Sequence[LogPosition]
) -> StoredClient:
    """Return the stored form of a client after it was moved."""
    if not config.group:
        return StoredClient(client.identity, replace(positions[0], moved=True))
    servers = servers_of(config.group)
    source_positions = {
        **source_positions_of(client.source_positions, client.cursor, servers),
        **by_source(positions, config.destination, servers),
    }
    return StoredClient(
        client.identity,
        cursor_among(source_positions, client.cursor, servers),
        source_positions=source_positions,
    )


def _cursors(config: InstanceConfig, clients: list[StoredClient]) -> DestinationCursors:
    servers = servers_of(config.group)
    source_positions = [
        source_positions_of(each.source_positions, each.cursor, servers)
        for each in clients
    ]
    return DestinationCursors(
        tuple(ClientCursor(each.identity, each.cursor) for each in clients),
        sources={
            number: DestinationCursors(
                tuple(
                    ClientCursor(each.identity, of_client.get(number))
                    for each, of_client in zip(clients, source_positions, strict=True)
                )
            )
            for number in servers
        },
    )


# --- ZooKeeper ------------------------------------------------------------------------


@contextlib.contextmanager
def connected(servers: str) -> Iterator[ZooKeeper]:
    """Open a separate session. Raises MetaStoreError when that fails."""
    try:
        with session_for(servers, CONNECT_S) as zookeeper:
            yield zookeeper
    except ZooKeeperError as error:
        raise MetaStoreError(str(error)) from error


@contextlib.contextmanager
def kept_from_servers(zookeeper: ZooKeeper, destination: str) -> Iterator[None]:
    """Own the destination within the context, so that no server starts it.

    Raises MetaStoreError when a server runs it.
    """
    path, session = running_path(destination), zookeeper.session
    try:
        zookeeper.create(path, MOVER, ephemeral=True)
    except NodeExists:
        raise MetaStoreError(
            f"destination {destination} is run by {owner_in(zookeeper, destination)}:"
            " run this command there, or stop that server"
        ) from None  # the text says the same
    # Nothing is written after this session has ended: a server may run it then.
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
    """Return the server that runs a destination according to ZooKeeper, or ""."""
    node = zookeeper.read(running_path(destination))
    return "" if node is None else owner_of(node.data)
