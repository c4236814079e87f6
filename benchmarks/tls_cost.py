"""Measures what TLS costs: throughput, latency, log-ins; beside clear text in one run.

    python benchmarks/tls_cost.py [--runs N] [--quick]

Loads and clients are those of `run.py`; both connect to servers with the same settings,
alternately. The certificate has a key on the curve P-256.
"""

from __future__ import annotations

import argparse
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from drain import DrainClient, drain
from latency import PER_SECOND, POLLING_MS, Latency, collect, measure
from loads import END_TABLE, LOADS, SERVER_OPTIONS, Range, Writer
from process_times import seconds_of
from server_process import DESTINATION, ServerProcess, require_package

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Mapping

END = END_TABLE.encode()
LOGINS = 500
LATENCY_SECONDS = 10


class Bench:
    """Servers that accept TLS and clear text, and clients of both kinds."""

    def __init__(self, server: PrivateServer, writer: Writer, folder: Path) -> None:
        self._server = server
        self._writer = writer
        cert, key = folder / "server.pem", folder / "server.key"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=x"),
                *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
                *("-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", str(key), "-out", str(cert)),
            ],
            check=True,
            capture_output=True,
        )
        self._main = {"canal.tls.certFile": str(cert), "canal.tls.keyFile": str(key)}
        self.clients: Mapping[str, ssl.SSLContext | None] = {
            "clear text": None,
            "TLS": ssl.create_default_context(cafile=cert),
        }

    def throughput(self, load: Range, client: str) -> tuple[float, float]:
        """Return the rows per second of a drained load, and the server's seconds."""
        with (
            ServerProcess(self._server, load, main=self._main) as ours,
            DrainClient(
                ours.address, DESTINATION, alive=ours.alive, tls=self.clients[client]
            ) as drainer,
        ):
            before = seconds_of(ours.pid)
            drainer.subscribe()
            run = drain(drainer, END)
            return load.rows / run.seconds, seconds_of(ours.pid) - before

    def latency(self, client: str, first: int) -> Latency:
        """Return the times from commits to a client."""
        file, position = self._server.binlog_position()
        here = Range(LOADS[0], 0, file, position, "", file, position)
        with (
            ServerProcess(self._server, here, main=self._main) as ours,
            DrainClient(
                ours.address, DESTINATION, alive=ours.alive, tls=self.clients[client]
            ) as drainer,
        ):
            drainer.subscribe()
            self._writer.write_end()
            drain(drainer, END)
            keys = range(first, first + LATENCY_SECONDS * PER_SECOND)
            return measure(
                self._server, partial(collect, drainer, POLLING_MS, keys), keys
            )

    def logins(self, client: str) -> tuple[float, float]:
        """Return log-ins per second of one client, and the server's ms for each."""
        file, position = self._server.binlog_position()
        here = Range(LOADS[0], 0, file, position, "", file, position)
        main = self._main | ({"canal.tls.required": "true"} if client == "TLS" else {})
        if client != "TLS":
            main = {}  # a server without TLS does not wait for its first byte
        with ServerProcess(self._server, here, main=main) as ours:
            connect = partial(
                DrainClient,
                ours.address,
                DESTINATION,
                alive=ours.alive,
                tls=self.clients[client],
            )
            with connect():
                before, started = seconds_of(ours.pid), time.monotonic()
            for _ in range(LOGINS):
                with connect():
                    pass
            took = time.monotonic() - started
            return LOGINS / took, (seconds_of(ours.pid) - before) * 1000 / LOGINS


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="of each load")
    parser.add_argument("--quick", action="store_true", help="write short loads")
    args = parser.parse_args()
    print(f"canal_server: {require_package()}", file=sys.stderr)
    with (
        tempfile.TemporaryDirectory() as folder,
        PrivateServer("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=True) as writer,
    ):
        bench = Bench(server, writer, Path(folder))
        for load in LOADS[:2]:
            written = writer.write(load, quick=args.quick)
            found: dict[str, list[tuple[float, float]]] = {}
            for _ in range(args.runs):
                for client in bench.clients:
                    found.setdefault(client, []).append(
                        bench.throughput(written, client)
                    )
            rates = {
                client: statistics.median(rate for rate, _ in runs)
                for client, runs in found.items()
            }
            seconds = {
                client: statistics.median(each for _, each in runs)
                for client, runs in found.items()
            }
            for client, rate in rates.items():
                print(
                    f"{load.title}, {client}: {rate / 1000:,.0f} k rows/s,"
                    f" {seconds[client]:.2f} s of the server's processor"
                )
            print(
                f"{load.title}: {rates['TLS'] / rates['clear text']:.2f} of clear text"
            )
        writer.recreate_table()
        for number, client in enumerate(bench.clients):
            times = bench.latency(client, 1 + number * LATENCY_SECONDS * PER_SECOND)
            print(f"commit to client, {client}: {times.from_commit}")
        for client in bench.clients:
            rate, cost_ms = bench.logins(client)
            print(f"log-ins, {client}: {rate:,.0f} a second, {cost_ms:.2f} ms each")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
