"""A server's nodes in a cluster, and the proof that its session lives."""

from __future__ import annotations

import pytest
from cluster_clock import Clock
from fix_proxy import Proxy
from fix_store import eventually
from fix_zookeeper import end_session

from canal_server.doors.zookeeper import ZooKeeper
from canal_server.ha.membership import TRUSTED, Member

LONG_S = 60.0
SESSION_S = 9.0  # after two thirds of it a dead connection is noticed
MINE = "/otter/canal/cluster/127.0.0.1:21111"


@pytest.fixture
def member(zookeeper_root):
    """Return the membership of a cluster's server."""
    member = Member(ZooKeeper(zookeeper_root, session_timeout_s=SESSION_S))
    member.open()
    eventually(lambda: member.zookeeper.session)
    yield member
    member.close()


def owner(zookeeper, path):
    """Return the session that owns a node, None without a node."""
    node = zookeeper.read(path)
    return node and node.owner


def test_nodes_come_and_go(member, zookeeper):
    """An announced node exists without content, until it is withdrawn."""
    member.announce(MINE, "/b")
    eventually(lambda: owner(zookeeper, MINE) and owner(zookeeper, "/b"))
    assert zookeeper.read(MINE).data is None
    assert owner(zookeeper, MINE) == member.zookeeper.session
    member.withdraw(MINE)
    assert zookeeper.read(MINE) is None
    assert owner(zookeeper, "/b")


def test_nodes_of_a_new_session(member, zookeeper):
    """A new session has all nodes of the one that ended."""
    member.announce(MINE, "/b")
    eventually(lambda: owner(zookeeper, "/b"))
    before = member.zookeeper.session
    end_session(member.zookeeper)
    eventually(lambda: owner(zookeeper, "/b") not in (None, before))
    assert owner(zookeeper, MINE) == member.zookeeper.session != before
    assert not member.proven(before)
    eventually(lambda: member.proven(member.zookeeper.session))


def test_a_node_of_a_session_before(member, zookeeper):
    """A node with this address in another session would be deleted: it is replaced."""
    zookeeper.create(MINE, ephemeral=True)
    member.announce(MINE)
    eventually(lambda: owner(zookeeper, MINE) == member.zookeeper.session)


def test_shared(zookeeper_root, zookeeper):
    """The session ends with the last lease that uses it, and a new one can follow."""
    member = Member(ZooKeeper(zookeeper_root, session_timeout_s=LONG_S))
    for _ in range(2):
        member.open()
        member.open()
        member.announce(MINE)
        eventually(lambda: owner(zookeeper, MINE))
        member.close()
        assert owner(zookeeper, MINE)
        member.close()
        eventually(lambda: zookeeper.read(MINE) is None)


def test_again_while_the_end_hangs(zookeeper_server, zookeeper_root, zookeeper):
    """A session begins although the previous one could not be ended in time."""
    way = Proxy(zookeeper_server.host, zookeeper_server.port)
    chroot = zookeeper_root.partition("/")[2]
    servers = f"127.0.0.1:{way.port}/{chroot}"
    member = Member(ZooKeeper(servers, session_timeout_s=SESSION_S))
    member.open()
    member.announce(MINE)
    eventually(lambda: owner(zookeeper, MINE))
    before = member.zookeeper.session
    with way.silence():
        member.close()
        member.open()
        assert member.zookeeper.session is None
    way.end_all()
    eventually(lambda: member.proven(member.zookeeper.session))
    eventually(lambda: owner(zookeeper, MINE) == member.zookeeper.session != before)
    member.close()
    way.close()


def test_a_fault_does_not_end_it(member, zookeeper, caplog, monkeypatch):
    """An unexpected error is logged, and the session is proven nevertheless."""
    faults = iter([RuntimeError("a fault of ours")])
    touch = member.zookeeper.touch

    def failing(timeout_s):
        for fault in faults:
            raise fault
        return touch(timeout_s)

    monkeypatch.setattr(member.zookeeper, "touch", failing)
    member.announce(MINE)
    eventually(lambda: "RuntimeError: a fault of ours" in caplog.text)
    eventually(lambda: owner(zookeeper, MINE))
    assert member.proven(member.zookeeper.session)


def test_withdrawn_before_it_is_there(member, zookeeper, monkeypatch):
    """A node that is created while it is withdrawn is deleted again."""
    create = member.zookeeper.create

    def slow(path, **options):
        create(path, **options)
        if path == "/late":
            member.withdraw(path)

    monkeypatch.setattr(member.zookeeper, "create", slow)
    member.announce("/late")
    member.announce("/later")
    eventually(lambda: owner(zookeeper, "/later"))
    eventually(lambda: owner(zookeeper, "/late") is None)


def test_time_that_passed_unseen(zookeeper_root):
    """After a pause the session is not trusted until there is a new proof.

    Forbidden: it is trusted because no end was reported.
    """
    clock = Clock()
    member = Member(ZooKeeper(zookeeper_root, session_timeout_s=LONG_S), clock_s=clock)
    member.open()
    eventually(lambda: member.zookeeper.session)
    session = member.zookeeper.session
    eventually(lambda: member.proven(session))
    assert 0 < member.certain_s(session) <= TRUSTED * LONG_S
    clock.put_forward(TRUSTED * LONG_S)
    assert not member.proven(session)
    assert member.certain_s(session) == 0
    assert member.silence_s() >= TRUSTED * LONG_S
    assert member.prove(session)
    assert member.proven(session)
    another = 17
    assert not member.proven(another)
    assert not member.prove(another)
    member.close()


def test_it_counts_from_the_request(zookeeper_server):
    """The time of a proof is that of the request, however late the answer arrives."""
    way = Proxy(zookeeper_server.host, zookeeper_server.port)
    clock = Clock()
    member = Member(
        ZooKeeper(f"127.0.0.1:{way.port}", session_timeout_s=LONG_S), clock_s=clock
    )
    member.open()
    eventually(lambda: member.proven(member.zookeeper.session))
    with way.silence():
        # The request in progress is not answered, and did not have this time.
        clock.put_forward(TRUSTED * LONG_S)
        assert not member.proven(member.zookeeper.session)
    eventually(lambda: member.prove(member.zookeeper.session))
    member.close()
    way.close()


def test_what_a_server_grants(zookeeper_root):
    """The time-out granted by ZooKeeper counts, not the requested one."""
    member = Member(ZooKeeper(zookeeper_root, session_timeout_s=10_000.0))
    member.open()
    eventually(lambda: member.zookeeper.session)
    assert member.zookeeper.session_timeout_s == 90.0
    eventually(lambda: member.proven(member.zookeeper.session))
    assert member.certain_s(member.zookeeper.session) <= 60.0
    member.close()
