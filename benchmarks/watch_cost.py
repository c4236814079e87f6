"""Measures what it costs to be watched: metrics scraped each second, the page open.

    python benchmarks/watch_cost.py [--runs N] [--quick]

Client and loads are those of `run.py`, the loads eight times as long: a run takes some
seconds, so that it contains as many scrapes a second as an hour would. Runs that are
watched and runs that are not alternate; the median of the ratios of two neighbours
counts. Who watches is a process of its own, as Prometheus and a browser are: it gets
the metrics once a second, and what the open page asks for as often as the page does.
Its own time is not the server's; on two cores it competes with it all the same.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from drain import DrainClient, drain
from loads import END_TABLE, LOADS, SERVER_OPTIONS, Range, Writer
from process_times import seconds_of
from server_process import DESTINATION, ServerProcess, free_port, require_package

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Iterator

END = END_TABLE.encode()
PAGE_S = 2.0  # between two requests of the page
SCRAPE_S = 1.0
START_S = 10.0
LOSS_MAX = 0.02
LONGER = 8  # than the loads of run.py
WATCHER = """
import sys, time, urllib.request
metrics, page = sys.argv[1:3]
due = {metrics: [0.0, float(sys.argv[3])], page: [0.0, float(sys.argv[4])]}
while True:
    for url, when in due.items():
        if when[0] <= time.monotonic():
            when[0] = time.monotonic() + when[1]
            try:
                urllib.request.urlopen(url, timeout=5).read()
            except OSError:
                pass
    time.sleep(max(min(when[0] for when in due.values()) - time.monotonic(), 0))
"""


def wait_for(url: str) -> None:
    """Wait until a port answers: the server opens it after the one for clients."""
    give_up_at_s = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                assert answer.read(), url
                return
        except urllib.error.URLError:
            if time.monotonic() > give_up_at_s:
                raise
            time.sleep(0.05)


@contextlib.contextmanager
def watched(metrics: int, page: int) -> Iterator[None]:
    """Have somebody watch the ports within the context."""
    urls = [
        f"http://127.0.0.1:{metrics}/metrics",
        f"http://127.0.0.1:{page}/api/v1/destinations",
    ]
    for url in urls:
        wait_for(url)
    command = [sys.executable, "-c", WATCHER, *urls, str(SCRAPE_S), str(PAGE_S)]
    process = subprocess.Popen(command)
    try:
        yield
        assert process.poll() is None, "nobody watched"
    finally:
        process.kill()
        process.wait()


def throughput(
    server: PrivateServer, load: Range, *, is_watched: bool
) -> tuple[float, float]:
    """Return the rows per second of a drained load, and the server's seconds."""
    metrics, page = free_port(), free_port()
    main = {"canal.metrics.pull.port": str(metrics), "canal.http.port": str(page)}
    with (
        ServerProcess(server, load, main=main) as ours,
        DrainClient(ours.address, DESTINATION, alive=ours.alive) as drainer,
        watched(metrics, page) if is_watched else contextlib.nullcontext(),
    ):
        before = seconds_of(ours.pid)
        drainer.subscribe()
        run = drain(drainer, END)
        return load.rows / run.seconds, seconds_of(ours.pid) - before


def main() -> int:
    """Measure and print; status 1 if it costs more than it may."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=9, help="of each kind")
    parser.add_argument("--quick", action="store_true", help="write short loads")
    args = parser.parse_args()
    print(f"canal_server: {require_package()}", file=sys.stderr)
    costs_too_much = False
    with (
        PrivateServer("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=True) as writer,
    ):
        for short in LOADS[:2]:
            load = dataclasses.replace(short, rows=short.rows * LONGER)
            written = writer.write(load, quick=args.quick)
            found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for _ in range(args.runs):
                for is_watched, runs in found.items():
                    runs.append(throughput(server, written, is_watched=is_watched))
            alone, seen = (
                statistics.median(rate for rate, _ in runs) for runs in found.values()
            )
            seconds = [
                statistics.median(each for _, each in runs) for runs in found.values()
            ]
            loss = 1 - statistics.median(
                by_watched / by_itself
                for (by_itself, _), (by_watched, _) in zip(*found.values(), strict=True)
            )
            print(
                f"{load.title}: {alone / 1000:,.0f} k rows/s alone,"
                f" {seen / 1000:,.0f} watched, {-loss:+.1%};"
                f" the server's processor {seconds[0]:.2f} and {seconds[1]:.2f} s"
            )
            costs_too_much |= loss > LOSS_MAX
    print(f"{'more' if costs_too_much else 'no more'} than {LOSS_MAX:.0%}")
    return int(costs_too_much)


if __name__ == "__main__":
    raise SystemExit(main())
