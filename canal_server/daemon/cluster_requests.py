"""The clusters of this server, as ZooKeeper shows them to an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal_server.config.schema import Wiring
from canal_server.errors import ZooKeeperError
from canal_server.ha.address import registered_ip
from canal_server.ha.cluster_view import read_view

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.daemon.destinations import Destinations
    from canal_server.doors.zookeeper import ZooKeeper, ZooKeepers
    from canal_server.ha.address import Settings


class ClusterRequests:
    """Reads the nodes in the sessions that this process has anyway."""

    def __init__(
        self,
        destinations: Destinations,
        zookeepers: ZooKeepers,
        settings: Settings,
        port: Callable[[], int],
    ) -> None:
        self._destinations = destinations
        self._zookeepers = zookeepers
        self._settings = settings
        self._port = port

    def show(self) -> dict[str, Any]:
        """Return the address of this server, and each cluster that it is in."""
        shared: dict[ZooKeeper, list[str]] = {}
        for config in self._destinations.configs():
            position = config.position
            if position.wiring is Wiring.ZOOKEEPER:
                zookeeper = self._zookeepers.of(
                    position.zookeeper_servers,
                    position.zookeeper_session_timeout_ms / 1000,
                )
                shared.setdefault(zookeeper, []).append(config.destination)
        if not shared:
            return {"this_server": None, "clusters": []}
        return {
            "this_server": f"{registered_ip(self._settings)}:{self._port()}",
            "clusters": [_cluster(*each) for each in shared.items()],
        }


def _cluster(zookeeper: ZooKeeper, destinations: Sequence[str]) -> dict[str, Any]:
    """Return a cluster; what cannot be read is missing, and the error says why."""
    found: dict[str, Any] = {
        "zookeeper": zookeeper.servers,
        "session": {
            "state": zookeeper.state.value,
            "expired": zookeeper.expired,
            "timeout_s": zookeeper.session_timeout_s,
        },
        "servers": [],
        "destinations": dict.fromkeys(destinations),
        "error": None,
    }
    try:
        view = read_view(zookeeper, destinations)
    except ZooKeeperError as error:
        return found | {"error": str(error)}
    return found | {
        "servers": sorted(view.servers),
        "destinations": {
            name: {"runs_on": each.runs_on, "candidates": sorted(each.candidates)}
            for name, each in view.destinations.items()
        },
    }
