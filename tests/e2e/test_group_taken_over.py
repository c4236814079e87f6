"""Two servers share a group of sources: one ends, the other one goes on in each.

Where a client stands in each source is in ZooKeeper, so nothing is lost of any of them
and the order of each is kept.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from fix_cluster import SESSION_S
from fix_group import GROUP_WIRING
from fix_random import longer
from load import receive_until_broken

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fix_group import Group
    from fix_pipeline import Pipeline
    from servers import Server

    from canal_server.doors.zookeeper import ZooKeeper

RUNS = "destination example is run by this server"


class Shared:
    """A group and the two servers that may run it; one of them does."""

    def __init__(self, group: Group, other: Pipeline) -> None:
        self.group = group
        self.waiting = other

    def wait_until_runs(self) -> None:
        """Wait until the server that clients are sent to has the lease, and reads."""
        self.group.pipeline.process.wait_for_log(RUNS)
        self.group.wait_until_running()

    def take_over(self) -> Pipeline:
        """Let clients go to the other server from now on; return the one of before."""
        before = self.group.pipeline
        self.group.pipeline, self.waiting = self.waiting, before
        return before


@pytest.fixture
def shared(
    make_group: Callable[..., Group],
    make_pipeline: Callable[..., Pipeline],
    *,
    mysql_server: Server,
    mariadb_server: Server,
    database: str,
    zookeeper_root: str,
    zookeeper: ZooKeeper,
) -> Shared:
    """Give a MySQL and a MariaDB as one destination, which the first server runs."""
    settings = {
        "canal.zkServers": zookeeper_root,
        "canal.zookeeper.flush.period": 20,
        "canal.zookeeper.session.timeout.ms": int(SESSION_S * 1000),
        "canal.zookeeper.takeover.delay.ms": 200,
    }
    group = make_group(database, [mysql_server, mariadb_server], settings)
    group.nodes = zookeeper
    other = make_pipeline(mysql_server, database)
    other.configure(
        dict.fromkeys(other.settings) | group.pipeline.settings,
        wiring=GROUP_WIRING,
    )
    group.pipeline.start()
    group.pipeline.process.wait_for_log(RUNS)
    other.start()
    made = Shared(group, other)
    made.wait_until_runs()
    return made


def test_killed(shared: Shared, rng: random.Random) -> None:
    """Killed under load, each source resumes at its stored position on the other."""
    group = shared.group
    for _ in range(longer(1)):
        with group.load():
            killer = threading.Timer(rng.uniform(0.3, 1.0), group.pipeline.kill)
            killer.start()
            receive_until_broken(group.pipeline, group, rng)
            killer.join()
        killed = shared.take_over()
        shared.wait_until_runs()
        # Not before: what the killed one sent may still have been written.
        for branch in group.branches:
            group.resume(branch, exact=True)
        killed.start()
    with group.pipeline.client() as client:
        group.receive(client)
    assert set(group.positions()) == {1, 2}
    for branch in group.branches:
        assert branch.checker.done == len(branch.writer.transactions)
        print(
            f"master{branch.number}: {branch.checker.done} transactions,"
            f" {branch.checker.repeated} changes arrived again"
        )


def test_stopped(shared: Shared) -> None:
    """Stopped, it leaves all positions behind: the other one repeats nothing acked."""
    group = shared.group
    for _ in range(2):
        with group.pipeline.client() as client:
            for branch in group.branches:
                branch.writer.write(10)
            group.receive(client)
        stopped = group.pipeline
        stopped.stop()
        shared.take_over()
        for branch in group.branches:
            done = branch.checker.done
            branch.checker.resume(done, done)
            branch.writer.write(5)
        shared.wait_until_runs()
        # Not before: one that starts need not wait like one that takes over.
        stopped.start()
    with group.pipeline.client() as client:
        group.receive(client)
    assert [branch.checker.done for branch in group.branches] == [30, 30]
    assert [branch.checker.repeated for branch in group.branches] == [0, 0]
