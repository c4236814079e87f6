"""Two servers share a destination: each ends in every way, the other one takes over.

Forbidden in all of it: a change that is lost or out of order, an ack that is accepted
by a server that has lost the lease.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time

import pytest
from fix_cluster import SESSION_S
from fix_pipeline import UNIT_S
from fix_tablemeta_storage import mysql_database

from canal_server.runtime.lifecycle import Stop


@contextlib.contextmanager
def taking_over(seen, server, what):
    """Expect a server to take over, and print how long that took."""
    seen.wait_for_acks(3)
    began_s = time.monotonic()
    yield
    took_s = seen.wait_for_run(server) - began_s
    seen.wait_for_acks(3)
    print(f"{what}: taken over after {took_s:.1f} s; the session has {SESSION_S} s")


def test_paused_and_killed(cluster):
    """One is paused for longer than its session, and goes on then; the other is killed.

    Forbidden: the paused one accepts an ack after the other one did. What it could not
    write any more is no fault of its when it is stopped: the other one goes on there.
    """
    one, two = cluster.one, cluster.two
    with cluster.following() as seen:
        seen.wait_for_run(one)
        with taking_over(seen, two, "paused"):
            one.process.send(signal.SIGSTOP)
        one.process.send(signal.SIGCONT)
        one.process.wait_for_log("destination example lost its lease")
        one.process.wait_for_log(f"is run by {cluster.address(two)}")
        one.stop()
        one.start()
        one.process.wait_for_log(f"is run by {cluster.address(two)}")
        with taking_over(seen, one, "killed"):
            two.kill()
    assert seen.servers() == ["conf0", "conf1", "conf0"]


@pytest.mark.slow
def test_a_common_history(make_cluster, mysql_server, database):
    """A server that is paused keeps nobody from the history that all of them write."""
    with mysql_database(mysql_server) as (access, name):
        cluster = make_cluster(
            SESSION_S,
            {
                "canal.instance.tsdb.url": f"jdbc:mysql://{access.address}/{name}",
                "canal.instance.tsdb.dbUsername": access.credentials.user,
                "canal.instance.tsdb.dbPassword": access.credentials.password,
            },
        )
        one, two = cluster.one, cluster.two
        with cluster.following() as seen:
            seen.wait_for_run(one)
            with taking_over(seen, two, "paused with the history at hand"):
                one.process.send(signal.SIGSTOP)
            one.process.send(signal.SIGCONT)
            mysql_server.execute(f"CREATE TABLE {database}.late (a INT PRIMARY KEY)")
            one.process.wait_for_log(f"is run by {cluster.address(two)}")
            seen.wait_for_acks(3)
        assert not any("is in use by another" in line for line in two.process.log)
        # What still has the database open is not to wait for its end.
        for server in cluster.servers:
            server.stop()


def test_killed_and_started_again(make_cluster):
    """A server that was killed does not wait for the end of its own old session.

    That would take longer than the log is waited for.
    """
    cluster = make_cluster(60.0)
    one, two = cluster.one, cluster.two
    with cluster.following() as seen:
        seen.wait_for_run(one)
        two.stop()
        seen.wait_for_acks(3)
        one.kill()
        one.start()
        one.process.wait_for_log("ended the session with ZooKeeper")
        one.process.wait_for_log("is run by this server")
        seen.wait_for(lambda: len(seen.runs) > 1, "another run")
        seen.wait_for_acks(3)


def test_cut_off_from_mysql(make_cluster, rng):
    """Without a way to MySQL a server keeps the destination, and goes on by itself.

    Dumps are cut amid transactions, then the way is closed; when the server is stopped
    meanwhile the other one takes over, and goes on where clients acked when it is back.
    """
    cluster = make_cluster(SESSION_S, to_source=True)
    one, two = cluster.one, cluster.two
    way = cluster.source_way
    with cluster.following() as seen:
        seen.wait_for_run(one)
        seen.wait_for_acks(3)
        cuts = [rng.randint(100, 20_000) for _ in range(3)]
        print(f"cut after {cuts} bytes")
        with way.cut(*cuts):
            way.wait_for_cuts(len(cuts), 3 * UNIT_S)
        seen.wait_for_acks(3)
        with way.refuse():
            way.end_all()
            one.wait_for_status(lambda status: status.get("state") == "waiting")
            assert cluster.running().address == cluster.address(one)
            assert seen.servers() == ["conf0"]
            one.stop()
            two.process.wait_for_log("is run by this server")
            two.wait_for_status(lambda status: status.get("state") == "waiting")
        seen.wait_for_run(two)
        seen.wait_for_acks(3)
    assert seen.servers() == ["conf0", "conf1"]


def test_cut_off_and_asked_and_stopped(cluster):
    """A server without a way to ZooKeeper gives up before its session can end.

    Then it takes over again when an operator asks the other one to give up, and then it
    is stopped, with all its cursors written.
    """
    one, two = cluster.one, cluster.two
    with cluster.following() as seen:
        seen.wait_for_run(one)
        with cluster.way(one).silence(), taking_over(seen, two, "cut off"):
            line = one.process.wait_for_log("stepping down: no contact with ZooKeeper")
            assert not one.status()["running"]
            received = two.process.wait_for_log("is run by this server")
            (silence_s,) = map(float, re.findall(r"for ([\d.]+) s", line))
            # Where the machine stood still, nobody could give up in time.
            assert line.split()[0] < received.split()[0] or silence_s >= SESSION_S
        with taking_over(seen, one, "asked for"):
            cluster.hand_over(one, seen)
        with taking_over(seen, two, "stopped"):
            one.stop()
    assert seen.servers() == ["conf0", "conf1", "conf0", "conf1"]


def test_zookeeper_goes_and_comes(make_cluster, own_zookeeper):
    """ZooKeeper ends and comes back before the session is at risk: nothing happens."""
    cluster = make_cluster(60.0)
    with cluster.following() as seen:
        seen.wait_for_run(cluster.one)
        own_zookeeper.kill()
        seen.wait_for_acks(3)
        own_zookeeper.restart()
        cluster.one.process.wait_for_log("resumed writing the cursors of example")
        seen.wait_for_acks(3)
        cluster.zookeeper.wait_until_connected(Stop())
        assert cluster.running().address == cluster.address(cluster.one)
    assert len(seen.runs) == 1  # the connection of the client outlived it, too
    assert not any("stepping down" in line for line in cluster.one.process.log)


@pytest.mark.slow
def test_three_zookeepers(cluster_of_three, three_zookeepers):
    """Nothing happens as long as two of three run; with one, nobody delivers.

    Each of them ends once, so the one that a server is connected to does, and the one
    that leads. With most of them stopped, a server cannot know whether it has the
    lease; when they are back, a server delivers again.
    """
    cluster = cluster_of_three
    with cluster.following() as seen:
        seen.wait_for_run(cluster.one)
        for node in three_zookeepers.nodes:
            node.kill()
            seen.wait_for_acks(3)
            node.restart()
            cluster.zookeeper.wait_until_connected(Stop())
            assert cluster.running().address == cluster.address(cluster.one)
        assert len(seen.runs) == 1
        assert not any("stepping down" in line for line in cluster.one.process.log)

        for node in three_zookeepers.nodes[:2]:
            node.kill()
        cluster.one.process.wait_for_log("stepping down: no contact with ZooKeeper")
        assert not any(server.status()["running"] for server in cluster.servers)
        runs, written = len(seen.runs), seen.acks()
        three_zookeepers.nodes[0].restart()
        seen.wait_for(lambda: len(seen.runs) > runs, "a run on two ZooKeepers")
        seen.wait_for_acks(3)
        print(f"fenced after {written} acks; then run by {seen.servers()[-1]}")
