"""Positions of clients in several sources: what is stored next to cursors, and when."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fix_disk import FaultyDisk, PowerCut, PowerlessDisk

from canal_server.doors.zookeeper import ZooKeeper
from canal_server.errors import MetaStoreError
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position import source_positions
from canal_server.position.atomic_file import Disk
from canal_server.position.file_meta import MetaFiles
from canal_server.position.memory_meta import MemoryMetaManager
from canal_server.position.stored_meta import StoredMetaManager, Writing
from canal_server.position.zookeeper_meta import MetaNodes
from canal_server.runtime.lifecycle import Stop

CLIENT = ClientIdentity("example", 1001)
SECOND = ClientIdentity("example", 2)
SERVERS = {
    1: (LogIdentity("db1", 3306), LogIdentity("spare1", 3306)),
    2: (LogIdentity("db2", 3306),),
}


def at(host, offset, *, time=0):
    """Return a position on a server."""
    return LogPosition(
        LogIdentity(host, 3306), EntryPosition("bin.000001", offset, time, 1, "")
    )


@pytest.fixture(params=["files", "nodes"])
def open_meta(request, tmp_path):
    """Return `open()`, which returns another manager on the same files, then nodes."""
    root = request.getfixturevalue("zookeeper_root") if request.param == "nodes" else ""

    def start():
        position = MetaNodes(ZooKeeper(root)) if root else MetaFiles(tmp_path)
        made = StoredMetaManager(
            position, destinations=["example"], writing=Writing.AT_ONCE
        )
        made.start()
        request.addfinalizer(made.stop)
        return made

    return start


def test_stored_beside_the_cursor(open_meta):
    """Another process finds each client's positions, the last one in each source."""
    meta = open_meta()
    meta.subscribe(CLIENT)
    meta.subscribe(SECOND)
    meta.update_source_positions(CLIENT, {1: at("db1", 100), 2: at("db2", 200)})
    meta.update_cursor(CLIENT, at("db2", 200))
    meta.update_source_positions(CLIENT, {1: at("db1", 300)})
    meta.update_source_positions(SECOND, {2: at("db2", 5)})
    meta.stop()
    again = open_meta()
    assert again.source_positions(CLIENT) == {1: at("db1", 300), 2: at("db2", 200)}
    assert again.cursor(CLIENT) == at("db2", 200)
    assert again.source_positions(SECOND) == {2: at("db2", 5)}


def test_nothing_beside_single_sources(tmp_path):
    """Without source positions there is no file for them."""
    meta = StoredMetaManager(
        MetaFiles(tmp_path), destinations=["example"], writing=Writing.AT_ONCE
    )
    meta.start()
    meta.subscribe(CLIENT)
    meta.update_cursor(CLIENT, at("db1", 100))
    meta.stop()
    assert [file.name for file in (tmp_path / "example").glob("*.sources")] == []
    assert meta.source_positions(CLIENT) == {}


def test_unsubscribed_clients_have_none(open_meta):
    """The stored positions of a client are removed with its subscription."""
    meta = open_meta()
    meta.subscribe(CLIENT)
    meta.update_source_positions(CLIENT, {1: at("db1", 100)})
    meta.unsubscribe(CLIENT)
    meta.stop()
    assert open_meta().source_positions(CLIENT) == {}


class ReadOnlyState(Disk):
    """The files that a power cut left."""

    def __init__(self, state):
        self.state = state

    def read(self, path):
        """Return the content of a file."""
        if self.state.get(path) is None:
            raise FileNotFoundError(path)
        return self.state[path]


def test_power_cut_at_every_step():
    """Wherever a flush ends, positions and cursor are the old or the new ones.

    The cursor is never newer than the positions next to it.
    """
    folder = Path("/data")

    def move(meta, offset):
        meta.update_source_positions(
            CLIENT, {1: at("db1", offset), 2: at("db2", offset)}
        )
        meta.update_cursor(CLIENT, at("db2", offset))

    steps, finished = 0, False
    while not finished:
        disk = PowerlessDisk()
        meta = StoredMetaManager(MetaFiles(folder, disk=disk), destinations=["example"])
        meta.subscribe(CLIENT)
        for offset in (4, 8):
            move(meta, offset)
            meta.flush()
        move(meta, 12)
        disk.steps_left = steps
        try:
            meta.flush()
        except PowerCut:
            allowed = {8, 12}
        else:
            allowed, finished = {12}, True
        for state in disk.states():
            (found,) = MetaFiles(folder, disk=ReadOnlyState(state)).read("example")
            positions = {
                position.position.position
                for position in found.source_positions.values()
            }
            assert len(positions) == 1
            assert found.cursor
            cursor = found.cursor.position.position
            assert cursor in allowed
            assert positions <= {cursor, 12}
        steps += 1
    assert steps > 16


def test_damaged_file(tmp_path, caplog):
    """The backup replaces it, which is logged; without a backup it is an error."""
    meta = StoredMetaManager(
        MetaFiles(tmp_path), destinations=["example"], writing=Writing.AT_ONCE
    )
    meta.subscribe(CLIENT)
    meta.update_source_positions(CLIENT, {1: at("db1", 100)})
    meta.update_source_positions(CLIENT, {1: at("db1", 200)})
    file = tmp_path / "example" / "meta.dat.sources"
    file.write_bytes(bytes(len(file.read_bytes())))
    with caplog.at_level(logging.ERROR):
        (found,) = MetaFiles(tmp_path).read("example")
    assert found.source_positions == {1: at("db1", 100)}
    assert "meta.dat.sources is damaged" in caplog.text
    file.with_name("meta.dat.sources.bak").unlink()
    with pytest.raises(MetaStoreError, match=r"meta\.dat\.sources is damaged"):
        MetaFiles(tmp_path).read("example")


def test_a_backup_that_was_needed_stays(tmp_path):
    """The damaged file does not become the backup, so that a crash finds the backup."""
    meta = StoredMetaManager(
        MetaFiles(tmp_path), destinations=["example"], writing=Writing.AT_ONCE
    )
    meta.subscribe(CLIENT)
    meta.update_source_positions(CLIENT, {1: at("db1", 100)})
    meta.update_source_positions(CLIENT, {1: at("db1", 200)})
    file = tmp_path / "example" / "meta.dat.sources"
    file.write_bytes(bytes(len(file.read_bytes())))
    disk = FaultyDisk()
    position = MetaFiles(tmp_path, disk=disk)
    clients = position.read("example")
    with (
        disk.always_failing("replace", OSError("the machine goes down")),
        pytest.raises(MetaStoreError, match="goes down"),
    ):
        position.write("example", clients)
    (found,) = MetaFiles(tmp_path).read("example")
    assert found.source_positions == {1: at("db1", 100)}
    position.write("example", clients)
    file.with_name("meta.dat.sources.bak").unlink()
    (found,) = MetaFiles(tmp_path).read("example")
    assert found.source_positions == {1: at("db1", 100)}


def test_damaged_node(zookeeper_root):
    """A node that cannot be read is an error with its path."""
    position = MetaNodes(ZooKeeper(zookeeper_root))
    meta = StoredMetaManager(
        position, destinations=["example"], writing=Writing.AT_ONCE
    )
    meta.start()
    meta.subscribe(CLIENT)
    meta.update_source_positions(CLIENT, {1: at("db1", 100)})
    meta.stop()
    zookeeper = ZooKeeper(zookeeper_root)
    zookeeper.start()
    zookeeper.wait_until_connected(Stop())
    path = "/otter/canal/destinations/example/1001/cursor.sources"
    node = zookeeper.read(path)
    assert node
    assert node.data == source_positions.encode({1: at("db1", 100)})
    zookeeper.write(path, b"{}", node.version)
    zookeeper.close()
    again = StoredMetaManager(
        MetaNodes(ZooKeeper(zookeeper_root)), destinations=["example"]
    )
    with pytest.raises(
        MetaStoreError, match=r"cursor\.sources in ZooKeeper is damaged"
    ):
        again.start()


def test_content():
    """The form is that of cursors, in a list; unknown keys are ignored."""
    content = source_positions.encode_clients({7: {2: at("db2", 9), 1: at("db1", 8)}})
    assert content.startswith(
        b'{"clients":[{"clientId":7,"sources":[{"number":1,"position":{"identity":'
    )
    assert source_positions.decode_clients(content) == {
        7: {1: at("db1", 8), 2: at("db2", 9)}
    }
    more = content.replace(b'"number":1', b'"number":1,"more":[]')
    assert source_positions.decode_clients(more) == source_positions.decode_clients(
        content
    )


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"sources":[{}]}', b'{"sources":[{"number":1}]}']
)
def test_damaged_content(content):
    """Anything but a list of positions is refused."""
    with pytest.raises(ValueError, match=r"missing|Expecting"):
        source_positions.decode(content)


# --- which position is of which source -----------------------------------------------


def acked(positions, cursor=None):
    """Return the positions of a client for which these are stored."""
    meta = MemoryMetaManager()
    meta.subscribe(CLIENT)
    meta.update_source_positions(CLIENT, positions)
    if cursor is not None:
        meta.update_cursor(CLIENT, cursor)
    return source_positions.acked_source_positions(meta, CLIENT, SERVERS)


def test_by_number():
    """A position belongs to the source with its number, even on its standby."""
    positions = {1: at("spare1", 1), 2: at("db2", 2)}
    assert acked(positions) == positions


def test_by_server():
    """When numbers were changed in the settings, the servers' names count."""
    swapped = {1: at("db2", 1), 2: at("db1", 2)}
    assert acked(swapped) == {2: at("db2", 1), 1: at("db1", 2)}


def test_server_with_another_name():
    """A position on an unknown server belongs to the source with its number."""
    assert acked({2: at("elsewhere", 1)}) == {2: at("elsewhere", 1)}
    assert acked({9: at("elsewhere", 1)}) == {}


def test_cursor_goes_first():
    """Another program that moves a cursor leaves what is next to it unchanged."""
    positions = {1: at("db1", 10), 2: at("db2", 20)}
    assert acked(positions, at("db2", 5)) == {1: at("db1", 10), 2: at("db2", 5)}
    assert acked(positions, at("elsewhere", 5)) == positions


def test_cursor_of_a_single_source():
    """A destination that becomes a group continues in its first source."""
    assert acked({}, at("db1", 5)) == {1: at("db1", 5)}


def test_slowest_client():
    """A source begins at the smallest position of the clients that have one."""
    meta = MemoryMetaManager()
    manager = source_positions.SourceLogPositionManager(meta, "example", 1, SERVERS)
    assert manager.latest("example/master1") is None
    for client in (CLIENT, SECOND):
        meta.subscribe(client)
    assert manager.latest("example/master1") is None
    meta.update_source_positions(CLIENT, {1: at("db1", 20), 2: at("db2", 1)})
    assert manager.latest("example/master1") == at("db1", 20)
    meta.update_source_positions(SECOND, {1: at("db1", 10)})
    manager.persist("example/master1", at("db1", 99))
    assert manager.latest("example/master1") == at("db1", 10)


def test_cursor_of_a_client_that_was_moved():
    """It stays one of its source, and contradicts nothing next to it."""
    positions = {1: at("db1", 10), 2: at("db2", 20)}
    for cursor, found in (
        (at("db2", 5), positions[2]),
        (at("spare1", 5), positions[1]),
        (None, positions[1]),
    ):
        moved = source_positions.cursor_among(positions, cursor, SERVERS)
        assert moved == found
        assert (
            source_positions.source_positions_of(positions, moved, SERVERS) == positions
        )
    assert source_positions.cursor_among({}, at("db1", 5), SERVERS) == at("db1", 5)
