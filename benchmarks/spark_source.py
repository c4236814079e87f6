"""Measures the Spark source: rows per second, and how soon a commit is in Spark.

    python benchmarks/spark_source.py [--quick] [--runs N] [--parallel-gc]
                                      [--option NAME=VALUE …]

A private MySQL, canal-server as a process and Spark as local[2] share the machine. The
load is `inserts`, into the sink `noop`: read at once, and four times as much as a
stream of batches as large as that. Spark is warmed up by two reads, or a whole stream,
of each kind; then the median of the runs counts. Single rows at a steady pace show how
soon `foreachBatch` has them.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latency import Quantiles
from loads import LOADS, SCHEMA, SERVER_OPTIONS, TABLE, Writer, insert_row
from process_times import Stopwatch, seconds_below, seconds_of
from results import Verdict
from server_process import DESTINATION, ServerProcess, require_package

from canal_server.client.range_client import RangedClient, Wire

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer
from spark_session import make_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loads import Range
    from servers import Server

RATES = {"typed": 300_000, "generic": 150_000}  # rows/s
SMALLEST_BATCH_MS_MAX = 350
MEDIAN_MS_MAX = 600
WARM_UPS = 2
STREAM_LOADS = 4  # the load of a stream is so many times that of a read at once
PER_SECOND = 200
FIRST_SINGLE_ID = 100_000_001  # of the rows that are written one by one
PATIENCE_S = 120.0
KINDS = {
    "typed": {"table": f"{SCHEMA}.{TABLE}"},
    "generic": {"filter": rf"{SCHEMA}\.{TABLE}"},
}


@dataclass(slots=True)
class Runs:
    """Runs of one kind, in one way: rows per second, and processor time a row."""

    title: str
    target: int
    rates: list[float] = field(default_factory=list)
    times: list[dict[str, float]] = field(default_factory=list)  # s per million rows

    def add(self, rows: int, seconds: float, times: dict[str, float]) -> None:
        """Take note of a run."""
        self.rates.append(rows / seconds)
        self.times.append({name: 1e6 * s / rows for name, s in times.items()})
        show(f"  {self.title}: {self.rates[-1]:,.0f} rows/s")

    def verdict(self) -> Verdict:
        """Compare the median with the target."""
        rate = statistics.median(self.rates)
        measured = f"{rate:,.0f} rows/s, median of {len(self.rates)}"
        return Verdict(
            self.title, f"{self.target:,} rows/s", measured, rate >= self.target
        )

    def row(self) -> str:
        """Return a line of the table."""
        names = self.times[0]
        times = [statistics.median(each[name] for each in self.times) for name in names]
        cells = [f"{statistics.median(self.rates):,.0f}", *(f"{t:.2f}" for t in times)]
        return " | ".join(["", self.title, *cells, ""]).strip()


class SparkReads:
    """Reads of a load by one Spark session, and what they cost whom."""

    def __init__(
        self,
        spark: Any,
        process: ServerProcess,
        server: Server,
        options: dict[str, str],
    ) -> None:
        self.spark = spark
        self.address = process.address
        self._options = options | {
            "servers": "{}:{}".format(*process.address),
            "destination": DESTINATION,
        }
        jvm = int(spark.sparkContext._gateway.proc.pid)  # noqa: SLF001  # not shown otherwise
        self._groups: dict[str, Callable[[], float]] = {
            "JVM": lambda: seconds_of(jvm),
            "Python": lambda: seconds_below(jvm),
            "canal-server": lambda: seconds_of(process.pid),
        }
        if isinstance(server, PrivateServer) and server.pid:
            mysql = server.pid
            self._groups["MySQL"] = lambda: seconds_of(mysql)
        self._queries = 0

    def options(self, kind: str, start: str) -> dict[str, str]:
        """Return the options of a read that begins at a position."""
        return self._options | KINDS[kind] | {"startingPosition": start}

    def at_once(self, kind: str, load: Range, runs: Runs | None) -> None:
        """Read a load as one batch."""
        options = self.options(kind, f"file:{load.file}:{load.position}")
        options |= {
            "endingPosition": f"file:{load.end_file}:{load.end}",
            "maxPartitions": "2",
        }
        frame = self.spark.read.format("canal").options(**options).load()
        watch, started = Stopwatch(self._groups), time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        if runs is not None:
            runs.add(load.rows, time.monotonic() - started, watch.seconds())

    def streamed(
        self, kind: str, load: Range, folder: Path, runs: Sequence[Runs]
    ) -> None:
        """Read a load as a stream; each batch is a run, but those that warm up."""
        self._queries += 1
        options = self.options(kind, f"file:{load.file}:{load.position}")
        name = f"{kind}-{self._queries}"
        query = (
            self.spark.readStream.format("canal")
            .options(**options, subscription=name, maxPartitions="2")
            .option("maxRowsPerTrigger", str(load.rows // STREAM_LOADS))
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(folder / name))
            .trigger(availableNow=True)
            .start()
        )
        watch = Stopwatch(self._groups)
        query.awaitTermination()
        times = watch.seconds()
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        assert sum(each["numInputRows"] for each in batches) == load.rows
        for each in batches[-1:] if len(batches) == 1 else batches[1:]:
            share = each["numInputRows"] / load.rows
            for kept in runs:
                kept.add(
                    each["numInputRows"],
                    each["durationMs"]["triggerExecution"] / 1000,
                    {name: share * seconds for name, seconds in times.items()},
                )


def delays_of(reads: SparkReads, server: Server, count: int) -> tuple[Quantiles, int]:
    """Return the time from commit to `foreachBatch`, and the shortest batch's in ms."""
    written: dict[int, float] = {}
    received: dict[int, float] = {}
    options = reads.options("typed", "latest")

    def apply(frame: Any, _: int) -> None:
        rows = frame.select("id").collect()
        now = time.monotonic()
        received.update((int(row["id"]), now) for row in rows)

    def write() -> None:
        with server.connect(database=SCHEMA) as connection:
            cursor = connection.cursor()
            started = time.monotonic()
            for number in range(count):
                pause = started + number / PER_SECOND - time.monotonic()
                time.sleep(max(0.0, pause))
                insert_row(cursor, FIRST_SINGLE_ID + number)
                written[FIRST_SINGLE_ID + number] = time.monotonic()

    with tempfile.TemporaryDirectory(prefix="canal-bench-") as folder:
        query = (
            reads.spark.readStream.format("canal")
            .options(**options, subscription="delays")
            .load()
            .writeStream.foreachBatch(apply)
            .option("checkpointLocation", folder)
            .start()
        )
        wait_for(lambda: query.lastProgress is not None)  # it has a position
        writer = threading.Thread(target=write)
        writer.start()
        writer.join()
        wait_for(lambda: len(received) == count)
        times = [
            each["durationMs"]["triggerExecution"]
            for each in query.recentProgress
            if each["numInputRows"]
        ]
        query.stop()
    return Quantiles.of([received[key] - written[key] for key in written]), min(times)


def wait_for(done: Callable[[], bool]) -> None:
    """Wait until something is so. Raises SystemExit when it does not come."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > give_up_at:
            raise SystemExit(f"nothing came of the stream for {PATIENCE_S:g} s")
        time.sleep(0.05)


def bytes_a_row(load: Range, address: tuple[str, int], wire: Wire) -> float:
    """Return what a task is sent for a row, without Spark."""
    with RangedClient(*address) as client:
        start, end = (
            client.locate(DESTINATION, f"file:{file}:{offset}")
            for file, offset in (
                (load.file, load.position),
                (load.end_file, load.end),
            )
        )
        expected = KINDS["generic"]["filter"]
        pieces = client.read(DESTINATION, "", start, end, filter=expected, wire=wire)
        return sum(map(len, pieces)) / load.rows


def require_spark() -> None:
    """Raise SystemExit, with what to do, where Spark cannot run."""
    if importlib.util.find_spec("pyspark") is None:
        raise SystemExit("pyspark is absent: pip install 'canal-server[spark]'")
    if not shutil.which("java") and not os.environ.get("JAVA_HOME"):
        raise SystemExit("Spark runs on Java, which is absent: install 17 or 21")


def measure_rates(
    reads: SparkReads, writer: Writer, options: argparse.Namespace, folder: Path
) -> Iterator[Runs]:
    """Write the loads and read each of them in its way, typed and generic."""
    load = writer.write(replace(LOADS[0], rows=options.rows))
    for wire in Wire:
        size = bytes_a_row(load, reads.address, wire)
        show(f"{size:,.0f} bytes a row, wire = {wire.name.lower()}")
    for kind, target in RATES.items():
        runs = Runs(f"{kind}, read at once", target)
        for number in range(WARM_UPS + options.runs):
            reads.at_once(kind, load, runs if number >= WARM_UPS else None)
        yield runs
    if not options.stream:
        return
    load = writer.write(replace(LOADS[0], rows=options.rows * STREAM_LOADS))
    for kind, target in RATES.items():
        runs = Runs(f"{kind}, as a stream", target)
        reads.streamed(kind, load, folder, ())  # warms up
        for _ in range(-(-options.runs // (STREAM_LOADS - 1))):
            reads.streamed(kind, load, folder, (runs,))
        yield runs


def report(found: Sequence[Runs], delays: Quantiles, smallest_ms: int) -> None:
    """Print the table and the verdicts."""
    names = list(found[0].times[0])
    head = ["rows/s", *(f"{name}, s a million" for name in names)]
    print("\n| | " + " | ".join(head) + " |")
    print("|---" + "|---:" * len(head) + "|")
    for runs in found:
        print(runs.row())
    verdicts = [runs.verdict() for runs in found]
    verdicts.append(
        Verdict(
            f"commit to foreachBatch at {PER_SECOND} rows/s",
            f"median {MEDIAN_MS_MAX} ms",
            f"median {delays.median:,.0f} ms, 99 % {delays.p99:,.0f} ms,"
            f" all {delays.highest:,.0f} ms",
            delays.median < MEDIAN_MS_MAX,
        )
    )
    verdicts.append(
        Verdict(
            "smallest micro-batch",
            f"{SMALLEST_BATCH_MS_MAX} ms",
            f"{smallest_ms} ms",
            smallest_ms < SMALLEST_BATCH_MS_MAX,
        )
    )
    print()
    for verdict in verdicts:
        print(verdict)


def show(text: str) -> None:
    """Say how far it is."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 0 whether or not the targets were reached."""
    options = _parse(arguments)
    require_package()
    require_spark()
    settings = dict(each.partition("=")[::2] for each in options.option)
    with (
        tempfile.TemporaryDirectory(prefix="canal-bench-") as name,
        PrivateServer("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=True) as writer,
    ):
        folder = Path(name)
        nothing = writer.write(replace(LOADS[0], rows=1))
        with ServerProcess(server, nothing) as process:
            spark = make_session(folder, parallel_gc=options.parallel_gc)
            try:
                reads = SparkReads(spark, process, server, settings)
                found = list(measure_rates(reads, writer, options, folder))
                count = PER_SECOND * options.seconds
                delays, smallest_ms = delays_of(reads, server, count)
            finally:
                spark.stop()
            memory = process.memory()
    report(found, delays, smallest_ms)
    print(f"canal-server held {memory.highest / 2**20:,.0f} MiB at most")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=0, help="read at once (1,000,000)")
    parser.add_argument("--runs", type=int, default=0, help="of each kind (5)")
    parser.add_argument("--seconds", type=int, default=0, help="of single rows (15)")
    parser.add_argument(
        "--no-stream", dest="stream", action="store_false", help="read at once only"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the rows, two runs"
    )
    parser.add_argument(
        "--parallel-gc",
        action="store_true",
        help="give the JVM the collector that suits two cores better than its own",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the source; may be given more than once",
    )
    options = parser.parse_args(arguments)
    options.rows = options.rows or (100_000 if options.quick else 1_000_000)
    options.runs = options.runs or (2 if options.quick else 5)
    options.seconds = options.seconds or (4 if options.quick else 15)
    return options


if __name__ == "__main__":
    sys.exit(main())
