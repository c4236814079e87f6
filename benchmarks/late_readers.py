"""Clients that return after a long time, each at another position, beside one of them.

A private MySQL and a canal-server. A load of single-row transactions is written in
parts, as many as there are clients, and after each part one more client leaves, so that
each lacks another share when all return. Measured are the rows a second of one client
that lacks everything and of all others at once, and the latency of a client that never
left, before and meanwhile. `python benchmarks/late_readers.py --help` shows the
options; needs the package to be installed, as `make bench` has it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from drain import DrainClient
from group import drain_all
from latency import PER_SECOND, WAITING_MS, Latency, collect, measure
from loads import LOADS, SERVER_OPTIONS, Range, Writer
from run import machine, show
from server_process import DESTINATION, FILE_WIRING, ServerProcess, require_package
from servers import PrivateServer

from canal_server.daemon.control import ask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from servers import Server

CLIENTS = 10
ROWS = 30_000  # of a part
LATENCY_SECONDS = 5
SHARE_MIN = 0.8  # of the rate of one client
LIVE, ALONE, FIRST = 1001, 1100, 1101  # client ids
PATIENCE_S = 120.0
LOOK_S = 0.2
SETTINGS = {"canal.instance.cursor.pin.seconds": "0"}  # who is away is passed over


@dataclass(frozen=True, slots=True)
class Return:
    """A client that takes what it lacks: so many parts, in this time of the clock."""

    parts: int
    began_at: float
    ended_at: float


def take(address: tuple[str, int], client_id: int, parts: int) -> Return:
    """Connect a client, and take and ack what it lacks."""
    with DrainClient(address, DESTINATION, client_id=str(client_id)) as client:
        client.subscribe()
        began_at = time.monotonic()
        drain_all(client, parts)
        return Return(parts, began_at, time.monotonic())


def wait_until_passed_over(process: ServerProcess, clients: Iterable[int]) -> None:
    """Wait until the ring keeps nothing for clients that left."""
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        (instance,) = ask(process.data_dir, "status")["instances"]
        late = instance.get("late_clients", {})
        if all(
            not late.get(str(each), {"in_ring": True})["in_ring"] for each in clients
        ):
            return
        time.sleep(LOOK_S)
    raise SystemExit("the ring still serves a client that left")


class Bench:
    """A server with one client that stays, and others that leave one by one."""

    def __init__(
        self, server: Server, writer: Writer, process: ServerProcess, clients: int
    ) -> None:
        self._server, self._writer, self._process = server, writer, process
        self._ids = range(FIRST, FIRST + clients)
        self._keys = 0  # that were written to measure the latency

    def leave(self, live: DrainClient, rows: int) -> None:
        """Write the parts; after each, the next client takes all so far and leaves."""
        load = replace(next(each for each in LOADS if each.name == "single"), rows=rows)
        for client_id in (ALONE, *self._ids):
            with DrainClient(
                self._process.address, DESTINATION, client_id=str(client_id)
            ) as client:
                client.subscribe()
        for number, client_id in enumerate(self._ids):
            if number:
                take(self._process.address, client_id, number)
            self._writer.write(load)
            drain_all(live, 1)
            show(f"  part {number + 1} of {len(self._ids)} written")
        self._writer.recreate_table()
        wait_until_passed_over(self._process, (ALONE, *self._ids))

    def latency(self, live: DrainClient) -> Latency:
        """Measure from a commit to the client that stayed."""
        first, self._keys = self._keys, self._keys + PER_SECOND * LATENCY_SECONDS
        keys = range(first + 1, self._keys + 1)
        return measure(self._server, partial(collect, live, WAITING_MS, keys), keys)

    def all_return(self, live: DrainClient) -> tuple[list[Return], Latency]:
        """Have all return at once, and measure the latency meanwhile."""
        parts = len(self._ids)
        tasks = [
            (self._process.address, each, parts - number)
            for number, each in enumerate(self._ids)
        ]
        with multiprocessing.get_context("fork").Pool(len(tasks)) as pool:
            returning = pool.starmap_async(take, tasks)
            latency = self.latency(live)
            return returning.get(PATIENCE_S), latency


def rate(returned: Sequence[Return], rows: int) -> float:
    """Return the rows a second, from the first beginning to the last end."""
    took_s = max(each.ended_at for each in returned) - min(
        each.began_at for each in returned
    )
    return rows * sum(each.parts for each in returned) / took_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; status 1 when they share less than one client has."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--clients", type=int, default=CLIENTS, help="(default: %(default)d)")
    add("--rows", type=int, default=ROWS, help="of a part (default: %(default)d)")
    args = parser.parse_args(arguments)
    show(f"canal_server: {require_package()}")
    with ExitStack() as stack:
        server = stack.enter_context(PrivateServer("mysql", SERVER_OPTIONS))
        writer = stack.enter_context(Writer(server, ours=True))
        writer.recreate_table()
        here = Range(LOADS[0], 0, *server.binlog_position(), "", "", 0)
        process = stack.enter_context(
            ServerProcess(
                server,
                here,
                wiring=FILE_WIRING,
                settings=SETTINGS,
            )
        )
        live = stack.enter_context(
            DrainClient(process.address, DESTINATION, client_id=str(LIVE))
        )
        live.subscribe()
        bench = Bench(server, writer, process, args.clients)
        print(machine(server))
        bench.leave(live, args.rows)
        quiet = bench.latency(live)
        alone = rate([take(process.address, ALONE, args.clients)], args.rows)
        returned, busy = bench.all_return(live)
    together = rate(returned, args.rows)
    print(f"one client that lacks {args.clients} parts: {alone / 1000:,.0f} k rows/s")
    print(
        f"{args.clients} clients, each at another position: {together / 1000:,.0f} k"
        f" rows/s in all, {together / alone:.2f} of one"
    )
    for when, found in (("alone", quiet.from_commit), ("meanwhile", busy.from_commit)):
        print(
            f"commit to a client that stayed, {when}: median {found.median:.2f} ms,"
            f" 99 % {found.p99:.2f} ms, at most {found.highest:.0f} ms"
        )
    is_enough = together >= SHARE_MIN * alone
    print("within its limit" if is_enough else f"less than {SHARE_MIN:g} of one client")
    return int(not is_enough)


if __name__ == "__main__":
    raise SystemExit(main())
