"""What a stream reads from is killed under load: each change is in the sink once.

The source, the server and ZooKeeper are killed while a query continues.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest
from fix_cluster import WIRING
from fix_failover import BY_SET, GTID_MODE
from fix_pipeline import DESTINATION, UNIT_S
from fix_random import LONGER, longer
from fix_spark import was_late
from load import Load
from spark_sink import Sink, expected_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ledger import Writer

pytestmark = pytest.mark.timeout(900)
REPLICA_OPTIONS = ("--log-bin=second",)
PATIENCE_S = 20 * UNIT_S
POLL_S = 0.05
PAUSE_S = 0.2  # between two writes of the load


class Query:
    """A query into a sink that stores each batch once."""

    def __init__(self, spark: Any, folder: Path, options: dict[str, str]) -> None:
        self.sink = Sink(folder / "sink.db")
        self._checkpoint = folder / "checkpoint"
        self._spark = spark
        self._options = {
            "destination": DESTINATION,
            "subscription": "lake",
            "maxRowsPerTrigger": "500",
            "pollTimeoutMs": "100",
            "retryTimeoutMs": str(round(1000 * PATIENCE_S)),
            **options,
        }
        self.start()

    def start(self) -> None:
        """Start it, where the one before has come to."""
        self.query = (
            self._spark.readStream.format("canal")
            .options(**self._options)
            .load()
            .writeStream.foreachBatch(self.sink.apply)
            .option("checkpointLocation", str(self._checkpoint))
            .start()
        )

    def wait_for(self, rows: int) -> None:
        """Wait until so many rows have come, while the query runs."""
        give_up_at = time.monotonic() + PATIENCE_S
        while self.sink.count() < rows:
            if not self.query.isActive:
                why = f"the query ended: {self.query.exception()}"
                assert was_late(self.query), why
                self.start()
            shown = f"{self.sink.count()} of {rows} rows arrived"
            assert time.monotonic() < give_up_at, shown
            time.sleep(POLL_S)

    def wait_for_more(self, rows: int = 100) -> None:
        """Wait until some more rows have come."""
        self.wait_for(self.sink.count() + rows)

    def check(self, writer: Writer) -> None:
        """Wait for all that was written, and compare it."""
        self.wait_for(expected_rows(writer))
        self.sink.check(writer)
        batches = self.sink.batches()
        print(f"{self.sink.count()} rows in {len(batches)} batches, each once")


@pytest.fixture
def make_query(spark: Any, tmp_path: Path) -> Iterator[Callable[..., Query]]:
    """Give `make(server, …)`: a query that runs, from the source's end on."""
    made: list[Query] = []

    def make(*servers: Any, **options: str) -> Query:
        file, offset = servers[0].source.binlog_position()
        addresses = ",".join(f"127.0.0.1:{each.server_port}" for each in servers)
        begin = f"file:{file}:{offset}"
        made.append(
            Query(
                spark,
                tmp_path,
                {"servers": addresses, "startingPosition": begin, **options},
            )
        )
        return made[-1]

    yield make
    for each in made:
        with contextlib.suppress(Exception):  # one that failed says it again
            each.query.stop()


@pytest.mark.skipif(
    LONGER == 1,
    reason="CANAL_TEST_LONGER=2 tries it; test_range_mapping.py is without Spark",
)
@pytest.mark.parametrize("by", ["gtid", "set"])
def test_the_source_is_replaced(replicas, make_scene, make_query, by) -> None:
    """The source dies under load and its replica takes over; then the reverse."""
    scene = make_scene({"gtid": GTID_MODE, "set": BY_SET}[by])
    query = make_query(scene.pipeline)
    for role in ("standby", "master"):
        with Load(scene.writer, PAUSE_S):
            query.wait_for_more()
        scene.writer.write(50)
        scene.die()
        with Load(scene.writer, PAUSE_S):
            query.wait_for_more()
        query.check(scene.writer)
        scene.wait_until_reads(role)
        scene.replicas.rejoin()
        scene.replicas.catch_up()
    # A new query resumes from an old checkpoint.
    query.query.stop()
    scene.writer.write(20)
    scene.die()
    scene.writer.write(20)
    query.start()
    query.check(scene.writer)
    scene.replicas.rejoin()


@pytest.mark.mysql
def test_the_source_is_killed(make_pipeline, own_server, make_query, rng) -> None:
    """MySQL is killed in the midst of batches, and comes back."""
    server = own_server("mysql", ())
    server.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
    pipeline = make_pipeline(server, "shop")
    pipeline.start()
    writer = pipeline.writer(rng)
    query = make_query(pipeline, minPartitionRows="20")
    for _ in range(longer(1)):
        with Load(writer, PAUSE_S):
            query.wait_for_more()
        writer.write(100)  # read while it dies
        server.kill()
        server.restart()
    query.check(writer)


def test_another_server_takes_over(make_cluster, make_query, rng) -> None:
    """The server that is asked is killed, and the other one serves; and back again."""
    cluster = make_cluster(3.0)
    one, two = cluster.servers
    one.keep_port()
    one.configure({}, wiring=WIRING)
    writer = one.writer(rng)
    query = make_query(one, two)
    with Load(writer, PAUSE_S):
        query.wait_for_more()
        one.kill()
        query.wait_for_more()
        two.process.wait_for_log("is run by this server")
        one.start()
        query.wait_for_more()
        two.kill()
        query.wait_for_more()
    query.check(writer)


def test_zookeeper_goes_and_comes(make_cluster, own_zookeeper, make_query, rng) -> None:
    """ZooKeeper is killed under load and comes back."""
    cluster = make_cluster(3.0)
    writer = cluster.one.writer(rng)
    query = make_query(*cluster.servers)
    with Load(writer, PAUSE_S):
        for _ in range(longer(1)):
            query.wait_for_more()
            own_zookeeper.kill()
            own_zookeeper.restart()
            query.wait_for_more()
    query.check(writer)
