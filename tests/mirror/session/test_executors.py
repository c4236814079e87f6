"""Jobs that wait for an executor: when that is reported."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `mirror` is not installed")

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from canal_server.mirror.session.executors import (
    LOOK_S,
    PATIENCE_S,
    WAITING_TEXT,
    Executors,
    waits,
)

PATIENCE_WITH_SPARK_S = 60.0


class Cluster:
    """A session of a cluster, as far as it is asked."""

    def __init__(self, *, is_local: bool = False) -> None:
        self.jobs = [1]
        self.executors = 0
        status = SimpleNamespace(size=lambda: 1 + self.executors)
        java = SimpleNamespace(
            isLocal=lambda: is_local, getExecutorMemoryStatus=lambda: status
        )
        tracker = SimpleNamespace(getActiveJobsIds=lambda: self.jobs)
        self.sparkContext = SimpleNamespace(  # Spark's name
            _jsc=SimpleNamespace(sc=lambda: java), statusTracker=lambda: tracker
        )


def test_jobs_that_wait() -> None:
    """It is reported after a while, until an executor exists or no job waits."""
    cluster, now = Cluster(), 100.0
    looks = Executors(cluster, lambda: now)
    assert looks.problem() == ""
    now += PATIENCE_S
    assert looks.problem() == WAITING_TEXT
    cluster.executors = 1
    now += LOOK_S
    assert looks.problem() == ""
    cluster.executors = 0
    now += LOOK_S
    assert looks.problem() == ""
    now += PATIENCE_S
    assert looks.problem() == WAITING_TEXT
    cluster.jobs = []
    now += LOOK_S
    assert looks.problem() == ""


def test_without_a_cluster() -> None:
    """In local mode no executor is needed."""
    now = 100.0
    looks = Executors(Cluster(is_local=True), lambda: now)
    looks.problem()
    now += PATIENCE_S
    assert looks.problem() == ""


def test_spark_is_asked(spark: Any) -> None:
    """A job that runs in one process has no executor but the driver."""
    context = spark.sparkContext
    assert not waits(context)
    hold = threading.Event()

    def job() -> None:
        context.setInterruptOnCancel(True)  # its process of Python ends, too
        with contextlib.suppress(PySparkException, Py4JJavaError):  # it is cancelled
            spark.range(0, 1, 1, 1).foreach(lambda _: time.sleep(600))

    running = threading.Thread(target=job, daemon=True)
    running.start()
    try:
        for _ in range(round(PATIENCE_WITH_SPARK_S / 0.1)):
            if waits(context):
                break
            hold.wait(0.1)
        else:
            raise AssertionError("the job never began")
    finally:
        context.cancelAllJobs()
        running.join(PATIENCE_WITH_SPARK_S)
    assert Executors(spark).problem() == ""
