"""Measures canal-server on a private MySQL, beside an upper bound and alternatives.

    python benchmarks/run.py [--quick] [--runs N] [--loads NAME,…] [--json FILE]
                             [--profile]

`docs/explanation/performance.md` says what is measured and how. MYSQL_URL
names a server to use instead of a private one, CANAL_JAVA_HOME a built Java original to
measure too.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import cpu_profile
from client_bench import LOADS as CLIENT_LOADS
from client_bench import client_latency, profile_clients, run_clients
from client_results import ClientResult, client_table, client_verdicts
from decode_only import run_decode
from drain import BATCH_SIZE, DrainClient, DrainError, drain
from java_original import java_home, run_java
from latency import PER_SECOND, POLLING_MS, WAITING_MS, Latency, collect, measure
from limit import Limit
from loads import END_TABLE, LOADS, SERVER_OPTIONS, Load, Range, Writer
from replication_library import run_library
from results import LoadResult, ServerRun, Verdict, table, verdicts
from server_process import DESTINATION, ServerProcess, require_package

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer, Server, named_or_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

END = END_TABLE.encode()
GTID = "single-gtid"  # the load `single`, once more in GTID mode
LATENCY = "latency"
CLIENTS = "clients"  # on the loads `inserts` and `single`, and the latency
NAMES = ("inserts", "single", GTID, "updates", "big", LATENCY, CLIENTS)
LATENCY_SECONDS, LATENCY_QUICK_SECONDS = 20, 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; returns 0 when it ran, whether targets were reached."""
    options = _parse(arguments)
    home = java_home()
    show(f"canal_server: {require_package()}")
    with (
        named_or_private("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=isinstance(server, PrivateServer)) as writer,
        Limit() as limit,
    ):
        about = machine(server)
        show(about)
        bench = Bench(server, writer, limit, home, options)
        for load in LOADS:
            bench.run_load(load)
        if LATENCY in options.loads:
            bench.run_latency()
        if CLIENTS in options.loads:
            bench.run_client_latency()
    print(f"\n{about}\n")
    if bench.results:
        print(f"{table(bench.results)}\n")
    if bench.clients:
        print(f"{client_table(bench.clients)}\n")
    for verdict in bench.verdicts():
        print(verdict)
    for title, text in bench.profiles.items():
        print(f"\n### {title}\n\n{text}")
    for failure in bench.failures:
        print(f"FAIL  {failure}")
    if options.json:
        options.json.write_text(bench.as_json(about))
    return 1 if bench.failures else 0


class Bench:
    """The measurements on one server, one load after the other."""

    def __init__(
        self,
        server: Server,
        writer: Writer,
        limit: Limit,
        java: Path | None,
        options: argparse.Namespace,
    ) -> None:
        self._server = server
        self._writer = writer
        self._limit = limit
        self._java = java
        self._options = options
        self.results: list[LoadResult] = []
        self.latencies: dict[str, Latency] = {}
        self.clients: list[ClientResult] = []
        self.client_latencies: dict[str, Latency] = {}
        self.profiles: dict[str, str] = {}
        self.failures: list[str] = []

    def run_load(self, load: Load) -> None:
        """Write a load if it was asked for, and measure everybody on it in turn."""
        names = [load.name] + ([GTID] if load.name == "single" else [])
        names = [name for name in names if name in self._options.loads]
        clients = CLIENTS in self._options.loads and load.name in CLIENT_LOADS
        if not names and not clients:
            return
        written = self._writer.write(load, quick=self._options.quick)
        show(
            f"{load.title}: {written.rows:,} rows from {written.file}:"
            f"{written.position}, {written.bytes or 0:,} bytes"
        )
        if GTID in names and not written.gtids:
            show("the server has no GTIDs: nothing is measured in GTID mode")
            names.remove(GTID)
        if names:
            self._run_server(written, names)
        if clients:
            with self._going_on_after(f"{load.title}, clients"):
                runs = self._options.runs
                self.clients.append(run_clients(self._server, written, runs, show))
                if self._options.profile:
                    self.profiles |= profile_clients(self._server, written)

    def _run_server(self, written: Range, names: Sequence[str]) -> None:
        load = written.load
        results = [
            LoadResult(
                name,
                load.title + (", GTID mode" if name == GTID else ""),
                written.rows,
            )
            for name in names
        ]
        self.results += results

        for _ in range(self._options.runs):
            limit = self._limit.run(self._server, written)
            show(f"  limit {limit.rows / limit.seconds:,.0f} rows/s")
            for result in results:
                result.limit.append(limit)
                with self._going_on_after(result.title):
                    result.ours.append(self._run_ours(written, result))
        for result in results:
            with self._going_on_after(f"{result.title}, others"):
                self._run_others(written, result)
            if self._options.profile:
                with self._going_on_after(f"{result.title}, profile"):
                    self._profile(written, result)

    def run_latency(self) -> None:
        """Measure a waiting and a polling client."""
        seconds = LATENCY_QUICK_SECONDS if self._options.quick else LATENCY_SECONDS
        count = seconds * PER_SECOND
        clients = {"waiting 100 ms": WAITING_MS, "polling": POLLING_MS}
        self._writer.recreate_table()
        for number, (name, timeout_ms) in enumerate(clients.items()):
            with (
                self._going_on_after(f"latency, {name}"),
                ServerProcess(self._server, self._here()) as ours,
                DrainClient(ours.address, DESTINATION, alive=ours.alive) as client,
            ):
                client.subscribe()
                # Once this row arrived, the server stands at the end of the binlog.
                self._writer.write_end()
                drain(client, END)
                first = 1 + number * count
                keys = range(first, first + count)
                self.latencies[name] = measure(
                    self._server, partial(collect, client, timeout_ms, keys), keys
                )
                show(f"latency, {name}: {self.latencies[name]}")

    def run_client_latency(self) -> None:
        """Measure from a commit to the handler in a Python client."""
        seconds = LATENCY_QUICK_SECONDS if self._options.quick else LATENCY_SECONDS
        self._writer.recreate_table()
        with (
            self._going_on_after("latency, Python client"),
            ServerProcess(self._server, self._here()) as ours,
        ):
            found = client_latency(
                self._server,
                ours.address[1],
                self._writer.write_end,
                range(1, seconds * PER_SECOND + 1),
            )
            self.client_latencies["Python client"] = found
            show(f"latency, Python client: {found}")

    def verdicts(self) -> list[Verdict]:
        """Compare everything with its targets."""
        return verdicts(self.results, self.latencies) + client_verdicts(
            self.clients, self.client_latencies
        )

    @contextlib.contextmanager
    def _going_on_after(self, what: str) -> Iterator[None]:
        """Keep a failure for the end: what was measured before is worth showing."""
        try:
            yield
        except (DrainError, subprocess.SubprocessError) as error:
            notes = getattr(error, "__notes__", [])
            show("\n".join([f"{what}: {error}", *notes]))
            self.failures.append(f"{what}: {error}")

    def as_json(self, about: str) -> str:
        """Return all runs."""
        return json.dumps(
            {
                "machine": about,
                "loads": [dataclasses.asdict(result) for result in self.results],
                "latency": {
                    name: dataclasses.asdict(latency)
                    for name, latency in self.latencies.items()
                },
                "clients": [dataclasses.asdict(result) for result in self.clients],
                "client latency": {
                    name: dataclasses.asdict(latency)
                    for name, latency in self.client_latencies.items()
                },
                "failures": self.failures,
                "verdicts": [
                    dataclasses.asdict(verdict) for verdict in self.verdicts()
                ],
            },
            indent=2,
        )

    def _run_ours(self, written: Range, result: LoadResult) -> ServerRun:
        gtid = result.name == GTID
        with (
            ServerProcess(self._server, written, gtid=gtid) as ours,
            DrainClient(ours.address, DESTINATION, alive=ours.alive) as client,
        ):
            client.subscribe()
            run = drain(client, END, BATCH_SIZE)
            memory = ours.memory()
        show(
            f"  canal-server{' in GTID mode' if gtid else ''} "
            f"{written.rows / run.seconds:,.0f} rows/s, "
            f"{run.bytes / 1e6:.0f} MB in {run.batches} batches, waited for "
            f"{run.waited_s * 1000:.0f} ms, "
            f"memory {memory.now / 1e6:.0f} MB, highest {memory.highest / 1e6:.0f} MB"
        )
        return ServerRun(
            seconds=run.seconds,
            waited_s=run.waited_s,
            bytes=run.bytes,
            batches=run.batches,
            memory=memory,
            first_byte_s=run.first_byte_at - ours.started_at,
        )

    def _run_others(self, written: Range, result: LoadResult) -> None:
        gtid = result.name == GTID
        if isinstance(self._server, PrivateServer) and written.bytes and not gtid:
            result.decode = run_decode(self._server, written, self._options.runs)
        if not gtid and (library := run_library(self._server, written)):
            result.library.append(library)
        if self._java:
            runs = run_java(
                self._java, self._server, written, self._options.runs, gtid=gtid
            )
            for run, memory in runs:
                result.java.append(
                    ServerRun(run.seconds, run.waited_s, run.bytes, run.batches, memory)
                )
                show(f"  Java {written.rows / run.seconds:,.0f} rows/s")

    def _profile(self, written: Range, result: LoadResult) -> None:
        with (
            ServerProcess(self._server, written, gtid=result.name == GTID) as ours,
            DrainClient(ours.address, DESTINATION, alive=ours.alive) as client,
        ):
            with cpu_profile.CpuProfile(ours.pid) as profile:
                client.subscribe()
                drain(client, END)
            self.profiles[result.title] = profile.text

    def _here(self) -> Range:
        """Return an empty range at the end of the binlog."""
        file, position = self._server.binlog_position()
        return Range(LOADS[0], 0, file, position, "", file, position)


def machine(server: Server) -> str:
    """Return on what is measured, in a line."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    version = server.execute("SELECT VERSION()")[0][0]
    return (
        f"{len(names)} x {names[0] if names else platform.machine()}, "
        f"{platform.system()} {platform.release()}, Python "
        f"{platform.python_version()}, MySQL {version}, load {os.getloadavg()[0]:.2f}"
    )


def show(text: str) -> None:
    """Say what is going on, beside the results."""
    print(text, file=sys.stderr, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--loads",
        default=",".join(NAMES),
        help="names separated by commas (default: %(default)s)",
    )
    parser.add_argument("--runs", type=int, default=3, help="default: %(default)s")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the rows, to try it out"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs")
    parser.add_argument(
        "--profile", action="store_true", help="one more run of each load under perf"
    )
    options = parser.parse_args(arguments)
    options.loads = options.loads.split(",")
    if unknown := set(options.loads) - set(NAMES):
        parser.error(
            f"no such load: {', '.join(unknown)}; there are {', '.join(NAMES)}"
        )
    if options.runs < 1:
        parser.error(f"--runs {options.runs}: at least 1")
    if options.profile and (missing := cpu_profile.perf_missing()):
        parser.error(missing)
    return options


if __name__ == "__main__":
    sys.exit(main())
