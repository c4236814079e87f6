"""How a mirror begins Spark, as far as that is decided before there is a JVM."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra `mirror` is not installed")

from pyspark.sql import SparkSession

from canal_server.errors import CanalError, ConfigError
from canal_server.mirror.session import open_session
from canal_server.mirror.settings import (
    CanalSettings,
    LakeSettings,
    MirrorSettings,
    SourceSettings,
)
from canal_server.mysql.settings import Access, Address, Credentials


def settings_with(**spark: str) -> MirrorSettings:
    """Return settings of a mirror with some for Spark."""
    return MirrorSettings(
        name="m",
        canal=CanalSettings(destination="d"),
        source=SourceSettings(
            access=Access(address=Address("h"), credentials=Credentials("u", ""))
        ),
        lake=LakeSettings(path="/lake"),
        tables=(),
        spark={name.replace("_", "."): value for name, value in spark.items()},
    )


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


def test_no_master_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's text tells of a context that was stopped; ours, of which master."""

    def ended(_builder: object) -> None:
        raise RuntimeError(
            "An error occurred while calling None.org.apache.spark.sql.classic."
            "SparkSession.\n: java.lang.IllegalStateException: Cannot call methods on "
            "a stopped SparkContext.\nThis stopped SparkContext was created at:\n"
        )

    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", ended)
    with pytest.raises(CanalError) as caught:
        open_session(settings_with(spark_master="spark://nowhere:7077"))
    assert str(caught.value) == (
        "Spark was ended while it began, as it is when all masters are unresponsive "
        "(see above); spark.master is spark://nowhere:7077"
    )
