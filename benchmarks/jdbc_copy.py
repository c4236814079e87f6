"""Copies a table into Parquet files by Spark's own JDBC reader, to compare with.

    python benchmarks/jdbc_copy.py JOB.json

A process of its own, so that its memory and processor time can be measured alone.
The driver is MariaDB's from Debian, which reads MySQL as well. The job: url, user,
password, table, key, rows, tasks, folder. Prints seconds and rows, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from server_folders import Unavailable
from server_packages import package_tree

FETCH_ROWS = 10_000  # at a time; else the driver takes a whole answer into memory


def find_driver() -> Path:
    """Return the driver's archive. Raises Unavailable."""
    tree = package_tree("mariadb-java", "libmariadb-java")
    found = sorted(tree.glob("usr/share/java/mariadb-java-client*.jar"))
    if not found:
        raise Unavailable(
            f"{tree} holds no JDBC driver: remove it, it will be downloaded again"
        )
    return found[0].resolve()


def url_of(host: str, port: int, schema: str) -> str:
    """Return where the driver finds a schema.

    Spark quotes names as the standard has it where it does not know that this is MySQL.
    """
    options = "allowPublicKeyRetrieval=true&sessionVariables=sql_mode='ANSI_QUOTES'"
    return f"jdbc:mariadb://{host}:{port}/{schema}?{options}"


def copy(job: dict[str, Any]) -> tuple[float, int]:
    """Copy the table; returns the seconds that it took, and the rows that arrived."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # an extra

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraClassPath", job["driver"])
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    started = time.monotonic()
    frame = (
        session.read.format("jdbc")
        .option("driver", "org.mariadb.jdbc.Driver")
        .option("url", job["url"])
        .option("user", job["user"])
        .option("password", job["password"])
        .option("dbtable", job["table"])
        .option("fetchsize", FETCH_ROWS)
        .option("partitionColumn", job["key"])
        .option("lowerBound", 1)
        .option("upperBound", job["rows"])
        .option("numPartitions", job["tasks"])
        .load()
    )
    frame.write.mode("overwrite").option("compression", "zstd").parquet(job["folder"])
    seconds = time.monotonic() - started
    rows = session.read.parquet(job["folder"]).count()
    session.stop()
    return seconds, rows


def main() -> int:
    """Do the job."""
    job = json.loads(Path(sys.argv[1]).read_text())
    seconds, rows = copy(job)
    print(json.dumps({"seconds": seconds, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
