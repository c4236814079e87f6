"""Which lease a destination has."""

from __future__ import annotations

import pytest

from canal_server.config.schema import (
    InstanceConfig,
    PositionConfig,
    ServerConfig,
    Wiring,
)
from canal_server.doors.zookeeper import ZooKeepers
from canal_server.errors import ConfigError
from canal_server.ha.instance_lease import ZooKeeperLease
from canal_server.ha.lease_choice import Leases
from canal_server.ha.single import SingleNode


def config(wiring):
    """Return the settings of a destination."""
    position = PositionConfig(wiring=wiring, zookeeper_servers="127.0.0.1:1")
    return InstanceConfig(destination="example", position=position)


def leases(ip="127.0.0.1"):
    """Return the leases of a server."""
    return Leases(ZooKeepers(), ServerConfig(ip=ip), lambda: 11111)


@pytest.mark.parametrize("wiring", [Wiring.MEMORY, Wiring.FILE])
def test_alone(wiring):
    """Without ZooKeeper a destination is not shared."""
    assert isinstance(leases(ip="::1").of(config(wiring)), SingleNode)


def test_shared():
    """With cursors in ZooKeeper the destination is shared; nothing is connected to."""
    assert isinstance(leases().of(config(Wiring.ZOOKEEPER)), ZooKeeperLease)


def test_without_an_address():
    """An address that clients cannot read is an error of the settings."""
    with pytest.raises(ConfigError, match=r"canal\.ip = ::1"):
        leases(ip="::1").of(config(Wiring.ZOOKEEPER))
