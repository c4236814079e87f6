"""Draws how soon changes are in Spark, and how many, while a burst passes.

    python benchmarks/spark_plot.py [--seconds S] [--burst ROWS] [--output FILE.svg]

A private MySQL, canal-server as a process and Spark as local[2] share the machine. A
typed stream runs into `foreachBatch` while one row is written after the other, at a
steady pace; a third of the way through, another connection inserts many rows at once.
Printed are the delays of the steady rows, second by second, and the micro-batches;
the picture shows both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loads import LOADS, SCHEMA, SERVER_OPTIONS, TABLE, Writer, insert_row
from server_process import DESTINATION, ServerProcess, require_package
from spark_source import require_spark

from canal_server.mirror.report.picture import Panel, Series, picture, text_plot

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer
from spark_session import make_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servers import Server

PER_SECOND = 100
FIRST = 100_000_001  # id of the first steady row, after those of the burst
WARM_ROWS = 20_000
PATIENCE_S = 180.0
DELAY, MEDIAN, RATE = "#9ab", "#c30", "#383"  # colours


@dataclass
class Figures:
    """What a run brought: times are seconds since the epoch."""

    began: float = 0.0
    written: dict[int, float] = field(default_factory=dict)  # by the row's id
    received: dict[int, float] = field(default_factory=dict)
    batches: list[tuple[float, int, float]] = field(default_factory=list)

    def delays(self) -> list[tuple[float, float]]:
        """Return when each steady row was written, and how many ms later it arrived."""
        return [
            (then - self.began, 1000 * (self.received[key] - then))
            for key, then in sorted(self.written.items())
            if key in self.received
        ]

    def by_second(self) -> list[tuple[float, float, float]]:
        """Return each second's median and highest delay in ms."""
        seconds = defaultdict(list)
        for second, delay in self.delays():
            seconds[int(second)].append(delay)
        return [
            (float(second), statistics.median(delays), max(delays))
            for second, delays in sorted(seconds.items())
        ]

    def rates(self) -> list[tuple[float, float, float]]:
        """Return begin, length and rows per second of each micro-batch."""
        return [
            (began - self.began, length, rows / length)
            for began, rows, length in self.batches
            if began >= self.began
        ]


def write_steadily(server: Server, count: int, figures: Figures) -> None:
    """Write rows at a steady pace, each in a transaction of its own."""
    with server.connect(database=SCHEMA) as connection:
        cursor = connection.cursor()
        for number in range(count):
            pause = figures.began + number / PER_SECOND - time.time()
            time.sleep(max(0.0, pause))
            insert_row(cursor, FIRST + number)
            figures.written[FIRST + number] = time.time()


def write_burst(server: Server, rows: int, at: float) -> None:
    """Insert many rows in statements of a thousand, from a moment on."""
    with server.connect(database=SCHEMA, read_timeout=600) as connection:
        cursor = connection.cursor()
        time.sleep(max(0.0, at - time.time()))
        cursor.execute("CALL fill(%s, %s)", (WARM_ROWS + 1, WARM_ROWS + 1 + rows))


def run(spark: Any, server: Server, source: dict[str, str], options: Any) -> Figures:
    """Let the stream run while rows are written; returns when all have come."""
    figures = Figures()
    total = 0

    def apply(frame: Any, _: int) -> None:
        nonlocal total
        ids = frame.select(frame["id"].cast("long")).toArrow().column(0).to_pylist()
        now = time.time()
        figures.received.update((key, now) for key in ids if key >= FIRST)
        total += len(ids)

    count = options.seconds * PER_SECOND
    with tempfile.TemporaryDirectory(prefix="canal-bench-") as folder:
        frame = spark.readStream.format("canal").options(**source).load()
        query = (
            frame.writeStream.foreachBatch(apply)
            .option("checkpointLocation", folder)
            .start()
        )
        wait_until(lambda: total >= WARM_ROWS, query)
        figures.began = time.time()
        burst_at = figures.began + options.seconds / 3
        threads = [
            threading.Thread(target=write_steadily, args=(server, count, figures)),
            threading.Thread(
                target=write_burst, args=(server, options.burst, burst_at)
            ),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        everything = WARM_ROWS + count + options.burst
        wait_until(lambda: total >= everything, query)
        figures.batches = [batch_of(each) for each in query.recentProgress]
        query.stop()
    return figures


def batch_of(progress: Any) -> tuple[float, int, float]:
    """Return when a micro-batch began, its rows, and how many seconds it took."""
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    seconds = progress["durationMs"]["triggerExecution"] / 1000
    return began, progress["numInputRows"], max(seconds, 0.001)


def wait_until(done: Any, query: Any) -> None:
    """Wait for something while a query runs. Raises TimeoutError."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not done():
        if not query.isActive:
            raise query.exception()
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"it did not come within {PATIENCE_S:.0f} s")
        time.sleep(0.1)


def show(figures: Figures) -> None:
    """Print the figures, and a line for each second."""
    delays = [delay for _, delay in figures.delays()]
    rates = [(began, rate) for began, length, rate in figures.rates() if rate > 1000]
    print("delay from commit to foreachBatch, by the second of the commit:")
    rows = [
        (second, median, f"at most {highest:,.0f}")
        for second, median, highest in figures.by_second()
    ]
    print(text_plot(rows, "ms"))
    print("\nmicro-batches of the burst:")
    print(text_plot([(began, rate, "") for began, rate in rates], "rows/s"))
    parts = statistics.quantiles(delays, n=20)
    print(
        f"\n{len(delays):,} steady rows: median {statistics.median(delays):,.0f} ms, "
        f"95 % within {parts[-1]:,.0f} ms, at most {max(delays):,.0f} ms"
    )


def draw(figures: Figures) -> str:
    """Return the picture."""
    medians = [(second + 0.5, median) for second, median, _ in figures.by_second()]
    rates = figures.rates()
    length = statistics.median([length for _, length, _ in rates]) if rates else 1.0
    delays = Panel(
        "from commit in MySQL to foreachBatch",
        " ms",
        [
            Series("each row", DELAY, figures.delays()),
            Series("median of a second", MEDIAN, medians),
        ],
    )
    bars = [(began, rate) for began, _, rate in rates]
    speed = Panel(
        "rows per second of micro-batches",
        "",
        [Series("micro-batch", RATE, bars, bar_s=length)],
    )
    ends = [began + length for began, length, _ in rates]
    return picture([delays, speed], max(ends, default=1.0))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and draw."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument("--seconds", type=int, default=30, help="how long to write")
    parser.add_argument("--burst", type=int, default=500_000, help="rows at once")
    parser.add_argument("--output", type=Path, default=Path("spark-delay.svg"))
    options = parser.parse_args(arguments)
    require_package()
    require_spark()

    with (
        tempfile.TemporaryDirectory(prefix="canal-bench-") as folder,
        PrivateServer("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=True) as writer,
    ):
        load = writer.write(replace(LOADS[0], rows=WARM_ROWS))
        with ServerProcess(server, load) as process:
            spark = make_session(Path(folder))
            try:
                source = {
                    "servers": "{}:{}".format(*process.address),
                    "destination": DESTINATION,
                    "subscription": "plot",
                    "startingPosition": f"file:{load.file}:{load.position}",
                    "table": f"{SCHEMA}.{TABLE}",
                    "maxPartitions": "2",
                }
                figures = run(spark, server, source, options)
            finally:
                spark.stop()
    show(figures)
    options.output.write_text(draw(figures))
    print(f"{options.output} shows it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
