"""What merging two sources into one destination costs, beside one source of the same.

Two private MySQLs. Half of each load is written to each of them, at the same time, so
that their commits interleave; as much as both together to the first one alone. Then a
canal-server with a group of both and one with a single source are drained in turn, by
the same client. `python benchmarks/group.py --help` shows the options; needs the
package to be installed, as `make bench` has it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from cpu_profile import CpuProfile, perf_missing
from drain import BATCH_SIZE, SILENCE_SECONDS_MAX, WAIT_MS, DrainClient, DrainError
from idle_instances import seconds_of
from loads import END_TABLE, LOADS, SERVER_OPTIONS, Load, Range, Writer
from run import machine, show
from server_process import DESTINATION, ServerProcess, require_package
from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servers import Server

END = END_TABLE.encode()
NAMES = ("inserts", "single")
COST_PERCENT_MAX = 30.0  # what is asked of the merge


@dataclass(frozen=True, slots=True)
class Run:
    """A drained load: how long it took, and what the server took of the processor.

    The latter begins with the client's subscription, while the server still connects.
    """

    seconds: float
    processor_s: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.processor_s:.2f} s of the processor)"


def drain_all(client: DrainClient, ends: int) -> float:
    """Take and ack batches until so many loads have ended; returns the seconds.

    From the first byte to the last ack.
    """
    began_at = ended_at = 0.0
    while ends > 0:
        waited_s = 0.0
        while (found := client.get_whole(BATCH_SIZE, WAIT_MS)) is None:
            waited_s += WAIT_MS / 1000
            if waited_s > SILENCE_SECONDS_MAX:
                raise DrainError(f"nothing came in {waited_s:g} s, {ends} loads go on")
        frame, body = found
        client.ack(frame.batch_id)
        ended_at = time.monotonic()
        began_at = began_at or frame.began_at
        ends -= body.count(END)
    return ended_at - began_at


class Bench:
    """Two servers, the loads in their binlogs, and the runs."""

    def __init__(self, servers: Sequence[Server], writers: Sequence[Writer]) -> None:
        self._servers = servers
        self._writers = writers

    def write(self, load: Load, rows: int) -> tuple[Range, list[Range]]:
        """Write a load to the first server, and a half of it to each of both."""
        whole = self._writers[0].write(replace(load, rows=rows))
        half = replace(load, rows=rows // 2)
        with ThreadPoolExecutor() as pool:
            halves = list(pool.map(lambda writer: writer.write(half), self._writers))
        return whole, halves

    def single(self, whole: Range) -> ServerProcess:
        """Return a server that reads one source."""
        wiring = "classpath:spring/file-instance.xml"
        return ServerProcess(self._servers[0], whole, wiring=wiring)

    def group(self, halves: Sequence[Range]) -> ServerProcess:
        """Return one that merges both."""
        settings = {
            f"canal.instance.master{number}.{key}": str(value)
            for number, (server, half) in enumerate(
                zip(self._servers, halves, strict=True), 1
            )
            for key, value in (
                ("address", f"{server.host}:{server.port}"),
                ("journal.name", half.file),
                ("position", half.position),
            )
        }
        wiring = "classpath:spring/group-instance.xml"
        return ServerProcess(
            self._servers[0], halves[0], wiring=wiring, settings=settings
        )


def run(process: ServerProcess, ends: int, profile: str = "") -> Run:
    """Start a server and drain it."""
    with (
        process as ours,
        DrainClient(ours.address, DESTINATION, alive=ours.alive) as client,
    ):
        stat = Path(f"/proc/{ours.pid}/stat")
        _, before = seconds_of(stat)
        if not profile:
            client.subscribe()
            seconds = drain_all(client, ends)
            return Run(seconds, seconds_of(stat)[1] - before)
        with CpuProfile(ours.pid) as recorded:
            client.subscribe()
            seconds = drain_all(client, ends)
        print(f"\n### {profile}\n\n{recorded.text}")
        return Run(seconds, seconds_of(stat)[1] - before)


def costs(load: Load, rows: int, single: Sequence[Run], group: Sequence[Run]) -> float:
    """Print the result of a load; returns the percents of the rate that it costs."""
    one, two = (
        statistics.median(each.seconds for each in runs) for runs in (single, group)
    )
    cpu, cpu_two = (
        statistics.median(each.processor_s for each in runs) for runs in (single, group)
    )
    cost = (1 - one / two) * 100
    print(
        f"{load.title}: {rows / one / 1000:,.0f} k rows/s from one source,"
        f" {rows / two / 1000:,.0f} from two merged ({-cost:+.0f} %);"
        f" {cpu:.2f} and {cpu_two:.2f} s of the processor"
    )
    return cost


def main() -> int:
    """Measure and print; status 1 when the merge costs more than it may."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--loads", default=",".join(NAMES), help="(default: %(default)s)")
    add("--rows", type=int, default=300_000, help="of a load (default: %(default)d)")
    add("--runs", type=int, default=3, help="of each (default: %(default)d)")
    add("--profile", action="store_true", help="one more run of each under perf")
    args = parser.parse_args()
    if args.profile and (missing := perf_missing()):
        parser.error(missing)
    show(f"canal_server: {require_package()}")
    too_much = False
    with ExitStack() as stack:
        servers = [
            stack.enter_context(PrivateServer("mysql", SERVER_OPTIONS))
            for _ in range(2)
        ]
        writers = [stack.enter_context(Writer(each, ours=True)) for each in servers]
        bench = Bench(servers, writers)
        print(machine(servers[0]))
        for load in (each for each in LOADS if each.name in args.loads.split(",")):
            whole, halves = bench.write(load, args.rows)
            single: list[Run] = []
            group: list[Run] = []
            for _ in range(args.runs):
                single.append(run(bench.single(whole), 1))
                group.append(run(bench.group(halves), 2))
                show(f"  {load.name}: {single[-1]}, merged {group[-1]}")
            cost = costs(load, args.rows, single, group)
            too_much |= cost > COST_PERCENT_MAX
            if args.profile:
                run(bench.single(whole), 1, f"{load.title}, one source")
                run(bench.group(halves), 2, f"{load.title}, two merged")
    print("more than it may be" if too_much else "within its limit")
    return int(too_much)


if __name__ == "__main__":
    raise SystemExit(main())
