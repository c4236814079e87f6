"""What ZooKeeper tells of a cluster: its servers, and who runs what; for people."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.errors import ZooKeeperUnavailable
from canal_server.ha.running import decode
from canal_server.lifecycle import Stop
from canal_server.model import znodes
from canal_server.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class DestinationView:
    """Who runs a destination (None: nobody), and who may."""

    runs_on: str | None
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The servers of a cluster, and its destinations by name."""

    servers: tuple[str, ...]
    destinations: dict[str, DestinationView]


def look(servers: str, destinations: Sequence[str], timeout_s: float) -> ClusterView:
    """Read the nodes in a session of its own.

    Raises ZooKeeperError, also when there is no answer in time.
    """
    stop = Stop()
    timer = threading.Timer(timeout_s, stop.request)
    timer.daemon = True
    zookeeper = ZooKeeper(servers)
    zookeeper.start()
    try:
        timer.start()
        try:
            zookeeper.wait_until_connected(stop)
        except ZooKeeperUnavailable as error:
            raise ZooKeeperUnavailable(
                f"ZooKeeper at {servers} did not answer in {timeout_s:g} s"
            ) from error
        finally:
            timer.cancel()
        return ClusterView(
            tuple(zookeeper.children(znodes.SERVERS)),
            {each: _destination(zookeeper, each) for each in destinations},
        )
    finally:
        zookeeper.close()


def _destination(zookeeper: ZooKeeper, destination: str) -> DestinationView:
    node = zookeeper.read(znodes.running_path(destination))
    running = decode(node.data) if node else None
    return DestinationView(
        running.address if running else None,
        tuple(zookeeper.children(znodes.candidates_path(destination))),
    )
