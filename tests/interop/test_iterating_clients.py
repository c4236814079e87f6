"""Iterating clients at the Java server: alone, and in a cluster with one of ours."""

from __future__ import annotations

import pytest
from fix_java_server import with_java_server
from iterating_follower import following

from canal_server.client import AsyncCanalClient, CanalClient

pytestmark = [
    *with_java_server,
    pytest.mark.parametrize("kind", [CanalClient, AsyncCanalClient]),
]


@pytest.mark.parametrize("whole", [False, True])
def test_java_server(mixed, rng, kind, whole):
    """The Java server is killed and stopped; its clients have every change in order."""
    java = mixed.java
    mixed.start(java)
    options = {
        "host": "127.0.0.1",
        "port": java.server_port,
        "whole_transactions": whole,
        "batch_size": rng.choice((1, 7, 200)),
        "ack": rng.choice(("message", "transaction", 0.2)),
    }
    with following(java.writer(rng), kind, **options) as follower:
        for end in (java.kill, java.stop):
            follower.wait_for_more()
            end()
            java.start()
        follower.wait_for_more()


def test_mixed_cluster(mixed, rng, kind):
    """ZooKeeper leads the client from the Java server to ours and back."""
    mixed.go_by_gtid()
    java, ours = mixed.java, mixed.ours
    mixed.start(java, ours)
    host = f"zk://{mixed.zookeeper.servers}"
    with following(ours.writer(rng), kind, host=host) as follower:
        follower.wait_for_more()
        java.kill()
        follower.wait_for_server(mixed.address(ours))
        follower.wait_for_more()
        java.start()
        ours.stop()
        follower.wait_for_server(mixed.address(java))
        follower.wait_for_more()
