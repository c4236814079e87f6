"""A session of Spark as a user has it, on this machine."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def make_session(folder: Path, *, parallel_gc: bool = False) -> Any:
    """Return a session as a user has it, with two cores."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # an extra

    # Its processes are started with `-m`, which looks into the current folder first:
    # the checkout must not be mistaken for the package.
    os.environ |= {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONSAFEPATH": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.authenticate.socketTimeout", "120s")  # if it is busy
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    )
    if parallel_gc:
        option = "spark.driver.extraJavaOptions"
        builder = builder.config(option, "-XX:+UseParallelGC")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
