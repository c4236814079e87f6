"""What the demo tells, from setting up to the sums at the end.

Leaves out the terminal (`demo_screen`), the shop (`demo_shop`), the server's process
(`demo_daemon`) and the client (`demo_client`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
from demo_client import Copy, Follower, NothingCame, is_statement, rows_of
from demo_daemon import DESTINATION, Daemon, DaemonFailed
from demo_screen import Interrupted, Interrupts, Screen
from demo_shop import (
    BEFORE_THE_KILL,
    BURST_SALES,
    OPENING,
    PACE_PER_SECOND,
    PACE_SALES,
    TABLES,
    WHILE_IT_IS_AWAY,
    Shop,
    Step,
)
from server_data import template_of
from server_folders import cache_folder
from servers import PrivateServer, Server, Unavailable, named_or_private

from canal_server import __version__
from canal_server.errors import CanalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.client import Entry

FLAVOURS = {"mysql": "MySQL", "mariadb": "MariaDB"}
SIGNALLED = 128
MIB = 1024 * 1024


class WrongCopyError(Exception):
    """The client's copy of the tables is not what the tables are."""


class Demo:
    """One run: the source, the server, the client, and what is made of them."""

    def __init__(
        self, screen: Screen, interrupts: Interrupts, stack: ExitStack
    ) -> None:
        self._screen = screen
        self._interrupts = interrupts
        self._stack = stack
        self._copy = Copy()
        self._burst: list[Entry] = []
        self._rows_per_s = 0.0
        self._latencies_s: list[float] = []

    def run(self, flavours: Sequence[str]) -> None:
        """Tell the whole story. Raises what `main` catches."""
        self._screen.heading("Setting up")
        self._set_up(flavours)
        self._screen.heading("Changes, as the client receives them")
        for step in OPENING:
            self._screen.pause()
            self._play(step)
        self._screen.heading("The server is killed while the shop goes on")
        self._screen.pause()
        self._survive_a_kill()
        self._screen.heading("How fast")
        self._measure_latency()
        self._measure_burst()
        self._screen.heading("In the end")
        self._sum_up()

    # --- setting up -------------------------------------------------------------------

    def _set_up(self, flavours: Sequence[str]) -> None:
        source = self._source(flavours)
        private = isinstance(source, PrivateServer)
        schema = "shop" if private else f"canal_demo_{uuid.uuid4().hex[:8]}"
        self._shop = Shop(source, schema)
        self._stack.callback(self._shop.close)
        version = self._shop.open()
        self._prompt = "mariadb" if "mariadb" in version.lower() else "mysql"
        kind = "private" if private else "yours"
        self._screen.note(
            f"source   {FLAVOURS[self._prompt]} {version} on {source.host}:"
            f"{source.port} ({kind}), schema {schema}"
        )
        with self._interrupts.held():
            folder = tempfile.TemporaryDirectory(prefix="canal-demo-")
            self._stack.callback(folder.cleanup)
        self._daemon = Daemon(Path(folder.name), source, schema)
        self._stack.callback(self._daemon.stop)
        self._start_daemon()
        self._screen.note(
            f"server   canal-server {__version__} on 127.0.0.1:{self._daemon.port}, by "
            f"canal-server start --conf {self._daemon.conf}"
        )
        self._follower = Follower(DESTINATION, schema)
        self._stack.callback(self._follower.close)
        self._follower.connect(self._daemon.port)
        self._screen.note(
            f"client   subscribed to destination {DESTINATION}, tables {schema}\\..*"
        )

    def _source(self, flavours: Sequence[str]) -> Server:
        """Return the first server that can be had, started. Raises Unavailable."""
        reasons = []
        for flavour in flavours:
            server = named_or_private(flavour)
            self._stack.callback(server.stop)
            try:
                if isinstance(server, PrivateServer):
                    self._prepare(server)
                with self._interrupts.held():
                    return server.start()
            except Unavailable as error:
                if not isinstance(server, PrivateServer):
                    raise
                reasons.append(f"no {FLAVOURS[flavour]}: {_in_one_line(error)}")
        raise Unavailable(
            f"{'; '.join(reasons)}. Name a server by MYSQL_URL=mysql://user:password@"
            "host:port, or let root run: apt-get install mariadb-server-core"
        )

    def _prepare(self, server: PrivateServer) -> None:
        """See that the programs of a private server are there, which may take long."""
        if not any(cache_folder().glob(f"{server.flavour}-data-*")):
            self._screen.aside(
                f"fetching {FLAVOURS[server.flavour]} from Debian's packages into "
                f"{cache_folder()}, only this once …"
            )
        template_of(server.programs)

    def _start_daemon(self) -> None:
        with self._interrupts.held():
            self._daemon.launch()
        self._daemon.wait_until_reading()

    # --- steps ------------------------------------------------------------------------

    def _play(self, step: Step, *, ack: bool = True) -> None:
        """Write a step and show how it arrives."""
        self._show(step)
        self._begin(partial(self._shop.begin, step))
        self._follow(step.changes, ack=ack)

    def _begin(self, write: Callable[[], None]) -> None:
        """Let the shop write; a thread that did not quite start cannot be joined."""
        with self._interrupts.held():
            write()

    def _show(self, step: Step) -> None:
        self._screen.statement(self._prompt, f"{'; '.join(step.sql)};")

    def _follow(self, changes: int, *, ack: bool = True, late: bool = False) -> None:
        """Show changes until all came and the shop is done."""
        statement, came_at = False, 0.0
        for entry, arrived, again in self._follower.take(changes, ack_last=ack):
            self._screen.change(entry)
            self._copy.apply(entry)
            if not again:
                statement, came_at = is_statement(entry), arrived
            elif rows_of(entry):
                self._screen.aside("└ once more: it was not acknowledged")
        self._shop.wait()
        what = "a statement" if statement else f"a transaction, {_rows_text(changes)}"
        way_ms = (came_at - self._shop.sent[-1]) * 1e3
        when = "late, but not lost" if late else f"{way_ms:.1f} ms after it was sent"
        self._screen.aside(f"└ {what}, {when}")

    def _survive_a_kill(self) -> None:
        """Kill the server between a delivery and its ack, and start it again."""
        self._daemon.wait_until_stored(*self._follower.last_end)
        self._play(BEFORE_THE_KILL, ack=False)
        self._daemon.kill()
        self._follower.close()
        self._screen.event("canal-server is killed before the client acknowledges that")
        self._screen.pause()
        self._show(WHILE_IT_IS_AWAY)
        self._begin(partial(self._shop.begin, WHILE_IT_IS_AWAY))
        self._shop.wait()
        self._screen.pause()
        begun = time.monotonic()
        self._start_daemon()
        self._follower.connect(self._daemon.port)
        ready_s = time.monotonic() - begun
        self._screen.event(f"canal-server runs again, its client too, {ready_s:.1f} s")
        self._follow(WHILE_IT_IS_AWAY.changes, late=True)

    # --- speed ------------------------------------------------------------------------

    def _measure_latency(self) -> None:
        """Note how long each of many transactions took from the writer to the client.

        What the source needs to execute and commit it is part of that: the change may
        be with the client before the writer knows that it is committed.
        """
        arrivals: list[float] = []
        self._begin(self._shop.begin_pace)
        for entry, arrived, _ in self._follower.take(PACE_SALES):
            self._copy.apply(entry)
            arrivals += [arrived] * rows_of(entry)
            self._screen.count("sales", len(arrivals), PACE_SALES)
        self._shop.wait()
        self._latencies_s = [
            came - sent for sent, came in zip(self._shop.sent, arrivals, strict=True)
        ]
        self._screen.clear_count()
        self._screen.note(
            f"{PACE_SALES} transactions, {PACE_PER_SECOND} a second: each executed and "
            f"delivered in {self._latency_text()}"
        )

    def _latency_text(self) -> str:
        cuts = statistics.quantiles(self._latencies_s, n=100, method="inclusive")
        return f"{cuts[49] * 1e3:.1f} ms (median; p99 {cuts[98] * 1e3:.1f} ms)"

    def _measure_burst(self) -> None:
        """Note how fast many rows go through while they are written."""
        rows, came_at = 0, 0.0
        begun = time.monotonic()
        self._begin(self._shop.begin_burst)
        for entry, arrived, _ in self._follower.take(BURST_SALES):
            self._burst.append(entry)  # looked into afterwards: only the way counts
            rows, came_at = rows + rows_of(entry), arrived
            self._screen.count("sales", rows, BURST_SALES)
        self._shop.wait()
        self._rows_per_s = rows / (came_at - begun)
        done = self._shop.committed
        self._screen.clear_count()
        self._screen.note(
            f"{rows:,} rows at once: written in {done[-1] - begun:.2f} s, all of them "
            f"delivered after {came_at - begun:.2f} s"
        )

    # --- the end ----------------------------------------------------------------------

    def _sum_up(self) -> None:
        """Compare the client's copy with the tables, and end. Raises WrongCopyError."""
        for entry in self._burst:
            self._copy.apply(entry)
        sizes = []
        for name in TABLES:
            rows = self._shop.table(name)
            sizes.append(f"{len(rows):,} {name}s")
            if wrong := self._copy.differences(name, rows):
                raise WrongCopyError(f"{len(wrong)} differences; {wrong[0]}")
        memory = self._daemon.memory_bytes() / MIB
        if status := self._daemon.stop():
            raise DaemonFailed(f"canal-server ended with status {status}")
        counts = self._follower.counts
        self._screen.note(f"the client's copy equals the tables: {' and '.join(sizes)}")
        self._screen.result(
            f"{_rows_text(counts.rows)}, {counts.transactions:,} transactions, "
            f"{self._rows_per_s:,.0f} rows/s, from writer to client "
            f"{self._latency_text()}, {memory:.0f} MiB"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(description="Show canal-server at work.")
    parser.add_argument("flavour", nargs="?", choices=list(FLAVOURS))
    wanted = parser.parse_args(arguments)
    screen, interrupts = Screen(), Interrupts()
    try:
        with ExitStack() as stack:
            stack.callback(interrupts.ignore)  # runs again below, before all others
            try:
                Demo(screen, interrupts, stack).run(_flavours(wanted.flavour))
            finally:
                interrupts.ignore()
        screen.aside(
            "All of it is gone now. Next: README.md, “Point it at your own MySQL”."
        )
    except Interrupted as end:
        with contextlib.suppress(OSError):
            print(f"\ndemo: {end}; all is cleaned up", file=sys.stderr)
        return SIGNALLED + end.number
    except BrokenPipeError:  # nobody reads what we print any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Unavailable as error:
        return _failed(_in_one_line(error))
    except pymysql.err.MySQLError as error:
        return _failed(
            f"the database server says: {error}; the demo's account must be allowed to "
            "make a schema, and needs SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
        )
    except (DaemonFailed, NothingCame, WrongCopyError, CanalError, OSError) as error:
        return _failed(str(error))
    return 0


def _flavours(wanted: str | None) -> list[str]:
    """Return the flavours to try: a named server alone, else MySQL before MariaDB."""
    if wanted:
        return [wanted]
    named = [name for name in FLAVOURS if os.environ.get(f"{name.upper()}_URL")]
    return named[:1] or list(FLAVOURS)


def _rows_text(rows: int) -> str:
    return f"{rows:,} row{'' if rows == 1 else 's'}"


def _in_one_line(error: Exception) -> str:
    """Return what happened and, of a program's output below it, the last line."""
    first, *output = str(error).splitlines()
    return f"{first} {output[-1]}" if output else first


def _failed(why: str) -> int:
    print(f"demo: {why}", file=sys.stderr)
    return 1
