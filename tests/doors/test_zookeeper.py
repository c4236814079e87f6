"""The door to ZooKeeper, against real servers."""

from __future__ import annotations

import queue
import threading

import pytest
from fix_store import PATIENCE_S, eventually

from canal_server.doors.zookeeper import Node, SessionState, ZooKeeper, ZooKeepers
from canal_server.errors import (
    NodeExists,
    NodeMissing,
    VersionConflict,
    ZooKeeperError,
    ZooKeeperUnavailable,
)
from canal_server.runtime.lifecycle import Stop

SESSION_S = 6.0  # survives a machine that pauses for some seconds


def connected(servers, **options):
    """Return a session that is connected."""
    session = ZooKeeper(servers, **options)
    session.start()
    session.wait_until_connected(Stop())
    return session


def test_nodes(zookeeper):
    """What was written is read, with an increasing version; None is not empty."""
    assert zookeeper.read("/a") is None
    zookeeper.create("/a")
    assert zookeeper.read("/a") == Node(None, 0)
    assert zookeeper.write("/a", "ä".encode(), 0) == 1
    assert zookeeper.read("/a") == Node("ä".encode(), 1)
    assert zookeeper.write("/a", b"", 1) == 2
    assert zookeeper.read("/a") == Node(b"", 2)


def test_parents_are_made(zookeeper):
    """Missing parents of a new node are created without content."""
    zookeeper.create("/a/b/c", b"1")
    zookeeper.create("/a/b/d")
    zookeeper.ensure("/a/b/d")
    assert zookeeper.read("/a") == Node(None, 0)
    assert zookeeper.children("/a/b") == ["c", "d"]
    assert zookeeper.children("/a/b/c") == []
    assert zookeeper.children("/nowhere") == []


def test_deleting(zookeeper):
    """A node is deleted with its children; a missing one is not an error."""
    zookeeper.create("/a/b/c")
    zookeeper.create("/a/d")
    zookeeper.delete("/a")
    zookeeper.delete("/a")
    assert zookeeper.read("/a") is None


def test_refusals(zookeeper):
    """Each refusal is a separate error that names the node."""
    zookeeper.create("/a")
    with pytest.raises(NodeExists, match="/a"):
        zookeeper.create("/a")
    zookeeper.write("/a", b"theirs", 0)
    with pytest.raises(VersionConflict, match="/a"):
        zookeeper.write("/a", b"ours", 0)
    with pytest.raises(NodeMissing, match="/b"):
        zookeeper.write("/b", b"", 0)
    assert zookeeper.read("/a") == Node(b"theirs", 1)


def test_ephemeral_nodes(zookeeper_root, zookeeper):
    """An ephemeral node is deleted when the session of its creator is closed."""
    other = connected(zookeeper_root)
    other.create("/a/mine", b"1", ephemeral=True)
    assert zookeeper.read("/a/mine") == Node(b"1", 0, owner=other.session)
    other.close()
    eventually(lambda: zookeeper.read("/a/mine") is None)
    assert zookeeper.read("/a") is not None


def test_missing_chroot(zookeeper_server):
    """A missing path after the servers is reported, not created."""
    session = ZooKeeper(f"{zookeeper_server.servers}/no/such")
    session.start()
    with pytest.raises(ZooKeeperError, match=r"/no/such does not exist .* create it"):
        session.wait_until_connected(Stop())
    session.close()


def test_shared_sessions(zookeeper_root):
    """Users of one list of servers share a session, the last one ends it."""
    sessions = ZooKeepers()
    one, other = sessions.of(zookeeper_root), sessions.of(zookeeper_root)
    assert one is other
    one.start()
    one.wait_until_connected(Stop())
    other.start()
    one.close()
    assert other.read("/") is not None
    other.close()
    with pytest.raises(ZooKeeperUnavailable):
        other.read("/")
    # It can be used again.
    one.start()
    one.wait_until_connected(Stop())
    assert one.read("/") is not None
    one.close()


def test_waits_for_a_server_that_is_down(own_zookeeper, caplog):
    """Without a server it waits and logs so once, and continues when there is one."""
    own_zookeeper.kill()
    session = ZooKeeper(own_zookeeper.servers)
    session.start()
    waiting = threading.Thread(target=session.wait_until_connected, args=(Stop(),))
    waiting.start()
    eventually(lambda: "waiting for ZooKeeper at 127.0.0.1" in caplog.text)
    own_zookeeper.restart()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    assert caplog.text.count("waiting for ZooKeeper") == 1
    session.close()


def test_a_stop_ends_the_wait(own_zookeeper):
    """A wait for a stopped server can be stopped, and then closed."""
    own_zookeeper.kill()
    session = ZooKeeper(own_zookeeper.servers)
    session.start()
    stop = Stop()
    stop.request()
    with pytest.raises(ZooKeeperUnavailable, match="stopped while waiting"):
        session.wait_until_connected(stop)
    session.close()


def test_a_server_that_stops_and_restarts(own_zookeeper):
    """The connection is reported lost and back; in between, requests fail at once."""
    session = connected(own_zookeeper.servers)
    states: queue.SimpleQueue[SessionState] = queue.SimpleQueue()
    session.listen(states.put)
    session.create("/a", b"1")
    own_zookeeper.kill()
    assert states.get(timeout=PATIENCE_S) is SessionState.SUSPENDED
    assert session.state is SessionState.SUSPENDED
    with pytest.raises(ZooKeeperUnavailable, match=r"cannot read /a .* suspended"):
        session.read("/a")
    own_zookeeper.restart()
    assert states.get(timeout=PATIENCE_S) is SessionState.CONNECTED
    assert session.read("/a") == Node(b"1", 0)
    session.close()


def test_a_lost_session(zookeeper_server, zookeeper_root, zookeeper, make_proxy):
    """A session that the servers end is reported, and a new one replaces it."""
    proxy = make_proxy(zookeeper_server)
    _, _, chroot = zookeeper_root.partition("/")
    session = connected(f"127.0.0.1:{proxy.port}/{chroot}", session_timeout_s=SESSION_S)
    notified: queue.SimpleQueue[SessionState] = queue.SimpleQueue()
    session.listen(notified.put)
    session.create("/mine", ephemeral=True)
    with proxy.refuse():
        proxy.end_all()
        eventually(lambda: zookeeper.read("/mine") is None)
    states = [notified.get(timeout=PATIENCE_S) for _ in range(3)]
    assert states == [
        SessionState.SUSPENDED,
        SessionState.LOST,
        SessionState.CONNECTED,
    ]
    assert session.expired == 1
    session.create("/mine", ephemeral=True)
    session.close()
    assert session.expired == 1


def test_a_silent_server(own_zookeeper):
    """A request ends in time when the server does not answer, whatever its outcome."""
    patient = connected(own_zookeeper.servers)
    session = connected(own_zookeeper.servers, request_timeout_s=0.7)
    patient.create("/a", b"1")
    own_zookeeper.pause()
    with pytest.raises(ZooKeeperUnavailable, match="cannot write /a"):
        session.write("/a", b"2", 0)
    own_zookeeper.resume()
    eventually(lambda: patient.read("/a") == Node(b"2", 1))
    session.close()
    patient.close()
