"""Spark on clusters and behind Spark Connect: the same rows as in one process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from fix_pipeline import DESTINATION, UNIT_S
from fix_random import LONGER
from fix_spark import run_job, skip_without_spark, spark_environ
from spark_sink import Sink

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(LONGER == 1, reason="CANAL_TEST_LONGER=2 runs it"),
]
PATIENCE_S = 60 * UNIT_S
POLL_S = 0.05
ROWS = 12_000  # a range is cut where 5,000 rows have come
CLASSES = "org.apache.spark.deploy"

# Two executors, both there before the first task.
TWO = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    # A task goes to the executor that has time for it.
    "spark.locality.wait": "0",
}


@pytest.fixture
def job(make_pipeline, mysql_server, database, rng, tmp_path):
    """Give a job on a running pipeline, with rows for two tasks and more."""
    skip_without_spark()
    pipeline = make_pipeline(mysql_server, database)
    pipeline.start()
    file, offset = mysql_server.binlog_position()
    writer = pipeline.writer(rng)
    writer.write(1, rows=ROWS // 2)  # cut inside of it
    writer.write(60, rows=ROWS // 120)
    return Job(pipeline, writer, f"file:{file}:{offset}", tmp_path)


class Job:
    """What `spark_job.py` does with some session."""

    def __init__(self, pipeline, writer, begin, folder) -> None:
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
        """Run it, and compare what came with what was written."""
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
    """A master and two workers, each a process of its own: both read."""
    with cluster(job.folder) as master:
        job.run({"spark.master": master} | TWO)
    assert len(job.executors()) >= 2


@contextlib.contextmanager
def cluster(folder):
    """Run a master and two workers; yields the master's address."""
    import pyspark  # noqa: PLC0415  # an extra

    home = Path(pyspark.__file__).parent
    environ = os.environ | spark_environ()
    environ |= {
        "SPARK_HOME": str(home),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with contextlib.ExitStack() as running:

        def start(name, *arguments):
            """Start a daemon; returns the file of its log."""
            log = folder / f"{name}{len(list(folder.iterdir()))}.log"
            command = [home / "bin/spark-class", f"{CLASSES}.{name}", *arguments]
            command += ["--host", "127.0.0.1", "--webui-port", "0", "--port", "0"]
            with log.open("a") as file:
                process = subprocess.Popen(
                    command, env=environ, stdout=file, stderr=file
                )
            running.callback(process.wait)
            running.callback(process.kill)
            return log

        master = wait_for(start("master.Master"), r"Starting Spark master at (\S+)")
        for _ in range(2):
            log = start("worker.Worker", "--cores", "1", "--memory", "1g", master)
            wait_for(log, r"Successfully registered with master")
        yield master


def wait_for(log, pattern):
    """Wait until a log has a line; return its first group, or all of it."""
    give_up_at = time.monotonic() + 6 * UNIT_S
    while not (found := re.search(pattern, log.read_text())):
        assert time.monotonic() < give_up_at, log.read_text()
        time.sleep(POLL_S)
    return found[found.re.groups]
