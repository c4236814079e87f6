"""Measures how soon changes arrive again after a failure, with the default settings.

    python benchmarks/failover_times.py [--runs N] [--seed N]

A writer commits rows all the time, and a client of ours receives them. Then

- the link to the source dies with its connections open (a proxy holds back all bytes),
  or the source is frozen (SIGSTOP), until some time after the server has noticed;
- in a cluster of two servers the one that runs the destination is killed (SIGKILL).
  The table history is in a MySQL database, as the guide to clusters says; the ZooKeeper
  has the tick that its own sample settings have, 2 s.

Prints the minimum, median and maximum of each time; status 1 if one is over its target.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loads import LOADS, SCHEMA, SERVER_OPTIONS, Range, Writer, insert_row
from server_process import DESTINATION, ServerProcess, require_package

from canal_server.client import CanalClient
from canal_server.daemon.control import ControlError, ask

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer
from tcp_proxy import Proxy
from zookeepers import PrivateZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Self

    from servers import Server

    # Seconds, by what failed, and what was measured.
    Results = dict[tuple[str, str], list[float]]

CLUSTER_WIRING = "classpath:spring/default-instance.xml"
HISTORY = "bench_history"  # database
TICK_MS = 2000
WRITE_PAUSE_S = 0.02
POLL_S = 0.02
TIMEOUT_S = 60.0
FLOW_ROWS = 50  # between a start and the fault
FAULT_LASTS_S = 20.0  # at most, after it was noticed
NOTICED, ANSWERED = "noticed", "first new row after its end"
KILLED, TAKEN_OVER = "kill -9 in a cluster", "first new row"
TARGETS_S = {NOTICED: 10.0, ANSWERED: 2.0, TAKEN_OVER: 7.0}  # at most


class TableWriter(threading.Thread):
    """Inserts one row after the other, whatever happens to the source meanwhile."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._ended = threading.Event()

    def run(self) -> None:
        """Write until the end of the context."""
        connection = self._server.connect(database=SCHEMA)
        with connection, connection.cursor() as cursor:
            key = 1
            while not self._ended.wait(WRITE_PAUSE_S):
                insert_row(cursor, key)
                key += 1

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join(TIMEOUT_S)


class Follower(threading.Thread):
    """A client that receives the rows, and waits for ones that it has not had yet."""

    def __init__(self, host: str, port: int = 0) -> None:
        super().__init__(daemon=True)
        self._client = CanalClient(host, port, destination=DESTINATION)
        self._changed = threading.Condition()
        self._newest = 0  # key
        self._error: Exception | None = None

    def run(self) -> None:
        """Receive until the end of the context."""
        try:
            with self._client:
                for change in self._client.changes():
                    if change.after is not None:
                        self._took(int(change.after["id"]))
        except Exception as error:  # noqa: BLE001  # raised by the thread that waits
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def wait_for_rows(self, count: int) -> None:
        """Wait until so many rows arrived that never did before."""
        with self._changed:
            wanted = self._newest + count
            done = self._changed.wait_for(
                lambda: self._error or self._newest >= wanted, TIMEOUT_S
            )
            if self._error:
                raise self._error
            assert done, f"{count} rows did not arrive within {TIMEOUT_S:g} s"

    def _took(self, key: int) -> None:
        with self._changed:
            if key > self._newest:
                self._newest = key
                self._changed.notify_all()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self.join(TIMEOUT_S)


def here(server: Server) -> Range:
    """Return where the binlog ends now, as a load without rows."""
    file, position = server.binlog_position()
    return Range(LOADS[0], 0, file, position, "", file, position)


def seconds_until(condition: Callable[[], bool]) -> float:
    """Return how long it takes until this holds."""
    began_at = time.monotonic()
    while not condition():
        assert time.monotonic() < began_at + TIMEOUT_S, "it never happened"
        time.sleep(POLL_S)
    return time.monotonic() - began_at


def runs_destination(ours: ServerProcess) -> bool:
    """Return whether a server reads the source, as far as it knows."""
    try:
        status = ask(ours.data_dir, "status")
    except ControlError:  # it is not up yet
        return False
    return any(each.get("state") == "running" for each in status["instances"])


@contextlib.contextmanager
def frozen(server: PrivateServer) -> Iterator[None]:
    """Have a source stand still within the context."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def interrupt(
    ours: ServerProcess,
    follower: Follower,
    fault: AbstractContextManager[None],
    extra_s: float,
) -> tuple[float, float]:
    """Return how soon a fault is noticed, and how soon a row arrives after its end."""
    with fault:
        noticed_s = seconds_until(lambda: not runs_destination(ours))
        time.sleep(extra_s)  # the fault ends at any point of what is tried meanwhile
    ended_at = time.monotonic()
    follower.wait_for_rows(1)
    answered_s = time.monotonic() - ended_at
    seconds_until(lambda: runs_destination(ours))
    follower.wait_for_rows(FLOW_ROWS)
    return noticed_s, answered_s


def measure_source(server: PrivateServer, runs: int, chance: random.Random) -> Results:
    """Return the seconds of each run, link and freeze alternating."""
    found: Results = defaultdict(list)
    proxy = Proxy(server.host, server.port)
    address = {"canal.instance.master.address": f"{server.host}:{proxy.port}"}
    with (
        contextlib.closing(proxy),
        ServerProcess(server, here(server), settings=address) as ours,
        TableWriter(server),
    ):
        seconds_until(lambda: runs_destination(ours))
        with Follower(*ours.address) as follower:
            follower.wait_for_rows(FLOW_ROWS)
            for _ in range(runs):
                for name, fault in {
                    "half-open link": proxy.silence(),
                    "frozen source": frozen(server),
                }.items():
                    extra_s = chance.uniform(0, FAULT_LASTS_S)
                    noticed_s, answered_s = interrupt(ours, follower, fault, extra_s)
                    found[name, NOTICED].append(noticed_s)
                    found[name, ANSWERED].append(answered_s)
    return found


def history_settings(history: PrivateServer) -> dict[str, str]:
    """Return where the table history is."""
    user, password = history.user, history.password
    history.execute(
        f"CREATE DATABASE {HISTORY}", f"GRANT ALL ON {HISTORY}.* TO '{user}'@'%'"
    )
    address = f"{history.host}:{history.port}/{HISTORY}"
    return {
        "canal.instance.tsdb.url": f"jdbc:mysql://{address}",
        "canal.instance.tsdb.dbUsername": user,
        "canal.instance.tsdb.dbPassword": password,
    }


def measure_takeover(
    server: PrivateServer, runs: int, chance: random.Random
) -> Results:
    """Return the seconds from each kill to the first row that is new."""
    found: list[float] = []
    with (
        PrivateZooKeeper(tick_ms=TICK_MS) as zookeeper,
        PrivateServer("mysql") as history,
        contextlib.ExitStack() as opened,
        TableWriter(server),
    ):
        main = {"canal.zkServers": zookeeper.servers, "canal.register.ip": "127.0.0.1"}
        settings = history_settings(history)

        def start() -> ServerProcess:
            process = ServerProcess(
                server,
                here(server),
                wiring=CLUSTER_WIRING,
                main=main,
                settings=settings,
            )
            return opened.enter_context(process)

        active, other = start(), start()
        seconds_until(lambda: runs_destination(active) or runs_destination(other))
        with Follower(f"zk://{zookeeper.servers}") as follower:
            for _ in range(runs):
                follower.wait_for_rows(FLOW_ROWS)
                if not runs_destination(active):
                    active, other = other, active
                # The kill comes at any point of a tick and between two heartbeats.
                time.sleep(chance.uniform(0, TICK_MS / 1000))
                os.kill(active.pid, signal.SIGKILL)
                killed_at = time.monotonic()
                # What it sent before its end still arrives.
                seconds_until(partial(runs_destination, other))
                follower.wait_for_rows(1)
                found.append(time.monotonic() - killed_at)
                active, other = other, start()
    return {(KILLED, TAKEN_OVER): found}


def main() -> int:
    """Measure and print; status 1 if a time is over its target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="of each kind")
    parser.add_argument("--only", choices=("source", "cluster"), help="one kind")
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    args = parser.parse_args()
    chance = random.Random(args.seed)
    print(f"canal_server: {require_package()}; seed {args.seed}", file=sys.stderr)
    found: Results = {}
    with (
        PrivateServer("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=True) as tables,
    ):
        for kind, measure in {
            "source": measure_source,
            "cluster": measure_takeover,
        }.items():
            if args.only in (None, kind):
                tables.recreate_table()
                found |= measure(server, args.runs, chance)
    too_slow = False
    for (fault, what), seconds in found.items():
        highest, target = max(seconds), TARGETS_S[what]
        print(
            f"{fault}, {what}: {min(seconds):.1f} to {highest:.1f} s,"
            f" median {statistics.median(seconds):.1f} s; target {target:g} s"
        )
        too_slow |= highest > target
    return int(too_slow)


if __name__ == "__main__":
    raise SystemExit(main())
