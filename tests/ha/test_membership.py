"""A server's nodes in a cluster, and the proof that its session lives."""

from __future__ import annotations

import threading

import pytest
from cluster_clock import Clock
from fix_proxy import Proxy
from fix_store import eventually
from fix_zookeeper import end_session

from canal_server.doors.zookeeper import ZooKeeper
from canal_server.ha.membership import START_MAX_S, TRUSTED, Membership, now_ms

LONG_S = 60.0
SESSION_S = 9.0  # after two thirds of it a dead connection is noticed
MINE = "/otter/canal/cluster/127.0.0.1:21111"


@pytest.fixture
def membership(zookeeper_root):
    """Return the membership of a cluster's server."""
    membership = Membership(ZooKeeper(zookeeper_root, session_timeout_s=SESSION_S))
    membership.open()
    eventually(lambda: membership.zookeeper.session)
    yield membership
    membership.close()


def owner(zookeeper, path):
    """Return the session that owns a node, None without a node."""
    node = zookeeper.read(path)
    return node and node.owner


def test_nodes_come_and_go(membership, zookeeper):
    """An announced node exists without content, until it is withdrawn."""
    membership.announce(MINE, "/b")
    eventually(lambda: owner(zookeeper, MINE) and owner(zookeeper, "/b"))
    assert zookeeper.read(MINE).data is None
    assert owner(zookeeper, MINE) == membership.zookeeper.session
    membership.withdraw(MINE)
    assert zookeeper.read(MINE) is None
    assert owner(zookeeper, "/b")


def test_nodes_of_a_new_session(membership, zookeeper):
    """A new session has all nodes of the one that ended."""
    membership.announce(MINE, "/b")
    eventually(lambda: owner(zookeeper, "/b"))
    before = membership.zookeeper.session
    end_session(membership.zookeeper)
    eventually(lambda: owner(zookeeper, "/b") not in (None, before))
    assert owner(zookeeper, MINE) == membership.zookeeper.session != before
    assert not membership.proven(before)
    eventually(lambda: membership.proven(membership.zookeeper.session))


def test_a_node_of_a_session_before(membership, zookeeper):
    """A node with this address in another session would be deleted: it is replaced."""
    zookeeper.create(MINE, ephemeral=True)
    membership.announce(MINE)
    eventually(lambda: owner(zookeeper, MINE) == membership.zookeeper.session)


def test_shared(zookeeper_root, zookeeper):
    """The session ends with the last lease that uses it, and a new one can follow."""
    membership = Membership(ZooKeeper(zookeeper_root, session_timeout_s=LONG_S))
    for _ in range(2):
        membership.open()
        membership.open()
        membership.announce(MINE)
        eventually(lambda: owner(zookeeper, MINE))
        membership.close()
        assert owner(zookeeper, MINE)
        membership.close()
        eventually(lambda: zookeeper.read(MINE) is None)


def test_again_while_the_end_hangs(zookeeper_server, zookeeper_root, zookeeper):
    """A session begins although the previous one could not be ended in time."""
    way = Proxy(zookeeper_server.host, zookeeper_server.port)
    chroot = zookeeper_root.partition("/")[2]
    servers = f"127.0.0.1:{way.port}/{chroot}"
    membership = Membership(ZooKeeper(servers, session_timeout_s=SESSION_S))
    membership.open()
    membership.announce(MINE)
    eventually(lambda: owner(zookeeper, MINE))
    before = membership.zookeeper.session
    with way.silence():
        membership.close()
        membership.open()
        assert membership.zookeeper.session is None
    way.end_all()
    eventually(lambda: membership.proven(membership.zookeeper.session))
    eventually(lambda: owner(zookeeper, MINE) == membership.zookeeper.session != before)
    membership.close()
    way.close()


def test_a_fault_does_not_end_it(membership, zookeeper, caplog, monkeypatch):
    """An unexpected error is logged, and the session is proven nevertheless."""
    faults = iter([RuntimeError("a fault of ours")])
    touch = membership.zookeeper.touch

    def failing(timeout_s):
        for fault in faults:
            raise fault
        return touch(timeout_s)

    monkeypatch.setattr(membership.zookeeper, "touch", failing)
    membership.announce(MINE)
    eventually(lambda: "RuntimeError: a fault of ours" in caplog.text)
    eventually(lambda: owner(zookeeper, MINE))
    assert membership.proven(membership.zookeeper.session)


def test_withdrawn_before_it_is_there(membership, zookeeper, monkeypatch):
    """A node that is created while it is withdrawn is deleted again."""
    create = membership.zookeeper.create

    def slow(path, **options):
        create(path, **options)
        if path == "/late":
            membership.withdraw(path)

    monkeypatch.setattr(membership.zookeeper, "create", slow)
    membership.announce("/late")
    membership.announce("/later")
    eventually(lambda: owner(zookeeper, "/later"))
    eventually(lambda: owner(zookeeper, "/late") is None)


def test_time_that_passed_unseen(zookeeper_root):
    """After a pause the session is not trusted until there is a new proof.

    Forbidden: it is trusted because no end was reported.
    """
    clock = Clock()
    membership = Membership(
        ZooKeeper(zookeeper_root, session_timeout_s=LONG_S), clock_s=clock
    )
    membership.open()
    eventually(lambda: membership.zookeeper.session)
    session = membership.zookeeper.session
    eventually(lambda: membership.proven(session))
    assert 0 < membership.certain_s(session) <= TRUSTED * LONG_S
    clock.put_forward(TRUSTED * LONG_S)
    assert not membership.proven(session)
    assert membership.certain_s(session) == 0
    assert membership.silence_s() >= TRUSTED * LONG_S
    assert membership.prove(session)
    assert membership.proven(session)
    another = 17
    assert not membership.proven(another)
    assert not membership.prove(another)
    membership.close()


def test_it_counts_from_the_request(zookeeper_server):
    """The time of a proof is that of the request, however late the answer arrives."""
    way = Proxy(zookeeper_server.host, zookeeper_server.port)
    clock = Clock()
    membership = Membership(
        ZooKeeper(f"127.0.0.1:{way.port}", session_timeout_s=LONG_S), clock_s=clock
    )
    membership.open()
    eventually(lambda: membership.proven(membership.zookeeper.session))
    with way.silence():
        # The request in progress is not answered, and did not have this time.
        clock.put_forward(TRUSTED * LONG_S)
        assert not membership.proven(membership.zookeeper.session)
    eventually(lambda: membership.prove(membership.zookeeper.session))
    membership.close()
    way.close()


def test_without_an_answer(zookeeper_server):
    """It is reported once nothing is certain any more, until there is an answer.

    Not for a short silence, and not because this process was paused.
    """
    way = Proxy(zookeeper_server.host, zookeeper_server.port)
    clock = Clock()
    membership = Membership(
        ZooKeeper(f"127.0.0.1:{way.port}", session_timeout_s=SESSION_S), clock_s=clock
    )
    began_ms = now_ms()
    membership.open()
    eventually(lambda: membership.proven(membership.zookeeper.session))
    clock.put_forward(LONG_S)
    assert membership.unanswered_since_ms() is None
    eventually(lambda: membership.proven(membership.zookeeper.session))
    assert membership.unanswered_since_ms() is None
    with way.silence():
        clock.put_forward(SESSION_S)
        eventually(membership.unanswered_since_ms)
        since_ms = membership.unanswered_since_ms()
        assert since_ms is not None
        assert began_ms <= since_ms <= now_ms()
    way.end_all()
    eventually(lambda: membership.unanswered_since_ms() is None)
    membership.close()
    way.close()


def test_without_a_first_answer(zookeeper_server, monkeypatch):
    """A start waits a few seconds for ZooKeeper before that is reported."""
    way = Proxy(zookeeper_server.host, zookeeper_server.port)
    clock = Clock()
    membership = Membership(
        ZooKeeper(f"127.0.0.1:{way.port}", session_timeout_s=LONG_S), clock_s=clock
    )
    tries = threading.Semaphore(0)
    touch = membership.zookeeper.touch

    def counted(timeout_s):
        tries.release()
        return touch(timeout_s)

    monkeypatch.setattr(membership.zookeeper, "touch", counted)
    with way.refuse():
        membership.open()
        assert tries.acquire(timeout=LONG_S)
        membership._woken.set()  # in place of its time
        assert tries.acquire(timeout=LONG_S)  # so that the first one has been noted
        assert membership.unanswered_since_ms() is None
        clock.put_forward(START_MAX_S)
        eventually(membership.unanswered_since_ms)
    eventually(lambda: membership.unanswered_since_ms() is None)
    membership.close()
    way.close()


def test_what_a_server_grants(zookeeper_root):
    """The time-out granted by ZooKeeper counts, not the requested one."""
    membership = Membership(ZooKeeper(zookeeper_root, session_timeout_s=10_000.0))
    membership.open()
    eventually(lambda: membership.zookeeper.session)
    assert membership.zookeeper.session_timeout_s == 90.0
    eventually(lambda: membership.proven(membership.zookeeper.session))
    assert membership.certain_s(membership.zookeeper.session) <= 60.0
    membership.close()
