"""Measures the Spark source: rows per second, and how soon a commit is in Spark.

    python benchmarks/spark_source.py [--rows N] [--seconds S]

A private MySQL, canal-server as a process and Spark as local[2] share the machine. The
load is `inserts`, into the sink `noop`; a first, smaller read warms Spark up. Then
single rows are written at a steady pace, and `foreachBatch` tells when each came.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loads import LOADS, SCHEMA, SERVER_OPTIONS, TABLE, Writer, insert_row
from server_process import DESTINATION, ServerProcess, require_package

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loads import Range
    from servers import Server

TARGETS = {"typed": 300_000, "generic": 150_000}  # rows/s
PER_SECOND = 200
PATIENCE_S = 120.0


class Reads:
    """Reads of one load by a Spark session."""

    def __init__(self, spark: Any, load: Range, address: tuple[str, int]) -> None:
        self.spark = spark
        self.load = load
        self.options = {
            "servers": "{}:{}".format(*address),
            "destination": DESTINATION,
            "startingPosition": f"file:{load.file}:{load.position}",
            "endingPosition": f"file:{load.end_file}:{load.end}",
            "maxPartitions": "2",
        }
        self.kinds = {
            "typed": {"table": f"{SCHEMA}.{TABLE}"},
            "generic": {"filter": rf"{SCHEMA}\.{TABLE}"},
        }

    def rate(self, kind: str) -> float:
        """Return rows per second of a batch read into nothing."""
        options = self.options | self.kinds[kind]
        frame = self.spark.read.format("canal").options(**options).load()
        begun = time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        return self.load.rows / (time.monotonic() - begun)

    def stream_rate(self, kind: str, folder: Path) -> float:
        """Return rows per second of a stream's batches, the first one left out."""
        options = self.options | self.kinds[kind]
        del options["endingPosition"]
        options |= {"subscription": kind, "maxRowsPerTrigger": str(self.load.rows // 4)}
        query = (
            self.spark.readStream.format("canal")
            .options(**options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(folder / kind))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [each for each in query.recentProgress if each["numInputRows"]][1:]
        rows = sum(each["numInputRows"] for each in batches)
        busy_ms = sum(each["durationMs"]["triggerExecution"] for each in batches)
        return rows / busy_ms * 1000 if batches else float("nan")


def delays_of(spark: Any, server: Server, options: dict[str, str], count: int) -> Any:
    """Return the ms from commit to `foreachBatch` of rows, and of whole batches."""
    written: dict[int, float] = {}
    came: dict[int, float] = {}

    def apply(frame: Any, _: int) -> None:
        rows = frame.select("id").collect()
        now = time.monotonic()
        came.update((int(row["id"]), now) for row in rows)

    first = 10_000_001  # behind those of the load

    def write() -> None:
        with server.connect(database=SCHEMA) as connection:
            cursor = connection.cursor()
            begun = time.monotonic()
            for number in range(count):
                pause = begun + number / PER_SECOND - time.monotonic()
                time.sleep(max(0.0, pause))
                insert_row(cursor, first + number)
                written[first + number] = time.monotonic()

    with tempfile.TemporaryDirectory(prefix="canal-bench-") as folder:
        query = (
            spark.readStream.format("canal")
            .options(**options)
            .load()
            .writeStream.foreachBatch(apply)
            .option("checkpointLocation", folder)
            .start()
        )
        write_until(query)
        writer = threading.Thread(target=write)
        writer.start()
        writer.join()
        give_up_at = time.monotonic() + PATIENCE_S
        while len(came) < count and time.monotonic() < give_up_at:
            time.sleep(0.1)
        times = [
            each["durationMs"]["triggerExecution"]
            for each in query.recentProgress
            if each["numInputRows"]
        ]
        query.stop()
    delays = [came[key] - written[key] for key in came if key in written]
    return [1000 * each for each in delays], times


def write_until(query: Any) -> None:
    """Wait until a query is idle for the first time: it has its place then."""
    give_up_at = time.monotonic() + PATIENCE_S
    while query.lastProgress is None and time.monotonic() < give_up_at:
        time.sleep(0.1)


def require_spark() -> None:
    """Raise SystemExit, with what to do, where Spark cannot run."""
    if importlib.util.find_spec("pyspark") is None:
        raise SystemExit("pyspark is absent: pip install 'canal-server[spark]'")
    if not shutil.which("java") and not os.environ.get("JAVA_HOME"):
        raise SystemExit("Spark runs on Java, which is absent: install 17 or 21")


def make_session(folder: Path) -> Any:
    """Return a session as a user has it, with two cores."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # an extra

    # Its processes are started with `-m`, which looks into the current folder first:
    # the checkout must not be taken for the package.
    os.environ |= {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONSAFEPATH": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.authenticate.socketTimeout", "120s")  # if it is busy
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def report(reads: Reads, folder: Path) -> None:
    """Measure and print the rates."""
    for kind in reads.kinds:
        reads.rate(kind)  # warms up
        rates = f"{reads.rate(kind):12,.0f} rows/s read at once"
        rates += f", {reads.stream_rate(kind, folder):,.0f} as a stream"
        print(f"{kind:8} {rates}, target {TARGETS[kind]:,}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 0 whether or not the targets were reached."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=15)
    wanted = parser.parse_args(arguments)
    require_package()
    require_spark()

    with (
        tempfile.TemporaryDirectory(prefix="canal-bench-") as folder,
        PrivateServer("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=True) as writer,
    ):
        load = writer.write(replace(LOADS[0], rows=wanted.rows))
        with ServerProcess(server, load) as process:
            spark = make_session(Path(folder))
            try:
                reads = Reads(spark, load, process.address)
                report(reads, Path(folder))
                options = reads.options | reads.kinds["typed"]
                del options["endingPosition"]
                options |= {"subscription": "delays", "startingPosition": "latest"}
                count = PER_SECOND * wanted.seconds
                delays, times = delays_of(spark, server, options, count)
                print(
                    f"{len(delays)} rows at {PER_SECOND}/s: median "
                    f"{statistics.median(delays):,.0f} ms from commit to foreachBatch, "
                    f"at most {max(delays):,.0f}; a batch took "
                    f"{statistics.median(times):,.0f} ms, at least {min(times):,}"
                )
                memory = process.memory()
                print(f"canal-server held {memory.highest / 2**20:,.0f} MiB at most")
            finally:
                spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
