"""A cluster of Spark on this machine, and the executors that run there.

Executors of `local-cluster[…]` are found likewise: all that a process starts is in its
session (setsid).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fix_pipeline import UNIT_S
from fix_random import LONGER
from fix_spark import SETTINGS, spark_environ

if TYPE_CHECKING:
    from collections.abc import Iterator

# Marks of tests that start clusters, which take minutes.
ON_CLUSTERS = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(LONGER == 1, reason="CANAL_TEST_LONGER=2 runs it"),
]
POLL_S = 0.05
CLASSES = "org.apache.spark.deploy"
EXECUTOR = b"CoarseGrainedExecutorBackend"

JVM = SETTINGS["spark.driver.extraJavaOptions"]

# Two executors, both there before the first task.
TWO = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JVM,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    # A task goes to the executor that has time for it.
    "spark.locality.wait": "0",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master and two workers that run."""

    master: str  # its address
    workers: tuple[int, ...]  # their sessions


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Run a master and two workers, each with a core and a gigabyte."""
    environ = os.environ | spark_environ()
    environ |= {
        "SPARK_HOME": str(spark_home()),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JVM,
    }
    with contextlib.ExitStack() as running:

        def start(name: str, *arguments: str) -> tuple[Path, int]:
            """Start a daemon; returns the file of its log, and its session."""
            log = folder / f"{name}{len(list(folder.iterdir()))}.log"
            command = [str(spark_home() / "bin/spark-class"), f"{CLASSES}.{name}"]
            command += [*arguments, "--host", "127.0.0.1", "--port", "0"]
            command += ["--webui-port", "0"]
            with log.open("a") as file:
                process = subprocess.Popen(
                    command,
                    env=environ,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            running.callback(process.wait)
            running.callback(os.killpg, process.pid, signal.SIGKILL)
            return log, process.pid

        log, _ = start("master.Master")
        master = wait_for(log, r"Starting Spark master at (\S+)")
        workers = []
        for _ in range(2):
            log, session = start(
                "worker.Worker", "--cores", "1", "--memory", "1g", master
            )
            wait_for(log, r"Successfully registered with master")
            workers.append(session)
        yield Cluster(master, tuple(workers))


def spark_home() -> Path:
    """Return the folder of the Spark that is installed."""
    import pyspark  # noqa: PLC0415  # an extra

    return Path(pyspark.__file__).parent


def executors(*sessions: int) -> list[int]:
    """Return the executors that run in sessions, the oldest one first."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            session, began = int(words[3]), int(words[19])
            if session in sessions and EXECUTOR in (folder / "cmdline").read_bytes():
                found.append((began, int(folder.name)))
    return [pid for _, pid in sorted(found)]


def wait_for(log: Path, pattern: str) -> str:
    """Wait until a log has a line; return its first group, or all of it."""
    give_up_at = time.monotonic() + 6 * UNIT_S
    while not (found := re.search(pattern, log.read_text())):
        assert time.monotonic() < give_up_at, log.read_text()
        time.sleep(POLL_S)
    return found[found.re.groups]
