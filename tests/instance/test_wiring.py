"""Wiring that all kinds of instances have in common."""

from __future__ import annotations

import pytest

from canal_server.config.schema import InstanceConfig, PositionConfig, Wiring
from canal_server.doors.zookeeper import ZooKeepers
from canal_server.instance.wiring import history_owner_of


@pytest.mark.parametrize("held", [True, False])
def test_history_while_zookeeper_is_silent(held):
    """A common history is for the server whose lease is certain, whoever answers."""
    config = InstanceConfig(
        destination="example",
        position=PositionConfig(
            wiring=Wiring.ZOOKEEPER, zookeeper_servers="127.0.0.1:1"
        ),
    )
    owner = history_owner_of(config, ZooKeepers(), lambda: held)
    assert owner is not None
    assert owner.is_us() is held


def test_history_of_a_single_server():
    """Where nobody else can run the destination, a lock in the database is enough."""
    assert history_owner_of(InstanceConfig(destination="a"), ZooKeepers(), bool) is None
