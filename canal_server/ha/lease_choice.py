"""Chooses the lease of a destination by where its cursors are stored."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from canal_server.config.schema import Wiring
from canal_server.ha.address import registered_ip
from canal_server.ha.instance_lease import ZooKeeperLease
from canal_server.ha.membership import Membership
from canal_server.ha.predecessor import Predecessor
from canal_server.ha.single import SingleNode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from canal_server.config.schema import InstanceConfig
    from canal_server.doors.zookeeper import ZooKeeper, ZooKeepers
    from canal_server.ha.address import Settings
    from canal_server.ports import Lease


class Leases:
    """Creates the leases of one process; those with one ZooKeeper share a session."""

    def __init__(
        self,
        zookeepers: ZooKeepers,
        settings: Settings,
        port: Callable[[], int],
        lock: Path | None = None,
    ) -> None:
        """`port` is called when a lease is opened.

        `lock` is the file that is locked before that; with it, a session that a dead
        server left behind is ended.
        """
        self._zookeepers = zookeepers
        self._settings = settings
        self._port = port
        self._lock_file = lock
        self._lock = threading.Lock()
        self._memberships: dict[ZooKeeper, Membership] = {}

    def of(self, config: InstanceConfig) -> Lease:
        """Return the lease of a destination; connects to nothing.

        Raises ConfigError when there is no address to register.
        """
        position = config.position
        if position.wiring is not Wiring.ZOOKEEPER:
            return SingleNode()
        zookeeper = self._zookeepers.of(
            position.zookeeper_servers, position.zookeeper_session_timeout_ms / 1000
        )
        ip = registered_ip(self._settings)
        with self._lock:
            if zookeeper not in self._memberships:
                self._memberships[zookeeper] = Membership(
                    zookeeper,
                    predecessor=self._predecessor(
                        position.zookeeper_servers,
                        position.zookeeper_session_timeout_ms / 1000,
                    ),
                )
            membership = self._memberships[zookeeper]
        return ZooKeeperLease(
            config.destination,
            membership,
            lambda: f"{ip}:{self._port()}",
            takeover_delay_s=position.zookeeper_takeover_delay_ms / 1000,
        )

    def _predecessor(self, servers: str, timeout_s: float) -> Predecessor | None:
        lock = self._lock_file
        return None if lock is None else Predecessor(lock, servers, timeout_s)
