"""A session of Spark in the tests' process, shared by all of them.

It takes ten seconds or so to begin, hence one for all. Skipped with the reason where
pyspark or Java is absent.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fix_daemon import child_environ

if TYPE_CHECKING:
    from collections.abc import Iterator

SPARK_FIXTURES = ("spark",)
MASTER = "local[2,3]"  # two tasks at a time, each tried three times
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
            item.add_marker("slow")


def spark_environ() -> dict[str, str]:
    """Return an environment in which Spark's processes find what we test."""
    environ = child_environ()
    tests = str(Path(__file__).parent)
    return environ | {
        "PYTHONPATH": os.pathsep.join((environ["PYTHONPATH"], tests)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def skip_without_spark() -> None:
    """Skip the test, with the reason, where Spark cannot run."""
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
    if not shutil.which("java") and not os.environ.get("JAVA_HOME"):
        pytest.skip("no java, which Spark runs on")


def make_session(folder: Path, **settings: str) -> Any:
    """Return a session of this process; its files go below the folder."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # an extra

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
