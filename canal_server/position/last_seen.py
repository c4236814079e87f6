"""For how long clients were disconnected, stored in a file or a node of ZooKeeper.

The content is JSON: `{"away_s": {"<client id>": <seconds>}}`, with the clients that
were disconnected when it was written. It decides only for which clients entries are
retained; where it is missing or damaged, all clients count as seen when the server
started.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from canal_server.errors import LeaseLost, MetaStoreError, ZooKeeperError
from canal_server.messages import position_messages
from canal_server.model import znodes
from canal_server.position.atomic_file import Disk, replace_content
from canal_server.position.meta_file import damage_message
from canal_server.position.node_writer import LeasedNodes
from canal_server.runtime.private_files import unwritten

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from canal_server.doors.zookeeper import ZooKeeper
    from canal_server.runtime.lifecycle import Stop

_log = logging.getLogger(__name__)

FILE_NAME: Final = "seen.json"


class SeenFile:
    """A file in the folder of the destination; a `presence.LastSeenStorage`."""

    def __init__(self, path: Path, *, disk: Disk | None = None) -> None:
        self._path = path
        self._disk = disk or Disk()

    def open(self, stop: Stop) -> None:
        """Do nothing: the file needs no preparation."""

    def close(self) -> None:
        """Do nothing: no file stays open."""

    @property
    def silence(self) -> str:
        """Return the text of an error for a disk that does not answer."""
        return f"the disk of {self._path} did not answer"

    def read(self) -> dict[int, float]:
        """Read the file, if there is one."""
        try:
            data = self._disk.read(self._path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise MetaStoreError(f"cannot read {self._path}: {error}") from error
        return _decoded(data, str(self._path))

    def write(self, away_s: Mapping[int, float]) -> None:
        """Replace the file."""
        try:
            replace_content(self._disk, self._path, _encoded(away_s), backup=None)
        except OSError as error:
            raise MetaStoreError(
                f"cannot write {self._path}: {unwritten(error, self._path.parent)}"
            ) from error


class SeenNode(LeasedNodes):
    """A node that the holder of the lease writes; a `presence.LastSeenStorage`."""

    def __init__(self, zookeeper: ZooKeeper, destination: str) -> None:
        super().__init__(zookeeper, destination, znodes.seen_path(destination))

    @property
    def silence(self) -> str:
        """Return the text of an error for a ZooKeeper that does not answer."""
        return "ZooKeeper did not answer"

    def read(self) -> dict[int, float]:
        """Read the node, if there is one."""
        try:
            data = self._nodes.read(self._path)
        except ZooKeeperError as error:
            raise MetaStoreError(f"cannot read {self._path}: {error}") from error
        return _decoded(data, f"{self._path} in ZooKeeper") if data else {}

    def write(self, away_s: Mapping[int, float]) -> None:
        """Write the node."""
        try:
            self._nodes.put(self._path, _encoded(away_s), fence=self._fence)
        except (ZooKeeperError, LeaseLost) as error:
            raise MetaStoreError(f"cannot write {self._path}: {error}") from error


def _encoded(away_s: Mapping[int, float]) -> bytes:
    content = {"away_s": {str(each): away_s[each] for each in sorted(away_s)}}
    return json.dumps(content, separators=(",", ":")).encode()


def _decoded(data: bytes, where: str) -> dict[int, float]:
    try:
        with damage_message():
            found = json.loads(data)["away_s"]
            return {int(each): max(0.0, float(away)) for each, away in found.items()}
    except (ValueError, OverflowError) as error:
        position_messages.LAST_SEEN_DAMAGED.log(_log, where, error)
        return {}
