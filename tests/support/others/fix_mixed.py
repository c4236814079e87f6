"""A Java server and one of ours that share a destination by ZooKeeper.

::

    def test_x(mixed):
        mixed.start(mixed.java, mixed.ours)
        with mixed.following() as seen:
            mixed.java.kill()
            seen.wait_for_run(mixed.ours)

A client of others, which finds the server by ZooKeeper, is in `fix_followed`.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest
from fix_cluster import DELAY_S, SESSION_S, WIRING, Cluster, observer_of
from fix_java_server import START_S, JavaServer
from server_folders import Unavailable
from zookeepers import PrivateZooKeeper

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fix_pipeline import Pipeline, Settings
    from servers import Server

    from canal_server.doors.zookeeper import ZooKeeper

# The Java server asks for 90 s, always: this ZooKeeper grants less.
JAVA_SESSION_MS = 4000
JAVA_DELAY_S = 5.0  # before the Java server replaces another one
POLL_S = 0.02
# All of it runs on the machine of the test, and the Java server logs each refusal.
PAUSE_S = 0.05
AGAIN_S = 0.25


class MixedCluster(Cluster):
    """A Java server and one of ours with one destination; neither has started."""

    pause_s = PAUSE_S
    again_s = AGAIN_S

    def __init__(
        self,
        java: JavaServer,
        ours: Pipeline,
        zookeeper: ZooKeeper,
        rng: random.Random,
    ) -> None:
        super().__init__([java, ours], [], zookeeper, rng)
        self.java = java
        self.ours = ours

    def configure(self, settings: Settings) -> None:
        """Change settings of the instance of both."""
        for server in self.servers:
            server.configure(settings, wiring=WIRING)

    def go_by_gtid(self) -> None:
        """Have both read by GTID sets, after what is executed now."""
        ((executed, now_s),) = self.ours.source.execute(
            "SELECT @@global.gtid_executed, UNIX_TIMESTAMP()"
        )
        self.configure(
            {
                "canal.instance.gtidon": "true",
                "canal.instance.master.journal.name": None,
                "canal.instance.master.position": None,
                "canal.instance.master.gtid": str(executed).replace("\n", ""),
                # Without one, the Java server's table history does not start.
                "canal.instance.master.timestamp": int(now_s) * 1000,
            }
        )

    def start(self, *servers: Pipeline) -> None:
        """Start servers, so that the first one runs the destination."""
        for server in servers:
            server.start()
            self.wait_until_run_by(servers[0])

    def wait_until_run_by(self, server: Pipeline) -> None:
        """Wait until the node says that this server runs it."""
        self.wait_for(
            lambda: (
                (now := self.running()) is not None
                and now.address == self.address(server)
            ),
            f"a run of {server.conf.name}",
        )

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Look until a condition holds."""
        give_up_at = time.monotonic() + START_S
        while not condition():
            assert time.monotonic() < give_up_at, f"{what} never happened"
            time.sleep(POLL_S)


@pytest.fixture(scope="module")
def hasty_zookeeper() -> Iterator[PrivateZooKeeper]:
    """Give a ZooKeeper in which no session lives long without its owner."""
    try:
        server = PrivateZooKeeper(session_max_ms=JAVA_SESSION_MS).start()
    except Unavailable as error:
        pytest.skip(f"no ZooKeeper: {error}")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def mixed(  # noqa: PLR0917  # fixtures
    java_server_home: Path,
    hasty_zookeeper: PrivateZooKeeper,
    make_pipeline: Callable[..., Pipeline],
    mysql_server: Server,
    database: str,
    tmp_path: Path,
    rng: random.Random,
) -> Iterator[MixedCluster]:
    """Give a Java server and one of ours, in a tree of nodes of their own."""
    with contextlib.ExitStack() as opened:
        admin = observer_of(hasty_zookeeper.servers, opened)
        admin.create(f"/{database}")
        root = f"{hasty_zookeeper.servers}/{database}"
        java = JavaServer(
            java_server_home, root, mysql_server, database, tmp_path / "java"
        )
        opened.callback(java.close)
        ours = make_pipeline(mysql_server, database)
        ours.configure(
            {
                "canal.zkServers": root,
                "canal.zookeeper.flush.period": 20,
                "canal.zookeeper.session.timeout.ms": int(SESSION_S * 1000),
                "canal.zookeeper.takeover.delay.ms": int(DELAY_S * 1000),
            },
            wiring=WIRING,
        )
        opened.callback(ours.close)
        yield MixedCluster(java, ours, observer_of(root, opened), rng)
