"""The right to run a destination: one contract, and how a cluster shares it."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from cluster_clock import Clock
from fix_proxy import Proxy
from fix_store import eventually, in_thread
from fix_zookeeper import end_session

from canal_server.doors.zookeeper import ZooKeeper
from canal_server.errors import ZooKeeperUnavailable
from canal_server.ha.instance_lease import ZooKeeperLease
from canal_server.ha.membership import Membership
from canal_server.ha.single import SingleNode
from canal_server.model.running import Running, decode
from canal_server.model.znodes import candidate_path, lease_path, running_path
from canal_server.runtime.lifecycle import Stop

LONG_S = 60.0
SESSION_S = 9.0  # after two thirds of it a dead connection is noticed
RUNNING = running_path("example")
ONE, TWO = "10.0.0.1:11111", "10.0.0.2:11111"


class Server:
    """A server that competes, with its own session."""

    def __init__(self, servers, address, *, session_s=SESSION_S, delay_s=0.0):
        self.clock = Clock()
        zookeeper = ZooKeeper(servers, session_timeout_s=session_s)
        self.membership = Membership(zookeeper, clock_s=self.clock)
        self.zookeeper = zookeeper
        self.stop = Stop()
        self.lease = ZooKeeperLease(
            "example", self.membership, lambda: address, takeover_delay_s=delay_s
        )
        self.news = threading.Semaphore(0)
        self.lease.open(self.news.release)

    def acquire(self):
        """Compete in a separate thread."""
        return in_thread(self.lease.acquire, self.stop)

    def wait_until_lost(self):
        """Hold it, in a separate thread."""
        return in_thread(self.lease.wait_until_lost, self.stop)

    def close(self):
        """End it, like a server that is stopped."""
        self.stop.request()
        self.lease.wake()
        self.lease.release()
        self.lease.close()


@pytest.fixture
def serve(zookeeper_root):
    """Return a function that makes servers on one ZooKeeper, ended after the test."""
    made = []

    def make(address, *, servers=zookeeper_root, **options):
        made.append(Server(servers, address, **options))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture(params=["single", "zookeeper"])
def lease(request):
    """Return an opened lease for which no other server competes."""
    if request.param == "single":
        lease = SingleNode()
        lease.open(lambda: None)
        yield lease
        lease.close()
    else:
        yield request.getfixturevalue("serve")(ONE).lease


class TestContract:
    """The contract of every lease."""

    def test_again_and_again(self, lease):
        """Without competition it is granted, held, released, and granted again."""
        for _ in range(3):
            stop = Stop()
            assert lease.acquire(stop)
            assert lease.held()
            kept = in_thread(lease.wait_until_lost, stop)
            assert not kept.done()
            stop.request()
            lease.wake()
            assert kept.result(LONG_S) == ""
            lease.release()

    def test_a_stop(self, lease):
        """A server that is to stop does not get it."""
        stop = Stop()
        stop.request()
        assert not lease.acquire(stop)
        lease.release()


class TestCluster:
    """Servers that share a destination."""

    def test_one_has_it(self, serve, zookeeper):
        """The first one gets it; the others know the owner and follow after it."""
        one = serve(ONE)
        assert one.acquire().result(LONG_S)
        assert one.lease.owner == ONE
        node = zookeeper.read(RUNNING)
        assert node.data == b'{"active":true,"address":"10.0.0.1:11111"}'
        assert node.owner == one.zookeeper.session
        two = serve(TWO)
        waiting = two.acquire()
        eventually(lambda: two.lease.owner == ONE)
        assert not waiting.done()
        assert not two.lease.held()
        one.lease.release()
        assert not one.lease.held()
        assert waiting.result(LONG_S)
        assert two.lease.held()
        assert decode(zookeeper.read(RUNNING).data) == Running(TWO)

    def test_its_status(self, serve):
        """It shows whether it is held, until when that is certain, and the session."""
        one = serve(ONE)
        assert one.acquire().result(LONG_S)
        held = one.lease.status()
        assert held["held"] is True
        assert 0 < held["certain_s"] <= one.zookeeper.session_timeout_s
        session = held["zookeeper"]
        assert session["servers"] == one.zookeeper.servers
        assert (session["state"], session["expired"]) == ("connected", 0)
        one.lease.release()
        released = one.lease.status()
        assert (released["held"], released["certain_s"]) == (False, 0.0)

    def test_who_may_run_it(self, serve, zookeeper):
        """Each server registers for clients before it holds anything."""
        one, two = serve(ONE), serve(TWO)
        for address in (ONE, TWO):
            path = candidate_path("example", address)
            eventually(partial(zookeeper.read, path))
            assert zookeeper.read(f"/otter/canal/cluster/{address}") is not None
        assert zookeeper.read(RUNNING) is None
        del one, two

    def test_a_fence_stands_as_long_as_it_is_held(self, serve, zookeeper):
        """The node that protects writes of cursors exists while the lease is held."""
        one = serve(ONE)
        assert one.acquire().result(LONG_S)
        fence = lease_path("example", one.zookeeper.session)
        assert zookeeper.read(fence).owner == one.zookeeper.session
        one.lease.release()
        assert zookeeper.read(fence) is None

    def test_a_session_ends(self, serve):
        """A lost session is a lost lease, with or without another server.

        Without another server it is acquired again at once.
        """
        one = serve(ONE, delay_s=LONG_S)
        assert one.acquire().result(LONG_S)
        for _ in range(2):
            kept = one.wait_until_lost()
            end_session(one.zookeeper)
            assert kept.result(LONG_S)
            assert not one.lease.held()
            one.lease.release()
            assert one.acquire().result(LONG_S)

    def test_another_one_takes_over(self, serve):
        """Once the session of the owner has ended, another server gets it."""
        one, two = serve(ONE), serve(TWO)
        assert one.acquire().result(LONG_S)
        waiting, kept = two.acquire(), one.wait_until_lost()
        eventually(lambda: two.lease.owner == ONE)
        end_session(one.zookeeper)
        assert waiting.result(LONG_S)
        assert kept.result(LONG_S)
        one.lease.release()
        waiting = one.acquire()
        eventually(lambda: one.lease.owner == TWO)
        assert not waiting.done()
        assert two.lease.held()

    def test_the_last_owner_comes_first(self, serve, zookeeper):
        """Others wait before they replace an owner that may return."""
        two = serve(TWO, delay_s=LONG_S)
        zookeeper.create(RUNNING, Running(ONE).encode(), ephemeral=True)
        waiting = two.acquire()
        eventually(lambda: two.lease.owner == ONE)
        zookeeper.delete(RUNNING)
        eventually(lambda: two.lease.owner is None)
        two.lease.wake()
        assert zookeeper.read(RUNNING) is None
        two.clock.put_forward(LONG_S)
        two.lease.wake()
        assert waiting.result(LONG_S)

    @pytest.mark.parametrize("way", ["killed", "stopped"])
    def test_one_of_ours_is_followed_at_once(self, serve, way):
        """There is no delay after a server of ours, which ends the instance itself.

        That is with its session, or before it released the lease.
        """
        one, two = serve(ONE, delay_s=LONG_S), serve(TWO, delay_s=LONG_S)
        assert one.acquire().result(LONG_S)
        kept = one.wait_until_lost()
        waiting = two.acquire()
        eventually(lambda: two.lease.owner == ONE)
        if way == "killed":
            end_session(one.zookeeper)
        else:
            one.stop.request()
            one.lease.wake()
        kept.result(LONG_S)
        if way == "stopped":
            one.lease.release()
        assert waiting.result(LONG_S)  # on a stopped clock
        assert two.lease.held()

    def test_one_of_ours_that_may_still_run_it(self, serve, zookeeper):
        """When a person deletes the node, others wait until its owner has ended.

        Forbidden: both hold it. Its fence shows that; without it, the delay counts.
        """
        one, two = serve(ONE, delay_s=LONG_S), serve(TWO, delay_s=LONG_S)
        assert one.acquire().result(LONG_S)
        fence = lease_path("example", one.zookeeper.session)
        waiting = two.acquire()
        eventually(lambda: two.lease.owner == ONE)
        zookeeper.delete(RUNNING)  # no thread of `one` waits for news
        eventually(lambda: two.lease.owner is None)
        two.lease.wake()
        assert zookeeper.read(RUNNING) is None
        assert not waiting.done()
        zookeeper.delete(fence)
        assert waiting.result(LONG_S)

    def test_one_of_ours_that_never_ends(self, serve, zookeeper):
        """After the delay it is replaced, like a server of another kind."""
        one, two = serve(ONE), serve(TWO, delay_s=LONG_S)
        assert one.acquire().result(LONG_S)
        waiting = two.acquire()
        eventually(lambda: two.lease.owner == ONE)
        zookeeper.delete(RUNNING)
        eventually(lambda: two.lease.owner is None)
        two.clock.put_forward(LONG_S)
        two.lease.wake()
        assert waiting.result(LONG_S)

    def test_what_a_process_before_left(self, serve, zookeeper):
        """A node with this address, of an earlier session, is replaced after a wait.

        Without delay: it was ours.
        """
        zookeeper.create(RUNNING, Running(ONE).encode(), ephemeral=True)
        one = serve(ONE, delay_s=LONG_S)
        waiting = one.acquire()
        eventually(lambda: one.lease.owner == ONE)
        assert not one.lease.held()
        zookeeper.delete(RUNNING)
        assert waiting.result(LONG_S)

    @pytest.mark.parametrize("data", [None, b"not JSON"])
    def test_a_node_that_names_nobody(self, serve, zookeeper, data):
        """It has an unknown owner, and is waited for."""
        zookeeper.create(RUNNING, data, ephemeral=True)
        one = serve(ONE)
        waiting = one.acquire()
        eventually(lambda: one.lease.owner == "an unnamed server")
        zookeeper.delete(RUNNING)
        assert waiting.result(LONG_S)

    @pytest.mark.parametrize(
        "asked", [Running(ONE, active=False), Running(TWO, active=False), Running(TWO)]
    )
    def test_a_person_asks_for_it(self, serve, zookeeper, asked):
        """A server that is asked to step down does, and lets others go first."""
        one = serve(ONE, delay_s=LONG_S)
        assert one.acquire().result(LONG_S)
        kept = one.wait_until_lost()
        node = zookeeper.read(RUNNING)
        zookeeper.write(RUNNING, asked.encode(), node.version)
        assert "was changed to request it" in kept.result(LONG_S)
        assert not one.lease.held()
        one.lease.release()
        assert zookeeper.read(RUNNING) is None
        waiting = one.acquire()
        one.clock.put_forward(LONG_S)
        one.lease.wake()
        assert not waiting.done()
        one.clock.put_forward(LONG_S)
        one.lease.wake()
        assert waiting.result(LONG_S)

    def test_a_person_deletes_it(self, serve, zookeeper):
        """It is lost, and acquired again at once."""
        one = serve(ONE, delay_s=LONG_S)
        assert one.acquire().result(LONG_S)
        kept = one.wait_until_lost()
        zookeeper.delete(RUNNING)
        assert kept.result(LONG_S) == f"{RUNNING} was deleted"
        assert not one.lease.held()
        one.lease.release()
        assert one.acquire().result(LONG_S)

    def test_a_stop_ends_the_waits(self, serve, zookeeper):
        """A server that competes for it or holds it can be stopped."""
        zookeeper.create(RUNNING, Running(TWO).encode(), ephemeral=True)
        one = serve(ONE)
        waiting = one.acquire()
        eventually(lambda: one.lease.owner == TWO)
        one.stop.request()
        one.lease.wake()
        assert waiting.result(LONG_S) is False

    def test_a_stop_before_it_is_known(self, serve, zookeeper, monkeypatch):
        """A node that was created without an answer does not outlast the lease.

        Its session may: other destinations use it.
        """
        one = serve(ONE)
        one.membership.open()  # as another destination
        create = one.zookeeper.create

        def unanswered(path, *rest, **options):
            create(path, *rest, **options)
            if path == RUNNING:
                one.stop.request()
                raise ZooKeeperUnavailable("the answer got lost")

        monkeypatch.setattr(one.zookeeper, "create", unanswered)
        assert one.acquire().result(LONG_S) is False
        assert zookeeper.read(RUNNING).owner == one.zookeeper.session
        one.lease.close()
        assert zookeeper.read(RUNNING) is None
        one.lease.open(lambda: None)  # for the fixture, which closes it
        one.membership.close()


class TestProblem:
    """What keeps every server from acquiring it is shown, with its start."""

    def test_no_answer(self, serve, zookeeper_server):
        """It names the servers, what follows, and the remedy; and it ends."""
        way = Proxy(zookeeper_server.host, zookeeper_server.port)
        one = serve(ONE, servers=f"127.0.0.1:{way.port}")
        assert one.acquire().result(LONG_S)
        assert one.lease.problem() is None
        assert one.lease.status()["error"] is None
        with way.silence():
            one.clock.put_forward(SESSION_S)
            eventually(one.lease.problem)
            problem = one.lease.problem()
            assert f"no answer from ZooKeeper at 127.0.0.1:{way.port}:" in problem.text
            assert "does not know which server does" in problem.text
            assert "start ZooKeeper" in problem.text
            status = one.lease.status()
            assert status["error"] == problem.text
            assert status["error_since_ms"] == problem.since_ms
        way.end_all()
        eventually(lambda: one.lease.problem() is None)
        one.lease.release()
        way.close()

    def test_what_is_refused(self, serve, zookeeper, zookeeper_root):
        """An answer that refuses what is needed is a problem until it is mended."""
        one = serve(ONE, servers=f"{zookeeper_root}/later")
        waiting = one.acquire()
        eventually(one.lease.problem)
        first = one.lease.problem()
        assert "does not exist in ZooKeeper" in first.text
        zookeeper.create("/later")
        assert waiting.result(LONG_S)
        assert one.lease.problem() is None


class TestFencing:
    """A server with an uncertain lease does nothing, long before another has it."""

    def test_after_a_pause(self, serve):
        """At the first check after a pause it is not held; a proof restores it.

        Forbidden: it is held because no thread has noticed yet.
        """
        one = serve(ONE)
        assert one.acquire().result(LONG_S)
        one.clock.put_forward(LONG_S)
        assert not one.lease.held()
        kept = one.wait_until_lost()
        eventually(one.lease.held)
        assert not kept.done()

    def test_cut_off(self, serve, zookeeper_server, zookeeper_root, zookeeper):
        """Without an answer the server steps down while its node still exists.

        When the same session returns, it is acquired again, without delay.
        """
        way = Proxy(zookeeper_server.host, zookeeper_server.port)
        chroot = zookeeper_root.partition("/")[2]
        one = serve(
            ONE,
            servers=f"127.0.0.1:{way.port}/{chroot}",
            delay_s=LONG_S,
        )
        assert one.acquire().result(LONG_S)
        session = one.zookeeper.session
        kept = one.wait_until_lost()
        with way.silence():
            one.clock.put_forward(SESSION_S)
            assert not one.lease.held()
            one.lease.wake()
            reason = kept.result(LONG_S)
            assert reason.startswith("no contact with ZooKeeper for")
            assert zookeeper.read(RUNNING).owner == session
            way.end_all()
        one.lease.release()
        assert one.acquire().result(LONG_S)
        assert one.zookeeper.session == session
        way.close()
