"""Measures what ranged reads cost canal-server: its memory, and its processor time.

    python benchmarks/range_memory.py [--quick] [--rows N]

A private MySQL and canal-server as a process; no Spark. Its memory must not grow with
what is read: micro-batches of 10,000, 100,000 and 1,000,000 rows, and one transaction
of a million, each read from the binlog in parts, two at a time. Then a large binlog is
read from its beginning to its end; `--rows 11000000` makes it one of 1 GB.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loads import LOADS, SCHEMA, SERVER_OPTIONS, TABLE, Writer
from process_times import Stopwatch, seconds_of
from results import Verdict
from server_process import DESTINATION, Memory, ServerProcess, require_package

from canal_server.client.range_client import RangedClient

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loads import Range

    from canal_server.client.range_client import RangePart, RangePosition

MB = 1e6
FILTER = rf"{SCHEMA}\.{TABLE}"
BATCHES = (10_000, 100_000, 1_000_000)
READERS = 2
# Of the largest batch beyond the smallest one: blocks in flight, not the batch.
GROWTH_BYTES_MAX = 32 * MB
RESET_HIGHEST = "5"  # what Linux takes it for: proc(5), clear_refs
INSERTS, BIG = LOADS[0], LOADS[3]


@dataclass(frozen=True, slots=True)
class Cost:
    """What reading a load cost, in batches of so many rows."""

    title: str
    rows: int
    bytes: int
    seconds: float
    server_s: float
    memory: Memory

    def __str__(self) -> str:
        return (
            f"| {self.title} | {self.rows / self.seconds:,.0f} |"
            f" {1e6 * self.server_s / self.rows:.2f} |"
            f" {self.bytes / self.rows:,.0f} | {self.memory.highest / MB:,.0f} |"
        )


class Reader:
    """Reads loads of a server as Spark would, two parts of a batch at a time."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self._driver = RangedClient(*process.address)
        self._readers = [RangedClient(*process.address) for _ in range(READERS)]
        self._names = 0

    def cost_of(self, title: str, load: Range, batch_rows: int) -> Cost:
        """Read a load in batches; all of it comes from the binlog."""
        pid = self._process.pid
        self._names += 1
        name = f"bench-{self._names}"
        start = f"file:{load.file}:{load.position}"
        at = self._driver.subscribe(DESTINATION, name, FILTER, start).cursor
        end = self._driver.locate(DESTINATION, f"file:{load.end_file}:{load.end}")
        _forget_highest(pid)
        watch = Stopwatch({"server": lambda: seconds_of(pid)})
        started, rows, size = time.monotonic(), 0, 0
        while rows < load.rows:
            found = self._driver.head(
                DESTINATION, name, at, max_rows=batch_rows, wait_ms=10_000, ack=True
            )
            if not found.rows:
                raise SystemExit(f"{rows:,} of {load.rows:,} rows came before {end}")
            size += self._read(name, at, found.end)
            rows, at = rows + found.rows, found.end
        seconds = time.monotonic() - started
        cost = Cost(
            title, rows, size, seconds, watch.seconds()["server"], Memory.of(pid)
        )
        self._driver.unsubscribe(DESTINATION, name)
        return cost

    def _read(self, name: str, start: RangePosition, end: RangePosition) -> int:
        parts = deque(self._driver.plan(DESTINATION, name, start, end, 2 * READERS))
        with ThreadPoolExecutor(READERS) as pool:
            works = [
                pool.submit(_read_parts, each, name, parts) for each in self._readers
            ]
            return sum(work.result() for work in works)


def _read_parts(client: RangedClient, name: str, parts: deque[RangePart]) -> int:
    size = 0
    while parts:
        try:
            part = parts.popleft()
        except IndexError:  # another reader took the last one
            break
        size += sum(map(len, client.read(DESTINATION, name, part.start, part.end)))
    return size


def _forget_highest(pid: int) -> None:
    """Have the kernel count a process's highest memory from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text(RESET_HIGHEST)


def measure(writer: Writer, server: PrivateServer, options: argparse.Namespace) -> None:
    """Write the loads, read them and print what it cost."""
    small = BATCHES[0] * (10 if options.quick else 100)
    loads = {
        "inserts": writer.write(replace(INSERTS, rows=small)),
        "big": writer.write(replace(BIG, rows=small)),
        "replay": writer.write(replace(INSERTS, rows=options.rows)),
    }
    print("| | rows/s | server, s a million | bytes a row | highest memory, MB |")
    print("|---|---:|---:|---:|---:|", flush=True)
    begin = partial(
        ServerProcess, server, settings={"canal.instance.ranged.memory.bytes": "0"}
    )
    costs = [
        _cost(begin, loads["inserts"], rows, f"batches of {rows:,} rows")
        for rows in BATCHES
        if rows <= small
    ]
    costs.append(
        _cost(begin, loads["big"], small, f"one transaction of {small:,} rows")
    )
    replay = _cost(
        begin, loads["replay"], BATCHES[-1], f"replay of {options.rows:,} rows"
    )
    growth = max(cost.memory.highest for cost in costs) - costs[0].memory.highest
    busy = replay.server_s / replay.seconds
    size = loads["replay"].bytes
    what = "several files" if size is None else f"{size / MB:,.0f} MB"
    print(
        f"\nreplay of {what} of binlog: {replay.seconds:.1f} s, in which"
        f" the server took {replay.server_s:.1f} s of {os.cpu_count()} processors,"
        f" {busy:.2f} of them at a time"
    )
    print(
        Verdict(
            "memory beyond that of the smallest batches",
            f"{GROWTH_BYTES_MAX / MB:.0f} MB",
            f"{growth / MB:.0f} MB",
            growth <= GROWTH_BYTES_MAX,
        )
    )


def _cost(
    begin: Callable[[Range], ServerProcess], load: Range, batch_rows: int, title: str
) -> Cost:
    """Read a load from a server of its own, and print what it cost."""
    with begin(load) as process:
        wait_until_it_listens(process)
        cost = Reader(process).cost_of(title, load, batch_rows)
    print(cost, flush=True)
    return cost


def wait_until_it_listens(process: ServerProcess, timeout_s: float = 60.0) -> None:
    """Wait until a server takes connections. Raises OSError when it does not."""
    give_up_at = time.monotonic() + timeout_s
    while True:
        try:
            with RangedClient(*process.address) as client:
                client.locate(DESTINATION, "latest")
        except OSError:
            if not process.alive() or time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)
        else:
            return


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 0 whether or not the target was reached."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=0, help="to replay (2,000,000)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    options = parser.parse_args(arguments)
    options.rows = options.rows or (200_000 if options.quick else 2_000_000)
    require_package()
    with (
        PrivateServer("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=True) as writer,
    ):
        measure(writer, server, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
