"""Cursors in ZooKeeper: both of them end in every way, and delivery goes on."""

from __future__ import annotations

import contextlib
import json
import threading

import pytest
from fix_cluster import SESSION_S
from fix_pipeline import UNIT_S
from fix_random import longer
from load import Load, allow_from, receive_until_broken

from canal_server.doors.zookeeper import ZooKeeper
from canal_server.errors import ClientError
from canal_server.runtime.lifecycle import Stop

WIRING = "classpath:spring/default-instance.xml"
CURSOR = "/otter/canal/destinations/example/1001/cursor"


@pytest.fixture
def stopped(make_pipeline, mysql_server, database, own_zookeeper):
    """Give a pipeline with its cursors in a ZooKeeper of the test's own."""
    pipeline = make_pipeline(mysql_server, database)
    pipeline.configure(
        {
            "canal.zkServers": own_zookeeper.servers,
            "canal.zookeeper.flush.period": 20,
        },
        wiring=WIRING,
    )
    return pipeline


def stored_cursor(servers):
    """Return the cursor in the node, None without one."""
    session = ZooKeeper(servers)
    session.start()
    with contextlib.closing(session):
        session.wait_until_connected(Stop())
        node = session.read(CURSOR)
        return node and json.loads(node.data or b"null")


def runs(status):
    """Return whether the destination runs."""
    return status["running"]


def test_server_killed(stopped, own_zookeeper, rng):
    """Killed under load at any moment, the server goes on at the stored cursor."""
    # The next process waits for the end of the session of the one before.
    session_ms = int(SESSION_S * 1000)
    stopped.configure({"canal.zookeeper.session.timeout.ms": session_ms}, wiring=WIRING)
    stopped.start()
    stopped.wait_for_status(runs)
    writer = stopped.writer(rng)
    checker = stopped.checker(writer)
    with Load(writer):
        for _ in range(longer(2)):
            killer = threading.Timer(rng.uniform(0.3, 1.5), stopped.kill)
            killer.start()
            receive_until_broken(stopped, checker, rng)
            killer.join()
            print(f"killed with {checker.done} done")
            stopped.start()
            stopped.wait_for_status(runs)
            # Not before: what the killed one sent may still have been written.
            allow_from(stored_cursor(own_zookeeper.servers), checker)
    with stopped.client() as client:
        stopped.receive(client, checker)
    assert checker.done == len(writer.transactions)
    assert not stopped.meta_file.exists()


def test_zookeeper_goes_and_comes(stopped, own_zookeeper, rng):
    """Delivery and acks continue without ZooKeeper; what was acked is written later."""
    # So long that the lease is certain while ZooKeeper comes back.
    stopped.configure({"canal.zookeeper.session.timeout.ms": 60_000}, wiring=WIRING)
    stopped.start()
    writer = stopped.writer(rng)
    checker = stopped.checker(writer)
    writer.write(20)
    with stopped.client() as client:
        stopped.receive(client, checker)
        own_zookeeper.kill()
        writer.write(20)
        stopped.receive(client, checker)
        stopped.process.wait_for_log("cannot write the cursors of example, retrying")
        own_zookeeper.restart()
        stopped.process.wait_for_log("resumed writing the cursors of example")
    stopped.stop()
    acked = checker.done
    checker.resume(acked, acked)
    stopped.start()
    writer.write(5)
    with stopped.client() as client:
        stopped.receive(client, checker)
    assert checker.done == len(writer.transactions)


def test_destination_given_up_and_had_again(stopped, own_zookeeper, rng):
    """A client that is silent meanwhile is refused before anything comes again.

    Forbidden: its connection is given entries that it had, without a word.
    """
    session_ms = int(SESSION_S * 1000)
    stopped.configure({"canal.zookeeper.session.timeout.ms": session_ms}, wiring=WIRING)
    stopped.start()
    writer = stopped.writer(rng)
    checker = stopped.checker(writer)
    with stopped.client() as client:
        writer.write(5)
        message = client.get(timeout_s=3 * UNIT_S)
        assert message
        own_zookeeper.kill()
        stopped.process.wait_for_log("destination example lost its lease")
        own_zookeeper.restart()
        stopped.wait_for_status(runs)
        with pytest.raises(ClientError, match="example should start first: it was"):
            client.get(timeout_s=3 * UNIT_S)
        stopped.receive(client, checker)
    assert checker.done == len(writer.transactions)


def test_starts_without_zookeeper(stopped, own_zookeeper, rng):
    """A server that starts first waits and says so, and serves when it may."""
    own_zookeeper.kill()
    stopped.start()
    stopped.process.wait_for_log("waiting for ZooKeeper at 127.0.0.1")
    assert stopped.status()["running"] is False
    own_zookeeper.restart()
    writer = stopped.writer(rng)
    checker = stopped.checker(writer)
    writer.write(5)
    with stopped.client() as client:
        stopped.receive(client, checker)
    assert checker.done == len(writer.transactions)


def test_stops_without_zookeeper(stopped, own_zookeeper):
    """A server that waits for ZooKeeper ends when it is asked to."""
    own_zookeeper.kill()
    stopped.start()
    stopped.process.wait_for_log("waiting for ZooKeeper at 127.0.0.1")
    stopped.stop()
