"""Clients and positions in ZooKeeper, in the nodes of the Java server.

::

    /otter/canal/destinations/<destination>
        running             the server that runs it (an ephemeral node of that server)
        parse               the position of its pump
        <client id>         a subscription
            filter          text
            cursor
            cursor.full     ours: what a cursor cannot hold (`sidecar`)
            cursor.sources  ours: positions in the sources of a group
            (`source_positions`)
            mark/<batch id>

Next to `parse` there may be `parse.full`, too.

A node that another client changed since it was read here is never overwritten. A server
that lost its lease meanwhile writes nothing, and what it read does not count. Leaves
out the lease (`canal_server.ha`), the contents (`node_json`, `meta_file`), how a node
is written (`node_writer`), and when (`stored_meta`).
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final, TypeVar

from canal_server.errors import (
    CanalError,
    LeaseLost,
    MetaStoreError,
    NodeExists,
    ZooKeeperError,
    ZooKeeperUnavailable,
)
from canal_server.messages import position_messages
from canal_server.model import znodes
from canal_server.model.identity import ClientIdentity
from canal_server.position import meta_file, node_json, sidecar, source_positions
from canal_server.position.gtid_cache import unchanged
from canal_server.position.node_writer import NodeWriter
from canal_server.position.stored_meta import StoredClient
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.doors.zookeeper import ZooKeeper
    from canal_server.model.positions import LogPosition
    from canal_server.position.gtid_cache import Completed

logger = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 1.0  # after ZooKeeper did not answer

_Answer = TypeVar("_Answer")


class MetaNodes:
    """Clients in nodes; a `stored_meta.MetaStorage`.

    With `leased`, the session in which it is opened holds the leases of the
    destinations, and it works in no other session. `completed` adds executed GTID sets
    to cursors.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        *,
        leased: bool = False,
        completed: Completed = unchanged,
    ) -> None:
        self._zookeeper = zookeeper
        self._leased = leased
        self._completed = completed
        self._session: int | None = None  # in which the leases are held
        self._nodes = NodeWriter(zookeeper)
        self._clients: dict[str, set[int]] = {}  # those that may have nodes
        self._marks: dict[str, set[int]] = {}  # batches in nodes, by a client's path
        self._held = sidecar.Held(completed)  # by the path of a cursor
        self._opened = False
        self._stop = Stop()  # until `open` replaces it

    def open(self, destinations: Sequence[str], stop: Stop) -> None:
        """Wait for ZooKeeper."""
        del destinations
        self._session = self._zookeeper.session
        self._zookeeper.start()
        self._opened = True
        self._stop = stop
        try:
            self._zookeeper.wait_until_connected(stop)
        except ZooKeeperError as error:
            self.close()
            raise MetaStoreError(str(error)) from error

    def close(self) -> None:
        """Release the session; may be called again.

        With `leased`, nothing is written afterwards: the next owner has the session.
        """
        self._session = None
        if self._opened:
            self._opened = False
            self._zookeeper.close()

    @property
    def silence(self) -> str:
        """Return the text of an error for a ZooKeeper that does not answer."""
        return f"ZooKeeper at {self._zookeeper.servers} did not answer"

    def must_write(self, destination: str) -> bool:
        """Return false: a node is never damaged by a crash."""
        del destination
        return False

    def read(self, destination: str) -> list[StoredClient]:
        """Return the clients that have a node, by client id."""
        try:
            clients = self._patiently(self._read_clients, destination)
            self._check_lease(destination)
        except (ZooKeeperError, LeaseLost) as error:
            raise MetaStoreError(f"cannot read the cursors: {error}") from error
        self._clients[destination] = {each.identity.client_id for each in clients}
        return clients

    def write(self, destination: str, clients: list[StoredClient]) -> None:
        """Store these clients and remove the nodes of others that were here.

        An error with one client does not keep others from being stored; the first
        error is raised at the end.
        """
        known = self._clients.setdefault(destination, set())
        fence = self._fence(destination)
        first_error: CanalError | None = None
        for lost in sorted(known - {each.identity.client_id for each in clients}):
            path = node_json.client_path(destination, lost)
            try:
                self._nodes.remove(path, fence=fence)
                self._held.forget(f"{path}/cursor")
                self._marks.pop(path, None)
                known.discard(lost)
            except (ZooKeeperError, LeaseLost) as error:
                first_error = first_error or error
        for client in clients:
            known.add(client.identity.client_id)
            try:
                self._write_client(client, fence)
            except (ZooKeeperError, LeaseLost) as error:
                first_error = first_error or error
        if first_error is not None:
            raise MetaStoreError(
                f"cannot write the cursors of {destination}: {first_error}"
            ) from first_error

    def _patiently(self, ask: Callable[[str], _Answer], destination: str) -> _Answer:
        """Ask until ZooKeeper answers or a stop is requested."""
        while True:
            try:
                self._zookeeper.wait_until_connected(self._stop)
                self._check_lease(destination)
                return ask(destination)
            except ZooKeeperUnavailable as error:
                if self._stop.wait(ASK_AGAIN_S):
                    raise
                position_messages.ZOOKEEPER_READ_RETRIED.log(logger, error)

    def _fence(self, destination: str) -> str | None:
        """Return the node without which this server must not write."""
        if not self._leased:
            return None
        # Without a session there was no lease, and no such node.
        return znodes.lease_path(destination, self._session or 0)

    def _check_lease(self, destination: str) -> None:
        fence = self._fence(destination)
        if fence is not None and self._zookeeper.read(fence) is None:
            raise LeaseLost(f"this server may no longer run destination {destination}")

    def _read_clients(self, destination: str) -> list[StoredClient]:
        names = self._zookeeper.children(znodes.destination_path(destination))
        ids = sorted(
            client_id
            for name in names
            if (client_id := node_json.client_id_of(name)) is not None
        )
        return [self._read_client(destination, each) for each in ids]

    def _read_client(self, destination: str, client_id: int) -> StoredClient:
        path = node_json.client_path(destination, client_id)
        marks = {
            batch_id
            for name in self._zookeeper.children(f"{path}/mark")
            if (batch_id := node_json.batch_id_of(name)) is not None
        }
        self._marks[path] = set(marks)
        expression = (self._nodes.read(f"{path}/filter") or b"").decode(
            errors="replace"
        )
        return StoredClient(
            ClientIdentity(destination, client_id, expression),
            _read_position(self._nodes, self._held, f"{path}/cursor"),
            last_batch_id=max(marks, default=0),
            source_positions=self._read_source_positions(
                f"{path}/cursor{source_positions.SUFFIX}"
            ),
        )

    def _read_source_positions(self, path: str) -> source_positions.SourcePositions:
        """Read a client's positions in the sources of a group; empty for others."""
        try:
            return source_positions.decode(self._nodes.read(path) or b'{"sources":[]}')
        except ValueError as error:
            raise MetaStoreError(
                f"{path} in ZooKeeper is damaged ({error}); correct or remove it"
            ) from error

    def _write_client(self, client: StoredClient, fence: str | None) -> None:
        path = node_json.client_path(
            client.identity.destination, client.identity.client_id
        )
        expression = client.identity.filter
        if expression:
            self._nodes.put(f"{path}/filter", expression.encode(), fence=fence)
        else:
            if not self._nodes.knows(f"{path}/cursor"):  # a child of `path`
                self._ensure(path, fence)
            if self._nodes.knows(f"{path}/filter"):
                self._nodes.remove(f"{path}/filter", fence=fence)
        if client.source_positions:
            self._nodes.put(
                f"{path}/cursor{source_positions.SUFFIX}",
                source_positions.encode(
                    {
                        number: self._completed(position)
                        for number, position in client.source_positions.items()
                    }
                ),
                fence=fence,
            )
        if client.cursor is not None:
            _put_position(
                self._nodes,
                self._held,
                f"{path}/cursor",
                client.cursor,
                node_json.encode_cursor(client.cursor),
                fence=fence,
            )
        self._write_marks(path, client, fence)

    def _ensure(self, path: str, fence: str | None) -> None:
        with contextlib.suppress(NodeExists):
            self._zookeeper.create(path, fence=fence)

    def _write_marks(self, path: str, client: StoredClient, fence: str | None) -> None:
        marks = self._marks.setdefault(path, set())
        for acked in sorted(marks - client.batches.keys()):
            self._nodes.remove(f"{path}/mark/{node_json.mark_name(acked)}", fence=fence)
            marks.discard(acked)
        for batch_id in sorted(client.batches.keys() - marks):
            self._nodes.put(
                f"{path}/mark/{node_json.mark_name(batch_id)}",
                node_json.encode_mark(client.batches[batch_id]),
                fence=fence,
            )
            marks.add(batch_id)


def _read_position(
    nodes: NodeWriter, held: sidecar.Held, path: str
) -> LogPosition | None:
    """Read a cursor's or a pump's position, completed from the node next to it."""
    beside = path + sidecar.SUFFIX
    data, full = nodes.read(path), nodes.read(beside)
    if not data:
        held.forget(path)
        return None
    try:
        position = meta_file.decode_position(data)
    except ValueError as error:
        raise MetaStoreError(
            f"{path} in ZooKeeper is damaged ({error}); correct or remove it"
        ) from error
    try:
        position = sidecar.completed(position, sidecar.decode(full) if full else ())
    except ValueError as error:
        sidecar.warn_of_damage(f"{beside} in ZooKeeper", error)
    held.stored(path, position)
    return position


def _put_position(
    nodes: NodeWriter,
    held: sidecar.Held,
    path: str,
    position: LogPosition,
    content: bytes,
    *,
    fence: str | None = None,
) -> None:
    """Write a position as `content`, after the node next to it that completes it."""
    if entries := held.entries(path, position):
        nodes.put(path + sidecar.SUFFIX, sidecar.encode(entries), fence=fence)
    held.tried(path, position)
    nodes.put(path, content, fence=fence)
    held.stored(path, position)
