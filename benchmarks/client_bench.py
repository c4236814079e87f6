"""The Python client beside those of others: its rates, memory and latency."""

from __future__ import annotations

import importlib.util
import subprocess
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from client_pass import RETRY_S, WAYS
from client_programs import run_way
from client_results import TITLES, ClientResult
from client_rivals import (
    JavaClient,
    NotHereError,
    run_canal_python,
    run_mysql_replication,
)
from drain import DrainError
from latency import LATE_SECONDS_MAX, PER_SECOND, measure
from loads import END_TABLE, TABLE
from server_process import DESTINATION

from canal_server.client import CanalClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_programs import ClientRun
    from latency import Latency
    from loads import Range
    from servers import Server

LOADS = ("inserts", "single")
LOOK_S = 1.0
PROFILED = ("typed", "text", "count", "arrow")


def run_clients(
    server: Server, load: Range, runs: int, show: Callable[[str], None]
) -> ClientResult:
    """Measure every client on a load, in turn. Raises SubprocessError for ours."""
    result = ClientResult(load.load.name, load.load.title)

    def add(who: str, run: ClientRun) -> None:
        result.add(who, run)
        show(f"  client, {who}: {run.rows / run.seconds:,.0f} rows/s")

    ways = list(WAYS)
    if not importlib.util.find_spec("pyarrow"):
        ways.remove("arrow")
        result.missing["arrow"] = "pyarrow is not installed"
    for _ in range(runs):
        for way in ways:
            add(way, run_way(server, load, way))
    others = {
        "mysql-replication": run_mysql_replication,
        "canal-python": run_canal_python,
    }
    for who, run in others.items():
        try:
            add(who, run(server, load))
        except (NotHereError, subprocess.SubprocessError) as error:
            result.missing[who] = _reason(error)
    try:
        with JavaClient() as java:
            java.run(server, load)  # warms it up
            for _ in range(runs):
                add("java", java.run(server, load))
    except (NotHereError, subprocess.SubprocessError) as error:
        result.missing["java"] = _reason(error)
    for who, why in result.missing.items():
        show(f"  client, {who}: {why}")
    return result


def _reason(error: Exception) -> str:
    notes = "\n".join(getattr(error, "__notes__", [])).strip().splitlines()
    return f"{error}: {notes[-1]}" if notes else str(error)


def profile_clients(server: Server, load: Range) -> dict[str, str]:
    """Return where the time of our client goes, by what it is used for.

    Raises SubprocessError.
    """
    return {
        f"{load.load.title}, {TITLES[way]}": run_way(
            server, load, way, profile=True
        ).profile
        for way in PROFILED
    }


def client_latency(
    server: Server, port: int, end: Callable[[], None], keys: range
) -> Latency:
    """Measure from commit to handler; `end` writes the row that ends a load.

    Raises DrainError if rows do not come.
    """
    client = CanalClient(port=port, destination=DESTINATION, reconnect_for_s=RETRY_S)
    with closing(client):
        end()
        for change in client:
            if change.table == END_TABLE:
                break
        return measure(server, partial(_collect, client, keys), keys)


def _collect(client: CanalClient, keys: range) -> dict[int, float]:
    """Handle changes until every key was there; return when each arrived."""
    arrived: dict[int, float] = {}
    awaited = set(keys)
    give_up_at = time.monotonic() + len(keys) / PER_SECOND + LATE_SECONDS_MAX
    for message in client.messages(timeout_s=LOOK_S, empty=True):
        for change in message.changes():
            now = time.monotonic()
            key = change.after["id"] if change.after and change.table == TABLE else None
            if isinstance(key, int) and key in awaited:
                arrived[key] = now
                awaited.discard(key)
        if not awaited:
            return arrived
        if time.monotonic() > give_up_at:
            raise DrainError(f"of {len(keys)} rows only {len(arrived)} came")
    raise AssertionError("nobody stops the client")
