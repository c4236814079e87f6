"""Clients and positions in nodes of a real ZooKeeper."""

from __future__ import annotations

import json
import logging
import threading

import pytest
from fix_store import eventually, in_thread

from canal_server.doors.zookeeper import Node, ZooKeeper, session_for
from canal_server.errors import MetaStoreError
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import (
    EntryPosition,
    LogIdentity,
    LogPosition,
    PositionRange,
)
from canal_server.model.znodes import lease_path
from canal_server.position.stored_meta import StoredClient, StoredMetaManager, Writing
from canal_server.position.zookeeper_meta import MetaNodes
from canal_server.runtime.lifecycle import Stop

CLIENT = ClientIdentity("example", 1001, r"bench\..*")
TWO = ClientIdentity("example", 1002)
REQUEST_S = 30.0
D = "/otter/canal/destinations/example"
CURSOR = f"{D}/1001/cursor"
CURSOR_RECORDED = (
    '{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition",'
    '"identity":{"slaveId":-1,"sourceAddress":{"address":"localhost","port":33097}},'
    '"postion":{"gtid":"","included":false,"journalName":"binlog.000010",'
    '"position":283,"serverId":1,"timestamp":1795241239000}}'
)
# What the Java server left for one client: path, content, and whether ephemeral.
RECORDED = [
    ("/otter/canal/cluster/127.0.0.1:21111", None, True),
    (f"{D}/1001", None, False),
    (CURSOR, CURSOR_RECORDED, False),
    (f"{D}/1001/filter", r"bench\..*", False),
    (f"{D}/cluster/127.0.0.1:21111", None, True),
    (f"{D}/running", '{"active":true,"address":"127.0.0.1:21111"}', True),
]


def position(offset):
    """Return a position on the recorded server."""
    return LogPosition(
        LogIdentity("localhost", 33097),
        EntryPosition("binlog.000010", offset, 1795241239000, 1, ""),
    )


def manager(servers, *, writing=Writing.AT_ONCE, period_s=3600.0):
    """Return a manager of the destination, not started."""
    return manager_on(
        ZooKeeper(servers, request_timeout_s=REQUEST_S), writing, period_s
    )


def manager_on(zookeeper, writing=Writing.AT_ONCE, period_s=3600.0):
    """Return the same, which uses this session."""
    return StoredMetaManager(
        MetaNodes(zookeeper),
        destinations=["example"],
        writing=writing,
        flush_period_s=period_s,
        stop_timeout_s=5.0,
    )


@pytest.fixture
def meta(zookeeper_root):
    """Return a manager that writes at once, started."""
    started = manager(zookeeper_root)
    started.start()
    yield started
    started.stop()


def test_writes_what_the_original_does(meta, zookeeper):
    """A client's nodes are the recorded ones, byte by byte, and there are no others."""
    meta.subscribe(CLIENT)
    meta.update_cursor(CLIENT, position(283))
    for path, content, ephemeral in RECORDED:
        if not ephemeral:
            data = None if content is None else content.encode()
            assert zookeeper.read(path).data == data, path
    assert zookeeper.children(f"{D}/1001") == ["cursor", "filter"]
    assert zookeeper.children(D) == ["1001"]
    assert zookeeper.read(D).data is None


def test_idle_clients_cost_nothing(zookeeper_root):
    """For clients that did not move there is no request, even without a filter."""
    created = []

    class Watched(ZooKeeper):
        def create(self, path, *rest, **options):
            created.append(path)
            return super().create(path, *rest, **options)

    nodes = MetaNodes(Watched(zookeeper_root, request_timeout_s=REQUEST_S))
    nodes.open(["example"], Stop())
    nodes.write("example", [StoredClient(TWO, None)])
    assert created[0] == f"{D}/1002"
    clients = [StoredClient(each, position(4)) for each in (CLIENT, TWO)]
    nodes.write("example", clients)
    created.clear()
    nodes.write("example", [StoredClient(CLIENT, position(8)), clients[1]])
    assert created == []
    nodes.close()
    assert [each.cursor for each in stored(zookeeper_root)] == [
        position(8),
        position(4),
    ]


def stored(servers):
    """Return the clients as another server reads them."""
    nodes = MetaNodes(ZooKeeper(servers, request_timeout_s=REQUEST_S))
    nodes.open(["example"], Stop())
    found = nodes.read("example")
    nodes.close()
    return found


def test_reads_what_the_original_left(zookeeper_root, zookeeper):
    """Client, filter and cursor of the Java server are continued."""
    for path, content, ephemeral in RECORDED:
        if not ephemeral:
            zookeeper.create(path, None if content is None else content.encode())
    zookeeper.create(f"{D}/cluster/127.0.0.1:21111", ephemeral=True)
    zookeeper.create(f"{D}/1001/mark/0000000004", b"{}")
    # Only a lock of its program, but a client to the Java server, too.
    zookeeper.create(f"{D}/7/running", b"{}")
    meta = manager(zookeeper_root)
    meta.start()
    assert [
        (each.client_id, each.filter) for each in meta.subscriptions("example")
    ] == [
        (7, ""),
        (1001, r"bench\..*"),
    ]
    assert meta.cursor(CLIENT) == position(283)
    assert meta.cursor(ClientIdentity("example", 7)) is None
    # Its open batches mean nothing here, but their ids are not used again.
    assert meta.batches(CLIENT) == {}
    offset = position(300)
    assert meta.add_batch(CLIENT, PositionRange(offset, offset, offset, 0)) == 5
    assert zookeeper.children(f"{D}/1001/mark") == ["0000000005"]
    meta.stop()


def test_survives_a_restart(zookeeper_root):
    """Everything stored before a stop is found after it, for every way of writing."""
    for number, writing in enumerate(Writing, 1):
        first = manager(zookeeper_root, writing=writing)
        first.start()
        first.subscribe(CLIENT)
        first.subscribe(TWO)
        first.update_cursor(CLIENT, position(number))
        first.stop()
        second = manager(zookeeper_root)
        second.start()
        assert second.subscriptions("example") == [CLIENT, TWO]
        assert second.cursor(CLIENT) == position(number)
        assert second.cursor(TWO) is None
        second.stop()


def test_periodic_writing(zookeeper_root, zookeeper):
    """The first cursor is written at once, others periodically, batches never."""
    meta = manager(zookeeper_root, writing=Writing.PERIODIC)
    meta.start()
    meta.subscribe(CLIENT)
    eventually(lambda: zookeeper.read(f"{D}/1001/filter"))
    meta.update_cursor(CLIENT, position(4))
    eventually(lambda: holds(zookeeper, '"position":4,'))
    meta.update_cursor(CLIENT, position(8))
    meta.add_batch(CLIENT, PositionRange(position(8), position(8), None, 0))
    assert holds(zookeeper, '"position":4,')
    meta.stop()
    assert holds(zookeeper, '"position":8,')
    assert zookeeper.children(f"{D}/1001/mark") == []


def holds(zookeeper, text):
    """Return whether the cursor's node contains this text."""
    node = zookeeper.read(CURSOR)
    return node is not None and text in node.data.decode()


def test_cursors_come_by_themselves(zookeeper_root, zookeeper):
    """With a short period and with none, a cursor is written without a stop."""
    for offset, writing in ((4, Writing.PERIODIC), (8, Writing.SOON)):
        meta = manager(zookeeper_root, writing=writing, period_s=0.01)
        meta.start()
        meta.subscribe(CLIENT)
        meta.update_cursor(CLIENT, position(offset))
        eventually(lambda: holds(zookeeper, f'"position":{offset},'))  # noqa: B023
        meta.stop()


def test_unsubscribed(meta, zookeeper):
    """All nodes of a client are removed with it, and no later ack restores them."""
    meta.subscribe(CLIENT)
    meta.update_cursor(CLIENT, position(4))
    meta.unsubscribe(CLIENT)
    meta.update_cursor(CLIENT, position(8))
    assert zookeeper.children(D) == []
    meta.subscribe(CLIENT)
    assert b'"position":8,' in zookeeper.read(CURSOR).data


def test_batches_of_a_client_that_comes_back(meta, zookeeper):
    """Its open batches, which are still in memory, are in nodes again, too."""
    meta.subscribe(CLIENT)
    meta.add_batch(CLIENT, PositionRange(position(4), position(4), None, 0))
    meta.unsubscribe(CLIENT)
    meta.subscribe(CLIENT)
    assert zookeeper.children(f"{D}/1001/mark") == ["0000000001"]


def test_filter_is_withdrawn(meta, zookeeper):
    """A client that subscribes again without a filter has none after a restart."""
    meta.subscribe(CLIENT)
    meta.subscribe(ClientIdentity("example", 1001))
    assert zookeeper.read(f"{D}/1001/filter") is None
    assert zookeeper.read(f"{D}/1001") is not None


def test_unchanged_nodes_are_not_written(meta, zookeeper):
    """A write of one client's cursor leaves all other nodes untouched."""
    meta.subscribe(CLIENT)
    meta.subscribe(TWO)
    meta.update_cursor(CLIENT, position(4))
    meta.update_cursor(TWO, position(4))
    before = zookeeper.read(CURSOR)
    meta.update_cursor(TWO, position(8))
    assert zookeeper.read(CURSOR) == before


def test_what_somebody_else_wrote_stays(zookeeper_root, zookeeper):
    """A node that another client changed is reported and kept; others are written."""
    meta = manager(zookeeper_root)
    meta.start()
    for client in (CLIENT, TWO):
        meta.subscribe(client)
        meta.update_cursor(client, position(4))
    theirs = zookeeper.read(CURSOR).data.replace(b'"position":4,', b'"position":2,')
    zookeeper.write(CURSOR, theirs, 0)
    with pytest.raises(
        MetaStoreError, match=r"1001/cursor was changed by another client"
    ):
        meta.update_cursor(CLIENT, position(8))
    assert zookeeper.read(CURSOR) == Node(theirs, 1)
    with pytest.raises(MetaStoreError, match="changed by another client"):
        meta.update_cursor(TWO, position(8))
    assert b'"position":8,' in zookeeper.read(f"{D}/1002/cursor").data
    with pytest.raises(MetaStoreError, match="changed by another client"):
        meta.stop()
    # A restart reads it.
    again = manager(zookeeper_root)
    again.start()
    assert again.cursor(CLIENT) == position(2)
    again.update_cursor(CLIENT, position(8))
    again.stop()


def test_deleted_nodes_are_made_again(meta, zookeeper):
    """A deleted cursor is written with the next ack."""
    meta.subscribe(CLIENT)
    meta.update_cursor(CLIENT, position(4))
    zookeeper.delete(f"{D}/1001")
    meta.update_cursor(CLIENT, position(8))
    assert b'"position":8,' in zookeeper.read(CURSOR).data


@pytest.mark.parametrize("data", [b"{", b'{"identity":{}}', b"\xff"])
def test_damage(zookeeper_root, zookeeper, data):
    """An invalid cursor keeps the manager from starting, with the node's name."""
    zookeeper.create(CURSOR, data)
    with pytest.raises(MetaStoreError, match="1001/cursor in ZooKeeper is damaged"):
        manager(zookeeper_root).start()


@pytest.mark.parametrize("data", [None, b""])
def test_node_without_content(zookeeper_root, zookeeper, data):
    """An empty cursor's node is no cursor, and is written later."""
    zookeeper.create(CURSOR, data)
    meta = manager(zookeeper_root)
    meta.start()
    assert meta.cursor(CLIENT) is None
    meta.update_cursor(CLIENT, position(4))
    meta.stop()
    assert b'"position":4,' in zookeeper.read(CURSOR).data


def test_a_stop_ends_the_wait(own_zookeeper, caplog):
    """A start that waits can be stopped."""
    own_zookeeper.kill()
    meta = manager(own_zookeeper.servers)
    started = in_thread(meta.start)
    eventually(lambda: "waiting for" in caplog.text)
    meta.request_stop()
    with pytest.raises(MetaStoreError, match="stopped while"):
        started.result(30)
    meta.stop()


class TestLeased:
    """Nodes that this server may write only as long as it holds the lease."""

    @pytest.fixture
    def session(self, zookeeper_root):
        """Return a session that holds the lease."""
        session = ZooKeeper(zookeeper_root)
        session.start()
        session.wait_until_connected(Stop())
        assert session.session is not None
        session.create(lease_path("example", session.session), ephemeral=True)
        yield session
        session.close()

    @pytest.fixture
    def leased(self, session):
        """Return a manager on that session, not started, that writes at once."""
        return StoredMetaManager(
            MetaNodes(session, leased=True),
            destinations=["example"],
            writing=Writing.AT_ONCE,
        )

    def test_with_the_lease(self, leased, zookeeper):
        """Everything is written as without leases."""
        leased.start()
        leased.subscribe(CLIENT)
        leased.update_cursor(CLIENT, position(4))
        leased.add_batch(CLIENT, PositionRange(position(4), position(4), None, 0))
        leased.stop()
        assert b'"position":4,' in zookeeper.read(CURSOR).data
        assert zookeeper.read(f"{D}/1001/filter").data == CLIENT.filter.encode()
        assert zookeeper.children(f"{D}/1001/mark") == ["0000000001"]

    def test_without_the_lease(self, leased, session, zookeeper):
        """Once the lease is lost nothing is written, even if no other server wrote."""
        leased.start()
        leased.subscribe(CLIENT)
        leased.update_cursor(CLIENT, position(4))
        zookeeper.delete(lease_path("example", session.session))
        for late in (
            lambda: leased.update_cursor(CLIENT, position(5)),
            lambda: leased.subscribe(TWO),
            lambda: leased.unsubscribe(CLIENT),
            leased.stop,
        ):
            with pytest.raises(MetaStoreError, match="may no longer run"):
                late()
        assert b'"position":4,' in zookeeper.read(CURSOR).data
        assert "1002" not in zookeeper.children(D)

    def test_read_without_the_lease(self, leased, session, zookeeper):
        """What was read does not count if the lease was lost meanwhile."""
        zookeeper.delete(lease_path("example", session.session))
        with pytest.raises(MetaStoreError, match="may no longer run"):
            leased.start()


def test_killed_amid_writes(own_zookeeper, caplog):
    """With ZooKeeper killed repeatedly, acks continue and the last one is stored."""
    meta = manager(own_zookeeper.servers, writing=Writing.PERIODIC, period_s=0.01)
    meta.start()
    meta.subscribe(CLIENT)
    offset = 0
    for _ in range(3):
        killer = threading.Thread(target=own_zookeeper.kill)
        killer.start()
        while killer.is_alive():
            offset += 1
            meta.update_cursor(CLIENT, position(offset))
        offset += 1  # even if the kill was faster than the loop
        meta.update_cursor(CLIENT, position(offset))
        eventually(
            lambda: "cannot write the cursors of example, retrying" in caplog.text
        )
        caplog.clear()
        own_zookeeper.restart()
        eventually(lambda: "resumed writing the cursors of example" in caplog.text)
        caplog.clear()
    meta.update_cursor(CLIENT, position(offset + 1))
    meta.stop()
    again = manager(own_zookeeper.servers)
    again.start()
    assert again.cursor(CLIENT) == position(offset + 1)
    again.stop()


def test_lost_answers(own_zookeeper):
    """A write whose answer was lost counts as ours, whether it happened or not."""
    zookeeper = ZooKeeper(own_zookeeper.servers, request_timeout_s=REQUEST_S)
    meta = manager_on(zookeeper)
    meta.start()
    meta.subscribe(CLIENT)
    zookeeper.request_timeout_s = 0.2
    for offset in (4, 8, 12):
        own_zookeeper.pause()
        for retry in range(3):
            with pytest.raises(MetaStoreError, match="cannot write the cursors"):
                meta.update_cursor(CLIENT, position(offset + retry))
        own_zookeeper.resume()
        # A write that counted as another client's would fail forever.
        eventually(lambda: _flushed(meta))
    again = manager(own_zookeeper.servers)
    again.start()
    assert again.cursor(CLIENT) == position(14)
    again.stop()
    meta.stop()


def test_lost_answer_and_a_long_outage(own_zookeeper, make_proxy):
    """A write whose answer was lost is ours, however often others fail after it."""
    proxy = make_proxy(own_zookeeper)
    zookeeper = ZooKeeper(f"127.0.0.1:{proxy.port}", request_timeout_s=REQUEST_S)
    meta = manager_on(zookeeper)
    meta.start()
    meta.subscribe(CLIENT)
    meta.update_cursor(CLIENT, position(4))
    zookeeper.request_timeout_s = 0.5
    with proxy.hold(1), proxy.refuse():
        lost = 12
        try:
            meta.update_cursor(CLIENT, position(8))  # the last answer to arrive
        except MetaStoreError:  # unless anything else was answered
            lost = 8  # then nothing is written over it
        with pytest.raises(MetaStoreError, match="cannot write the cursors"):
            meta.update_cursor(CLIENT, position(12))
        eventually(lambda: _stored(own_zookeeper) == lost)
        proxy.end_all()
        for offset in range(13, 60):
            with pytest.raises(MetaStoreError, match="cannot write the cursors"):
                meta.update_cursor(CLIENT, position(offset))
    eventually(lambda: _flushed(meta))
    assert _stored(own_zookeeper) == 59
    meta.stop()


def _stored(server):
    """Return the offset in the cursor's node."""
    with session_for(server.servers, 30.0) as session:
        node = session.read(CURSOR)
        assert node
        assert node.data
        return json.loads(node.data)["postion"]["position"]


def _flushed(meta):
    """Return whether everything could be written now."""
    try:
        meta.flush()
    except MetaStoreError:
        return False
    return True


def test_stop_without_zookeeper(own_zookeeper):
    """The error of a last write is raised in time."""
    meta = manager(own_zookeeper.servers, writing=Writing.PERIODIC)
    meta.start()
    meta.subscribe(CLIENT)
    meta.flush()
    own_zookeeper.kill()
    meta.update_cursor(CLIENT, position(4))
    with pytest.raises(MetaStoreError, match="cannot write the cursors of example"):
        meta.stop()


@pytest.fixture(autouse=True)
def _logged(caplog):
    caplog.set_level(logging.INFO)
