"""Measures what it costs to be watched: metrics scraped each second, the page open.

    python benchmarks/watch_cost.py [--runs N] [--quick]

Client and loads are those of `run.py`, the loads eight times as long. While a load is
drained, seconds that are watched and seconds that are not alternate, and each is
compared with the two beside it, so that a machine whose speed changes changes both; the
median of the ratios counts. Who watches is a process of its own, as Prometheus and a
browser are: within a second it gets the metrics and what the open page asks for, which
is more often than the page asks. Its own time is not the server's; on two cores it
competes with it all the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drain import BATCH_SIZE, WAIT_MS, DrainClient
from loads import END_TABLE, LOADS, SERVER_OPTIONS, Range, Writer
from process_times import seconds_of
from server_process import DESTINATION, ServerProcess, free_port, require_package

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

END = END_TABLE.encode()
SLICE_S = 1.0
START_S = 10.0
LOSS_MAX = 0.02
LONGER = 8  # than the loads of run.py
WATCHER = """
import sys, urllib.request
for line in sys.stdin:
    for url in sys.argv[1:]:
        urllib.request.urlopen(url, timeout=5).read()
    print(flush=True)
"""


@dataclass(frozen=True, slots=True)
class Slice:
    """A second of a drained load: bytes received each second, seconds of processor."""

    is_watched: bool
    rate: float
    cpu_per_byte: float


class Watcher:
    """A process that gets the ports' answers once whenever it is asked to look."""

    def __init__(self, metrics: int, page: int) -> None:
        urls = [
            f"http://127.0.0.1:{metrics}/metrics",
            f"http://127.0.0.1:{page}/api/v1/destinations",
        ]
        for url in urls:
            wait_for(url)
        self._process = subprocess.Popen(
            [sys.executable, "-c", WATCHER, *urls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        self.look()
        self.seen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def look(self) -> None:
        """Have it look, and do not wait for it."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def seen(self) -> None:
        """Wait until it has seen what it was asked to look at."""
        assert self._process.stdout
        assert self._process.stdout.readline(), "nobody watched"


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


def slices(
    server: PrivateServer, load: Range, *, watched_first: bool
) -> Iterator[Slice]:
    """Drain a load; yield its whole seconds but the first, each second one watched."""
    metrics, page = free_port(), free_port()
    main = {"canal.metrics.pull.port": str(metrics), "canal.http.port": str(page)}
    with (
        ServerProcess(server, load, main=main) as ours,
        DrainClient(ours.address, DESTINATION, alive=ours.alive) as drainer,
        Watcher(metrics, page) as watcher,
    ):
        drainer.subscribe()
        is_watched, is_first, size = not watched_first, True, 0
        began_at, before = time.monotonic(), seconds_of(ours.pid)
        while (frame := drainer.get(BATCH_SIZE, WAIT_MS)) is None or (
            END not in frame.tail
        ):
            if frame is not None:
                drainer.ack(frame.batch_id)
                size += frame.size
            now = time.monotonic()
            if now < began_at + SLICE_S or not size:
                continue
            used = seconds_of(ours.pid)
            if is_watched and not is_first:
                watcher.seen()
            if not is_first:
                yield Slice(is_watched, size / (now - began_at), (used - before) / size)
            is_watched, is_first, size = not is_watched, False, 0
            began_at, before = now, used
            if is_watched:
                watcher.look()


def ratios(run: list[Slice]) -> Iterator[tuple[float, float]]:
    """Yield a watched second's rate and processor time by those of one that is not."""
    for earlier, each, later in zip(run, run[1:], run[2:], strict=False):
        rate = 2 * each.rate / (earlier.rate + later.rate)
        cpu = 2 * each.cpu_per_byte / (earlier.cpu_per_byte + later.cpu_per_byte)
        yield (rate, cpu) if each.is_watched else (1 / rate, 1 / cpu)


def main() -> int:
    """Measure and print; status 1 if it costs more than it may."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=9, help="of each load")
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
            found = [
                each
                for run in range(args.runs)
                for each in ratios(
                    list(slices(server, written, watched_first=run % 2 == 0))
                )
            ]
            if not found:
                print(f"{load.title}: no three whole seconds, nothing to compare")
                continue
            rate, cpu = (statistics.median(each) for each in zip(*found, strict=True))
            print(
                f"{load.title}: watched {rate - 1:+.1%} rows a second, {cpu - 1:+.1%}"
                f" of the server's processor a row ({len(found)} seconds compared)"
            )
            costs_too_much |= rate < 1 - LOSS_MAX
    print(f"{'more' if costs_too_much else 'no more'} than {LOSS_MAX:.0%}")
    return int(costs_too_much)


if __name__ == "__main__":
    raise SystemExit(main())
