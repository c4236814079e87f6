"""Several busy destinations of one process, on as many cores as there are.

A private MySQL has a load in its binlog; canal-servers with one, two and more
destinations that all read it are drained in turn, with a client process for each.
Printed are the rows a second of all, how many cores the server used, and for each
destination the share of the time in which its pump ran, and in which it was ready and
waited for a core; these with the start of the destinations.
`python benchmarks/busy_destinations.py --help` shows the options; needs the package to
be installed, as `make bench` has it.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from drain import BATCH_SIZE, DrainClient, drain
from idle_instances import running
from loads import END_TABLE, LOADS, SERVER_OPTIONS, Writer
from run import machine, show
from server_process import free_port, require_package, write_conf, write_instance
from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loads import Range
    from servers import Server

COUNTS = "1,2,4,8"
SHARE_MIN = 0.9  # of the rate of one destination: more of them must not cost
PATIENCE_S = 300.0
END = END_TABLE.encode()


@dataclass(frozen=True, slots=True)
class Drained:
    """One destination: its first byte and its last ack, on the monotonic clock."""

    began_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Run:
    """So many destinations at once."""

    count: int
    rows_per_s: float
    cores: float  # that the server used
    ran: float  # share of the time, of a pump
    waited: float  # share of the time, ready, for a core


def take(address: tuple[str, int], destination: str) -> Drained:
    """Drain a destination."""
    with DrainClient(address, destination) as client:
        client.subscribe()
        found = drain(client, END, BATCH_SIZE)
        return Drained(found.first_byte_at, found.last_ack_at)


def scheduled_s(pid: int) -> dict[str, tuple[float, float]]:
    """Return how long each thread ran and waited for a core, by its number."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            ran, waited, _ = (task / "schedstat").read_text().split()
            found[task.name] = (int(ran) / 1e9, int(waited) / 1e9)
    return found


def run(server: Server, load: Range, count: int) -> Run:
    """Start a server with so many destinations and drain them at once."""
    names = [f"busy{number}" for number in range(count)]
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="canal-busy-")
        conf = Path(stack.enter_context(folder), "conf")
        address = ("127.0.0.1", free_port())
        lazily = {"canal.instance.global.lazy": "true"}  # each begins with its client
        write_conf(
            conf, address[1], conf, **{"canal.destinations": ",".join(names)}, **lazily
        )
        for name in names:
            write_instance(conf / name, server, load)
        process = stack.enter_context(running(conf))
        pool = stack.enter_context(multiprocessing.get_context("fork").Pool(count))
        with DrainClient(address, names[0]):
            pass  # it listens
        before, began_at = scheduled_s(process.pid), time.monotonic()
        taking = pool.starmap_async(take, [(address, name) for name in names])
        drained = taking.get(PATIENCE_S)
        after = scheduled_s(process.pid)
        ended_at = max(each.ended_at for each in drained)
        took_s = ended_at - min(each.began_at for each in drained)
        whole_s = ended_at - began_at
    took = [
        (
            ran - before.get(each, (0.0, 0.0))[0],
            waited - before.get(each, (0.0, 0.0))[1],
        )
        for each, (ran, waited) in after.items()
    ]
    pumps = sorted(took)[-count:]  # the threads that ran longest
    return Run(
        count,
        load.rows * count / took_s,
        sum(ran for ran, _ in took) / whole_s,
        statistics.mean(ran for ran, _ in pumps) / whole_s,
        statistics.mean(waited for _, waited in pumps) / whole_s,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; status 1 when several have less than one alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--counts", default=COUNTS, help="of destinations (default: %(default)s)")
    add("--load", default="single", help="(default: %(default)s)")
    add("--runs", type=int, default=3, help="of each count (default: %(default)d)")
    add("--rows", type=int, default=600_000, help="of the load (default: %(default)d)")
    args = parser.parse_args(arguments)
    counts = [int(each) for each in args.counts.split(",")]
    loads = {each.name: each for each in LOADS}
    if args.load not in loads:
        parser.error(f"no such load: {args.load}; there are {', '.join(loads)}")
    show(f"canal_server: {require_package()}")
    runs: dict[int, list[Run]] = {count: [] for count in counts}
    with (
        PrivateServer("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=True) as writer,
    ):
        written = writer.write(replace(loads[args.load], rows=args.rows))
        print(machine(server))
        for _ in range(args.runs):
            for count in counts:
                runs[count].append(run(server, written, count))
                show(f"  {runs[count][-1]}")
    medians = {
        count: statistics.median(each.rows_per_s for each in found)
        for count, found in runs.items()
    }
    for count, found in runs.items():
        cores, ran, waited = (
            statistics.median(getattr(each, name) for each in found)
            for name in ("cores", "ran", "waited")
        )
        print(
            f"{count} destinations: {medians[count] / 1000:,.0f} k rows/s in all,"
            f" {medians[count] / medians[counts[0]]:.2f} of {counts[0]}; the server"
            f" used {cores:.2f} of {os.cpu_count()} cores; a pump ran for"
            f" {ran * 100:.0f} % of the time and waited for a core for"
            f" {waited * 100:.0f} %"
        )
    is_enough = min(medians.values()) >= SHARE_MIN * medians[counts[0]]
    print("within its limit" if is_enough else "several have less than one")
    return int(not is_enough)


if __name__ == "__main__":
    raise SystemExit(main())
