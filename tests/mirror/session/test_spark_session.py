"""How a mirror begins Spark, as far as that is decided before there is a JVM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fix_spark import java_home, spark_environ

pytest.importorskip("pyspark", reason="the extra `mirror` is not installed")

from pyspark.sql import SparkSession
from some_settings import settings_of

from canal_server.errors import CanalError, ConfigError
from canal_server.mirror.session.spark_session import open_session, stop_and_log

if TYPE_CHECKING:
    from canal_server.mirror.settings.mirror_settings import MirrorSettings


def settings_with(**spark: str) -> MirrorSettings:
    """Return settings of a mirror with some for Spark."""
    named = {name.replace("_", "."): value for name, value in spark.items()}
    return settings_of("/lake", spark=named)


def test_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is asked for: by the settings or by the environment."""
    for name, value in (
        ("spark_remote", "sc://somewhere"),
        ("spark_api_mode", "connect"),
    ):
        with pytest.raises(ConfigError, match="with Spark Connect"):
            open_session(settings_with(**{name: value}))
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    with pytest.raises(ConfigError, match="SPARK_REMOTE: the mirror writes"):
        open_session(settings_with())


def test_a_stop_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """In one line, and whatever is to be stopped after it is."""

    def fail() -> None:
        raise RuntimeError("the JVM has died\n  at line 1")

    stop_and_log("the stream", fail)
    assert caplog.messages == ["the stream failed during shutdown: the JVM has died"]


ENDING = """
import os, sys, threading
from canal_server.mirror.session.spark_session import end_session, open_session
sys.path.insert(0, {tests!r})
from mirror.session.test_spark_session import settings_with
from pyspark import SparkContext

spark = open_session(settings_with(spark_master="local[1]", spark_driver_memory="512m"))
assert spark.range(3).count() == 3
process = SparkContext._gateway.proc
assert threading.active_count() > 1, "of py4j"
end_session(spark)
assert process.poll() is not None
print(threading.enumerate())
"""


@pytest.mark.spark
@pytest.mark.slow
def test_all_has_ended_before_the_interpreter() -> None:
    """Neither a JVM nor a thread is left that could come back to it."""
    java_home()
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", ENDING.format(tests=tests)],
        env=spark_environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("[<_MainThread(")
    assert line.count("<") == 1
    assert "terminate called" not in done.stderr


def test_no_master_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's text names a stopped context; ours names the master."""

    def ended(_builder: object) -> None:
        raise RuntimeError(
            "An error occurred while calling None.org.apache.spark.sql.classic."
            "SparkSession.\n: java.lang.IllegalStateException: Cannot call methods on "
            "a stopped SparkContext.\nThis stopped SparkContext was created at:\n"
        )

    # What the mirror sets for Spark's processes must not outlive the test.
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", ended)
    with pytest.raises(CanalError) as caught:
        open_session(settings_with(spark_master="spark://nowhere:7077"))
    assert str(caught.value) == (
        "Spark ended while it started, as it does when no master responds (see its log "
        "above); spark.master is spark://nowhere:7077"
    )
