"""A cluster as ZooKeeper shows it, for people: its servers, and who runs what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.doors.zookeeper import session_for
from canal_server.model import znodes
from canal_server.model.running import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.doors.zookeeper import ZooKeeper


@dataclass(frozen=True, slots=True)
class DestinationView:
    """The server that runs a destination (None: none), and those that may."""

    runs_on: str | None
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The servers of a cluster, and its destinations by name."""

    servers: tuple[str, ...]
    destinations: dict[str, DestinationView]


def look(servers: str, destinations: Sequence[str], timeout_s: float) -> ClusterView:
    """Read the nodes in a separate session.

    Raises ZooKeeperError, also when there is no answer in time.
    """
    with session_for(servers, timeout_s) as zookeeper:
        return read_view(zookeeper, destinations)


def read_view(zookeeper: ZooKeeper, destinations: Sequence[str]) -> ClusterView:
    """Read the nodes. Raises ZooKeeperError, at once without a connection."""
    return ClusterView(
        tuple(zookeeper.children(znodes.SERVERS)),
        {each: _destination(zookeeper, each) for each in destinations},
    )


def _destination(zookeeper: ZooKeeper, destination: str) -> DestinationView:
    node = zookeeper.read(znodes.running_path(destination))
    running = decode(node.data) if node else None
    return DestinationView(
        running.address if running else None,
        tuple(zookeeper.children(znodes.candidates_path(destination))),
    )
