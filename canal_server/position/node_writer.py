"""Nodes of ZooKeeper that only we write, and how we notice when that is not so.

Leaves out what is in the nodes (`nodes`).
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

# Of one node, contents of which it is not known whether they were written. Each took a
# connection or the time of a request.
UNCERTAIN_MAX: Final = 1000


class _Known:
    """A node as it is in ZooKeeper, as far as we know."""

    def __init__(self, data: bytes | None, version: int) -> None:
        self.data = data
        self.version = version


class NodeWriter:
    """Writes nodes that nobody else does, and notices when somebody did.

    A write whose answer got lost may have happened or not: what it wrote counts as
    ours when it is found later. Used by one thread at a time.

    `fence` is the node without which nothing is written; LeaseLost when it is gone.
    """

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._known: dict[str, _Known] = {}
        self._uncertain: dict[str, dict[bytes, None]] = {}

    def read(self, path: str) -> bytes | None:
        """Return a node's content; None when there is no node, or nothing in it."""
        node = self._zookeeper.read(path)
        if node is None:
            self._known.pop(path, None)
            return None
        self._known[path] = _Known(node.data, node.version)
        return node.data

    def put(self, path: str, data: bytes, *, fence: str | None = None) -> None:
        """Make a node have this content.

        Raises ZooKeeperError; VersionConflict when somebody else changed it.
        """
        known = self._known.get(path)
        if known is not None and known.data == data and path not in self._uncertain:
            return
        try:
            self._put(path, data, known, fence)
        except NotConnected:
            raise  # no doubt about that: it did not happen
        except ZooKeeperUnavailable:
            self._doubt(path, data)
            raise
        self._uncertain.pop(path, None)

    def remove(self, path: str, *, fence: str | None = None) -> None:
        """Remove a node and all below it."""
        self._zookeeper.delete(path, fence=fence)
        for table in (self._known, self._uncertain):
            for each in [key for key in table if f"{key}/".startswith(f"{path}/")]:
                del table[each]

    def knows(self, path: str) -> bool:
        """Tell whether there may be a node that was read or put here."""
        return path in self._known or path in self._uncertain

    def _put(
        self, path: str, data: bytes, known: _Known | None, fence: str | None
    ) -> None:
        # Again, as a write of ours whose answer got lost makes the first try fail.
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
                        f"{path} was changed by somebody else and is left as it is;"
                        " does another server run this destination? stop one of the"
                        " two; this one begins from the node as it is then"
                    ) from error
                self._known[path] = known
                if known.data == data:
                    return
            else:
                return

    def _doubt(self, path: str, data: bytes) -> None:
        """Take note that a write of ours may have happened."""
        contents = self._uncertain.setdefault(path, {})
        contents[data] = None
        if len(contents) > UNCERTAIN_MAX:
            del contents[next(iter(contents))]

    def _ours(self, path: str, data: bytes) -> _Known | None:
        """Return the node as it is now, None when somebody else wrote it."""
        node = self._zookeeper.read(path)
        if node is None:
            return None
        mine = node.data == data or node.data in self._uncertain.get(path, ())
        return _Known(node.data, node.version) if mine or not node.data else None


class LeasedNodes:
    """Nodes of a destination that only the server that holds its lease writes."""

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
        # Without a session there was no lease, and there is no such node.
        self._fence = znodes.lease_path(self._destination, session or 0)

    def close(self) -> None:
        """Let go of the session; may be called again."""
        if self._opened:
            self._opened = False
            self._zookeeper.close()
