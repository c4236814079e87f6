"""ZooKeeper nodes that only this server writes; detects writes by others.

Leaves out the contents of the nodes (`zookeeper_meta`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.errors import (
    MetaStoreError,
    NodeExists,
    NodeMissing,
    NotConnected,
    VersionConflict,
    ZooKeeperError,
    ZooKeeperUnavailable,
)
from canal_server.model import znodes

if TYPE_CHECKING:
    from canal_server.doors.zookeeper import ZooKeeper
    from canal_server.runtime.lifecycle import Stop

# Contents of one node whose write may or may not have happened. Each of them was a lost
# connection or a request that timed out.
UNCERTAIN_MAX: Final = 1000


class _Known:
    """The last known state of a node in ZooKeeper."""

    def __init__(self, data: bytes | None, version: int) -> None:
        self.data = data
        self.version = version


class NodeWriter:
    """Writes nodes that belong to this server, and detects writes by others.

    A write whose answer was lost may or may not have happened: if its content is found
    later, it counts as ours. Used by one thread at a time.

    Nothing is written without the node `fence`; LeaseLost when it does not exist.
    """

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._known: dict[str, _Known] = {}
        self._uncertain: dict[str, dict[bytes, None]] = {}

    def read(self, path: str) -> bytes | None:
        """Return a node's content; None when the node is missing or empty."""
        node = self._zookeeper.read(path)
        if node is None:
            self._known.pop(path, None)
            return None
        self._known[path] = _Known(node.data, node.version)
        return node.data

    def put(self, path: str, data: bytes, *, fence: str | None = None) -> None:
        """Write a node's content unless it has it already.

        Raises ZooKeeperError; VersionConflict when another client changed the node.
        """
        known = self._known.get(path)
        if known is not None and known.data == data and path not in self._uncertain:
            return
        try:
            self._put(path, data, known, fence)
        except NotConnected:
            raise  # the write certainly did not happen
        except ZooKeeperUnavailable:
            self._doubt(path, data)
            raise
        self._uncertain.pop(path, None)

    def remove(self, path: str, *, fence: str | None = None) -> None:
        """Remove a node and all its descendants."""
        self._zookeeper.delete(path, fence=fence)
        for table in (self._known, self._uncertain):
            for each in [key for key in table if f"{key}/".startswith(f"{path}/")]:
                del table[each]

    def knows(self, path: str) -> bool:
        """Return whether there may be a node that was read or written here."""
        return path in self._known or path in self._uncertain

    def _put(
        self, path: str, data: bytes, known: _Known | None, fence: str | None
    ) -> None:
        # The second try is for our own earlier write whose answer was lost.
        for last in (False, True):
            try:
                if known is None:
                    self._zookeeper.create(path, data, fence=fence)
                    self._known[path] = _Known(data, 0)
                else:
                    version = self._zookeeper.write(
                        path, data, known.version, fence=fence
                    )
                    self._known[path] = _Known(data, version)
            except NodeMissing:
                if last:
                    raise
                known = None
            except (NodeExists, VersionConflict) as error:
                known = self._ours(path, data)
                if known is None or last:
                    raise VersionConflict(
                        f"{path} was changed by another client and is not overwritten;"
                        " if another server runs this destination, stop one of the two;"
                        " this server then starts from the current content of the node"
                    ) from error
                self._known[path] = known
                if known.data == data:
                    return
            else:
                return

    def _doubt(self, path: str, data: bytes) -> None:
        """Remember that a write of ours may have happened."""
        contents = self._uncertain.setdefault(path, {})
        contents[data] = None
        if len(contents) > UNCERTAIN_MAX:
            del contents[next(iter(contents))]

    def _ours(self, path: str, data: bytes) -> _Known | None:
        """Return the current node, None when another client wrote it."""
        node = self._zookeeper.read(path)
        if node is None:
            return None
        mine = node.data == data or node.data in self._uncertain.get(path, ())
        return _Known(node.data, node.version) if mine or not node.data else None


class LeasedNodes:
    """A destination's node that only the holder of the lease writes."""

    def __init__(self, zookeeper: ZooKeeper, destination: str, path: str) -> None:
        self._zookeeper = zookeeper
        self._destination = destination
        self._path = path
        self._nodes = NodeWriter(zookeeper)
        self._fence = ""
        self._opened = False

    def open(self, stop: Stop) -> None:
        """Wait for ZooKeeper. Raises MetaStoreError."""
        session = self._zookeeper.session
        self._zookeeper.start()
        self._opened = True
        try:
            self._zookeeper.wait_until_connected(stop)
        except ZooKeeperError as error:
            self.close()
            raise MetaStoreError(str(error)) from error
        # Without a session there was no lease, and no such node.
        self._fence = znodes.lease_path(self._destination, session or 0)

    def close(self) -> None:
        """Release the session; may be called again."""
        if self._opened:
            self._opened = False
            self._zookeeper.close()
