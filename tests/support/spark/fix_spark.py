"""A session of Spark in the tests' process, shared by all of them.

It takes ten seconds or so to begin, hence one for all. Skipped with the reason where
pyspark or Java is absent.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fix_daemon import child_environ
from server_folders import Unavailable
from support_paths import PYTHONPATH, program
from zookeepers import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator

SPARK_FIXTURES = ("spark",)
JAVA_LEAST = 17
MASTER = "local[2,3]"  # two tasks at a time, each tried three times
STARTS_MAX = 5  # of a query
TOO_BUSY = "the machine is too busy for Spark"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.python.authenticate.socketTimeout": "120s",  # a machine may be busy
    # It lives for seconds: what takes long to become fast does not pay.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use Spark."""
    for item in items:
        if set(SPARK_FIXTURES) & set(getattr(item, "fixturenames", ())):
            item.add_marker("spark")
            item.add_marker("spark_session")
            item.add_marker("slow")


def spark_environ() -> dict[str, str]:
    """Return an environment in which Spark's processes find what we test."""
    environ = child_environ()
    return environ | {
        "PYTHONPATH": os.pathsep.join((environ["PYTHONPATH"], PYTHONPATH)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def skip_without_spark() -> None:
    """Skip the test, with the reason, where Spark cannot run."""
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
    java_home()


@functools.cache
def java_home() -> Path:
    """Return the folder of a Java for Spark; skips where there is none.

    It is JAVA_HOME's, else the host's, else one that is unpacked.
    """
    try:
        named = os.environ.get("JAVA_HOME")
        program = Path(named, "bin/java") if named else Path(find_java())
        shown = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=True
        ).stderr
    except (Unavailable, OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no Java, which Spark runs on: {error}")
    version = re.search(r'version "(\d+)', shown)
    if not version or int(version[1]) < JAVA_LEAST:
        pytest.skip(f"Spark needs Java {JAVA_LEAST} or later, {program} is {shown}")
    return program.resolve().parents[1]


def make_session(folder: Path, remote: str | None = None, **settings: str) -> Any:
    """Return a session of this process; its files go below the folder.

    `remote` is where Spark Connect finds it, or the master of a server of its own.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  # an extra

    if remote:
        return SparkSession.builder.remote(remote).getOrCreate()
    builder = SparkSession.builder.master(MASTER).appName("tests")
    settings = SETTINGS | {"spark.local.dir": str(folder / "local")} | settings
    settings["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Give the session."""
    skip_without_spark()
    environ = spark_environ()
    with pytest.MonkeyPatch.context() as patch:
        for key in environ:
            patch.setenv(key, environ[key])
        session = make_session(tmp_path_factory.mktemp("spark"))
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


def was_late(query: Any) -> bool:
    """Return whether a query ended as its process of Python was not there in time.

    Spark waits ten seconds for it, a machine may be busy, and that cannot be set.
    """
    return not query.isActive and "failed to connect back" in str(query.exception())


def finish(writer: Any, patience_s: float) -> None:
    """Run a query that ends by itself, again where it was late."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415  # an extra

    for _ in range(STARTS_MAX):
        query = writer.start()
        try:
            assert query.awaitTermination(patience_s), "it does not end"
        except StreamingQueryException:
            if not was_late(query):
                raise
        else:
            return
    raise AssertionError(TOO_BUSY)


def run_job(script: str, job: dict[str, Any], folder: Path, patience_s: float) -> int:
    """Run a script of the tests with a job in a process of its own; return its end.

    All processes that it leaves behind are killed, also when the patience is over.
    """
    file, log_file = folder / "job.json", folder / "log"
    file.write_text(json.dumps(job))
    command = [sys.executable, str(program(script)), str(file)]
    with (
        log_file.open("a+") as log,
        subprocess.Popen(
            command,
            env=os.environ | spark_environ(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as process,
    ):
        try:
            return process.wait(patience_s)
        finally:
            print(log_file.read_text()[-8000:])  # shown when the test fails
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
