"""Wiring that all kinds of instances have in common."""

from __future__ import annotations

import logging

import pytest

from canal_server.config.schema import InstanceConfig, PositionConfig, Wiring
from canal_server.doors.zookeeper import ZooKeepers
from canal_server.instance import wiring
from canal_server.instance.wiring import history_owner_of, serve_stored_clients
from canal_server.model.identity import ClientIdentity
from canal_server.position.memory_meta import MemoryMetaManager
from canal_server.runtime.lifecycle import Stop


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


def test_a_start_with_stored_filters(monkeypatch, caplog):
    """It says how far it is, and a stop ends it before the next filter."""
    monkeypatch.setattr(wiring, "PROGRESS_S", 0)
    meta, stop, served = MemoryMetaManager(), Stop(), []
    meta.start()
    for client_id in (1, 2, 3):
        meta.subscribe(ClientIdentity("example", client_id, ""))

    def serve(identity: ClientIdentity) -> None:
        served.append(identity.client_id)
        if identity.client_id == 2:
            stop.request()

    with caplog.at_level(logging.INFO):
        serve_stored_clients(meta, "example", serve, stop)
    assert served == [1, 2]
    assert "prepared the filters of 1 of 3 clients" in caplog.text
