"""Stored cursors of destinations that no server runs: read and moved."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from canal_server.config.schema import (
    HostConfig,
    HostPort,
    InstanceConfig,
    PositionConfig,
    SourceConfig,
    Wiring,
)
from canal_server.doors.zookeeper import ZooKeeper
from canal_server.errors import ClientError, MetaStoreError
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.model.znodes import lease_path
from canal_server.position import offline
from canal_server.position.file_meta import MetaFiles
from canal_server.position.offline import move_stored, read_stored
from canal_server.position.stored_meta import StoredClient
from canal_server.position.zookeeper_meta import MetaNodes
from canal_server.runtime.lifecycle import Stop

D = "/otter/canal/destinations/example"


def position(offset):
    """Return a position."""
    return LogPosition(
        LogIdentity("db", 3306), EntryPosition("binlog.000001", offset, 1000, 1)
    )


def cursors(config):
    """Return the stored offsets, by client."""
    return {
        each.identity.client_id: each.cursor and each.cursor.position.position
        for each in read_stored(config).cursors.clients
    }


CLIENTS = [
    StoredClient(ClientIdentity("example", 1001, "a\\.b"), position(100)),
    StoredClient(ClientIdentity("example", 1002), position(200)),
    StoredClient(ClientIdentity("example", 1003), None),
]


@pytest.fixture
def in_files(tmp_path):
    """Return the settings of a destination with three clients in a file."""
    MetaFiles(tmp_path).write("example", CLIENTS)
    position = PositionConfig(wiring=Wiring.FILE, data_dir=tmp_path)
    return InstanceConfig(destination="example", position=position)


@pytest.fixture
def in_nodes(zookeeper, zookeeper_root):
    """Return the settings of a destination with three clients in nodes."""
    MetaNodes(zookeeper).write("example", CLIENTS)
    zookeeper.create(f"{D}/1001/mark/0000000007", b"{}")
    position = PositionConfig(wiring=Wiring.ZOOKEEPER, zookeeper_servers=zookeeper_root)
    return InstanceConfig(destination="example", position=position)


@pytest.fixture(params=["in_files", "in_nodes"])
def config(request):
    """Return the settings of each."""
    return request.getfixturevalue(request.param)


def test_some_are_moved(config):
    """The named clients move, the others and all filters stay unchanged."""
    assert cursors(config) == {1001: 100, 1002: 200, 1003: None}
    move_stored(config, [1001, 1003], position(50))
    assert cursors(config) == {1001: 50, 1002: 200, 1003: 50}
    one = read_stored(config).cursors.clients[0]
    assert one.identity.filter == "a\\.b"


def test_unknown_ones(config):
    """No client moves when one is named that is not subscribed."""
    with pytest.raises(ClientError, match="client 7 is not subscribed to example"):
        move_stored(config, [1001, 7], position(50))
    assert cursors(config)[1001] == 100


def test_batches_are_void(in_nodes, zookeeper):
    """Open batches of the Java server are removed."""
    move_stored(in_nodes, [1001], position(50))
    assert zookeeper.children(f"{D}/1001/mark") == []


def test_while_a_server_runs(in_nodes, zookeeper):
    """A destination that a server runs is not moved, and the error names the server."""
    owner = {"active": True, "address": "10.0.0.7:11111"}
    zookeeper.create(f"{D}/running", json.dumps(owner).encode(), ephemeral=True)
    assert read_stored(in_nodes).owner == "10.0.0.7:11111"
    with pytest.raises(
        MetaStoreError, match=r"is run by 10\.0\.0\.7:11111: run this command there"
    ):
        move_stored(in_nodes, [1001], position(50))
    assert cursors(in_nodes)[1001] == 100
    zookeeper.delete(f"{D}/running")
    move_stored(in_nodes, [1001], position(50))
    assert zookeeper.read(f"{D}/running") is None


def test_servers_are_kept_out_meanwhile(in_nodes, zookeeper_root, monkeypatch):
    """While cursors are moved, the node names an owner of the destination."""
    seen = []

    class Watched(MetaNodes):
        def write(self, destination, clients):
            other = ZooKeeper(zookeeper_root)
            other.start()
            other.wait_until_connected(Stop())
            node = other.read(f"{D}/running")
            seen.append(json.loads((node and node.data) or b"null"))
            other.close()
            super().write(destination, clients)

    monkeypatch.setattr(offline, "MetaNodes", Watched)
    move_stored(in_nodes, [1001], position(50))
    assert seen == [json.loads(offline.MOVER)]
    assert ":" not in seen[0]["address"]


def test_a_session_that_ended_meanwhile(in_nodes, zookeeper, monkeypatch):
    """Once a server may run the destination, cursors and node are left unchanged."""

    class Late(MetaNodes):
        def write(self, destination, clients):
            # As after a pause in which the session ended, and a server took over.
            session = self._zookeeper.session
            assert session is not None
            zookeeper.delete(lease_path("example", session))
            zookeeper.delete(f"{D}/running")
            zookeeper.create(f"{D}/running", b'{"active":true}', ephemeral=True)
            super().write(destination, clients)

    monkeypatch.setattr(offline, "MetaNodes", Late)
    with pytest.raises(MetaStoreError, match="may no longer run the destination"):
        move_stored(in_nodes, [1001], position(50))
    assert cursors(in_nodes)[1001] == 100
    assert zookeeper.read(f"{D}/running").owner == zookeeper.session


def group_of(config):
    """Return the settings of a group of two sources, `db` and `db2`."""
    hosts = [HostConfig(address=HostPort(host, 3306)) for host in ("db", "db2")]
    sources = [SourceConfig(number=n, master=h) for n, h in enumerate(hosts, 1)]
    return replace(config, group=tuple(sources))


def cursors_of(config):
    """Return the stored offsets of each source, by client."""
    return {
        number: [
            each.cursor and each.cursor.position.position for each in source.clients
        ]
        for number, source in read_stored(config).cursors.sources.items()
    }


def test_one_source_of_a_group(config):
    """Clients are moved in the source whose server the position names."""
    group = group_of(config)
    assert cursors_of(group) == {1: [100, 200, None], 2: [None, None, None]}
    second = LogPosition(LogIdentity("db2", 3306), position(7).position)
    move_stored(group, [1001, 1003], second)
    assert cursors_of(group) == {1: [100, 200, None], 2: [7, None, 7]}
    assert cursors(group) == {1001: 100, 1002: 200, 1003: 7}
    move_stored(group, [1001], position(50), second)
    assert cursors_of(group) == {1: [50, 200, None], 2: [7, None, 7]}
    move_stored(group, [1003], position(60))
    assert cursors_of(group) == {1: [50, 200, 60], 2: [7, None, 7]}
    assert cursors(group) == {1001: 50, 1002: 200, 1003: 7}


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        (["elsewhere"], "is in none of them"),
        (["db", "db"], "is a second one in its source"),
    ],
)
def test_no_position_of_a_group(in_files, hosts, words):
    """A position on no source's server is refused, and so are two in one source."""
    elsewhere = [LogPosition(LogIdentity(h, 3306), position(7).position) for h in hosts]
    with pytest.raises(ClientError, match=words):
        move_stored(group_of(in_files), [1001], *elsewhere)
    assert cursors(in_files)[1001] == 100


def test_a_single_source_has_one_position(in_files):
    """Two positions, or none, are refused."""
    for given in ((), (position(1), position(2))):
        with pytest.raises(ClientError, match=f"has one source, but {len(given)}"):
            move_stored(in_files, [1001], *given)
    assert cursors(in_files)[1001] == 100


def test_zookeeper_is_down(monkeypatch):
    """An operator learns soon that ZooKeeper does not answer."""
    monkeypatch.setattr(offline, "CONNECT_S", 0.1)
    config = InstanceConfig(
        destination="example",
        position=PositionConfig(
            wiring=Wiring.ZOOKEEPER, zookeeper_servers="127.0.0.1:1"
        ),
    )
    with pytest.raises(MetaStoreError, match=r"ZooKeeper at 127\.0\.0\.1:1 did not"):
        read_stored(config)


def test_in_memory():
    """Without a server there are no cursors in memory."""
    config = InstanceConfig(
        destination="example", position=PositionConfig(wiring=Wiring.MEMORY)
    )
    assert read_stored(config).cursors.clients == ()
    with pytest.raises(MetaStoreError, match="keeps its cursors in memory"):
        move_stored(config, [1001], position(50))
