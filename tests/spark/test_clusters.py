"""Spark on clusters and with Spark Connect: the same rows as in one process."""

from __future__ import annotations

import json
import time

import pytest
from fix_clusters import ON_CLUSTERS, TWO, cluster
from fix_pipeline import DESTINATION, UNIT_S
from fix_spark import run_job, skip_without_spark
from spark_sink import Sink

pytestmark = ON_CLUSTERS
PATIENCE_S = 60 * UNIT_S
ROWS = 12_000  # a range is cut where 5,000 rows have come


@pytest.fixture
def job(make_pipeline, mysql_server, database, rng, tmp_path):
    """Give a job on a running pipeline, with rows for two tasks and more."""
    skip_without_spark()
    pipeline = make_pipeline(mysql_server, database)
    pipeline.start()
    begun_s = time.time()
    file, offset = mysql_server.binlog_position()
    writer = pipeline.writer(rng)
    writer.write(1, rows=ROWS // 2)  # cut inside of it
    writer.write(60, rows=ROWS // 120)
    return Job(pipeline, writer, f"file:{file}:{offset}", tmp_path, begun_s)


class Job:
    """What `spark_job.py` does with some session."""

    def __init__(self, pipeline, writer, begin, folder, begun_s) -> None:
        self.begun_s = begun_s
        self.writer = writer
        self.folder = folder
        self.source = pipeline.source
        self.trace, self.faults = folder / "trace", folder / "faults"
        self.trace.touch()
        self.faults.touch()
        self.options = {
            "servers": f"127.0.0.1:{pipeline.server_port}",
            "destination": DESTINATION,
            "startingPosition": begin,
            "minPartitionRows": "1",
            "pollTimeoutMs": "100",
            "_trace": str(self.trace),
            "_faults": str(self.faults),
        }

    def run(self, session) -> None:
        """Run it, and compare the received rows with the written ones."""
        job = {
            "session": session,
            "options": self.options,
            "table": self.writer.name,
            "folder": str(self.folder),
        }
        assert run_job("spark_job.py", job, self.folder, PATIENCE_S) == 0
        result = json.loads((self.folder / "result.json").read_text())
        changes = [each for some in self.writer.transactions for each in some]
        updates = sum(each.kind == "UPDATE" for each in changes)
        table = [list(row) for row in self.rows()]
        assert result["read"] == table
        assert result["streamed"] == table
        assert result["generic"] == len(changes)
        assert result["typed"] == len(changes) + updates
        metrics = result["metrics"]
        assert metrics["rows_total"] >= len(changes)  # a key that changes is two rows
        assert metrics["failures_total"] == 0
        # The times of the binlog are whole seconds.
        newest_s = metrics["newest_change_timestamp_seconds"]
        assert self.begun_s - 1 <= newest_s <= time.time()
        Sink(self.folder / "sink.db").check(self.writer)

    def rows(self):
        """Return the table as it is."""
        return self.source.execute(f"SELECT * FROM {self.writer.name} ORDER BY id")

    def executors(self):
        """Return the executors that have read."""
        calls = map(json.loads, self.trace.read_text().splitlines())
        return {each["executor"] for each in calls if each["call"] == "read"}


def test_two_executors(job) -> None:
    """Both read; one that is killed in the middle of a part is replaced."""
    job.faults.write_text("read.batch 2 orphan\n")
    job.run({"spark.master": "local-cluster[2,1,1024]"} | TWO)
    assert len(job.executors()) >= 3


def test_connect(job) -> None:
    """Through Spark Connect the source is found, registered and used likewise."""
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    job.run({"remote": "local[2]"})


def test_standalone_cluster(job) -> None:
    """A master and two workers, each in its own process: both read."""
    with cluster(job.folder) as started:
        job.run({"spark.master": started.master} | TWO)
    assert len(job.executors()) >= 2
