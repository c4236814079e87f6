"""The source of a stream of ranges is replaced: each change comes once all the same.

What reads is what a Spark query has in its driver and in its tasks, without Spark.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from fix_failover import BY_SET, BY_TIME, GTID_MODE
from load import Load
from ranged_query import Query

from canal_server.client.range_client import OTHER_EPOCH
from canal_server.errors import PositionError
from canal_server.spark.options.offsets import offset_from_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from fix_failover import Scene


REPLICA_OPTIONS = ("--log-bin=second",)


@pytest.mark.parametrize("by", ["gtid", "set"])
def test_there_and_back(make_scene: Callable[..., Scene], by: str) -> None:
    """The source dies under load, before and after a batch that is planned; twice.

    The second time the server dies as well, and both give way to what is left.
    """
    scene = make_scene({"gtid": GTID_MODE, "set": BY_SET}[by], exact=True)
    scene.pipeline.keep_port()
    query = Query(scene)
    with closing(query):
        for role in ("standby", "master"):
            with Load(scene.writer, 0.01):
                for _ in range(5):
                    query.batch()
            scene.writer.write(20)
            end = query.planned_at_last()
            planned = query.driver.plan(*map(offset_from_json, (query.log, end)))
            before = query.rows(planned)
            scene.die()
            scene.writer.write(5)
            # A task of before, and one that a new process plans.
            assert query.rows(planned) == before
            if role == "master":
                scene.pipeline.kill()
                scene.pipeline.start()
                query.restart()
            query.finish(end)
            with Load(scene.writer, 0.01):
                for _ in range(5):
                    query.batch()
            query.catch_up()
            scene.wait_until_reads(role)
            scene.replicas.rejoin()
            scene.replicas.catch_up()
        epochs = {each["e"] for each in query.log["d"].values()}
        assert (epochs, scene.follower.checker.repeated) == ({2}, 0)


def test_without_sets(make_scene: Callable[..., Scene]) -> None:
    """Where no set gives the position on another server, the query gets an error."""
    scene = make_scene(BY_TIME)
    query = Query(scene)
    with closing(query):
        scene.writer.write(5)
        query.catch_up()
        scene.die()
        scene.writer.write(5)
        with pytest.raises(PositionError, match="its GTID set is unknown") as raised:
            query.catch_up()
        assert getattr(raised.value.__cause__, "code", None) == OTHER_EPOCH
