"""Iterating clients find the server of a cluster by ZooKeeper, and follow it."""

from __future__ import annotations

import pytest
from fix_pipeline import UNIT_S
from iterating_follower import following

from canal_server.client import AsyncCanalClient, CanalClient


@pytest.mark.parametrize("kind", [CanalClient, AsyncCanalClient])
@pytest.mark.parametrize("whole", [False, True])
def test_take_over(cluster, rng, kind, whole):
    """1. one is killed; 2. two is stopped; 3. one is asked to give up.

    The client goes to the server that takes over each time, and has every change at
    least once and in order, in whole transactions where it requests that.
    """
    one, two = cluster.one, cluster.two
    options = {
        "host": f"zk://{cluster.zookeeper.servers}",
        "whole_transactions": whole,
        "batch_size": rng.choice((1, 7, 200)),
    }
    with following(one.writer(rng), kind, **options) as follower:
        follower.wait_for_more()
        assert follower.servers == [cluster.address(one)]
        one.kill()
        follower.wait_for_server(cluster.address(two))
        follower.wait_for_more()
        one.start()
        one.process.wait_for_log("is run by")
        two.stop()
        follower.wait_for_server(cluster.address(one))
        follower.wait_for_more()
        two.start()
        two.process.wait_for_log("is run by")
        # Once is enough, unless the machine pauses for longer than the delay.
        for _ in range(6):
            cluster.ask_for(two)
            if follower.has_server(cluster.address(two), UNIT_S):
                break
        follower.wait_for_more()
    assert follower.servers[-1] == cluster.address(two)


@pytest.mark.parametrize("kind", [CanalClient, AsyncCanalClient])
def test_list_of_addresses(cluster, rng, kind):
    """A list works in any order: the server that stands by refuses, the other serves.

    After a take-over it is the other way round.
    """
    one, two = cluster.one, cluster.two
    host = f"{cluster.address(two)},{cluster.address(one)}"
    with following(one.writer(rng), kind, host=host, batch_size=7) as follower:
        follower.wait_for_more()
        assert follower.servers[-1] == cluster.address(one)
        one.kill()
        follower.wait_for_server(cluster.address(two))
        follower.wait_for_more()


@pytest.mark.parametrize("kind", [CanalClient, AsyncCanalClient])
def test_zookeeper_dies(cluster, own_zookeeper, rng, kind):
    """Without ZooKeeper the client keeps what it has; after it, it finds the other."""
    one, two = cluster.one, cluster.two
    host = f"zk://{own_zookeeper.servers}"
    with following(
        one.writer(rng), kind, host=host, batch_size=7, whole_transactions=True
    ) as follower:
        follower.wait_for_more()
        own_zookeeper.kill()
        own_zookeeper.restart()
        follower.wait_for_more()
        one.kill()
        follower.wait_for_server(cluster.address(two))
        follower.wait_for_more()
