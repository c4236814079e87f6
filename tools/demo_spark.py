"""Shows the mirror at work: a shop's tables in a lake, followed while the shop goes on.

    python tools/demo_spark.py [--seconds N] [--keep FOLDER]

A private MySQL (MYSQL_URL names another one, whose schema `shop` must not exist),
canal-server and a mirror are started; tables are copied, followed under load and
through DDL, and compared with their source in the end. Nothing is left running, and
no file but those that make the next time faster, and those that --keep asks for.

Exit status: 0 all came as it should, 1 something did not or is missing, 128 + n ended
by signal n.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
from demo_daemon import DESTINATION, Daemon, DaemonFailed
from demo_orders import DDL, LOAD_PER_SECOND, SCHEMA, TABLES, Orders
from demo_screen import Interrupted, Interrupts, Screen
from mirror_process import MirrorFailed, MirrorProcess
from servers import Unavailable, named_or_private
from zookeepers import find_java

from canal_server import __version__
from canal_server.errors import CanalError

if TYPE_CHECKING:
    from collections.abc import Sequence

SIGNALLED = 128
COPY_SECONDS_MAX = 300.0
FOLLOW_SECONDS_MAX = 120.0
SETTINGS = rf"""
tables:
  - match: {SCHEMA}\.customers
    masks:
      email: hash
      phone: {{truncate: 6}}
  - match: {SCHEMA}\..*
copy:
  keyless_lock: true  # for the moment in which the copy of `visits` begins
spark:
  spark.python.authenticate.socketTimeout: 120s  # the machine may be busy
"""
EXTRAS = ("pyspark", "pyarrow", "deltalake", "yaml")


class WrongCopyError(Exception):
    """The lake's tables are not what the source's are."""


class Demo:
    """One run: the source, the server, the mirror, and what is made of them."""

    def __init__(
        self,
        screen: Screen,
        interrupts: Interrupts,
        stack: ExitStack,
        wanted: argparse.Namespace,
    ) -> None:
        self._screen = screen
        self._interrupts = interrupts
        self._stack = stack
        self._wanted = wanted

    def run(self) -> None:
        """Tell the whole story. Raises what `main` catches."""
        self._screen.heading("Setting up")
        self._set_up()
        self._screen.heading("The mirror: a file of settings, and a command")
        self._start_mirror()
        self._screen.heading("The shop goes on, and its tables change")
        self._follow()
        self._screen.heading("Is the copy what the source is?")
        self._verify()
        self._screen.heading("In the end")
        self._sum_up()

    def _set_up(self) -> None:
        with self._interrupts.held():
            server = named_or_private("mysql")
            self._stack.callback(server.stop)
            server.start()
        self._shop = Orders(server)
        self._stack.callback(self._shop.close)
        rows = self._shop.fill()
        told = ", ".join(f"{name} {count:,}" for name, count in rows.items())
        self._screen.note(f"source   MySQL on {server.host}:{server.port}: {told} rows")
        folder = self._folder()
        self._daemon = Daemon(folder, server, SCHEMA)
        self._stack.callback(self._daemon.stop)
        with self._interrupts.held():
            self._daemon.launch()
        self._daemon.wait_until_reading()
        self._screen.note(
            f"server   canal-server {__version__} on 127.0.0.1:{self._daemon.port}"
        )
        address = "127.0.0.1", self._daemon.port
        self._mirror = MirrorProcess(
            folder, server, address, destination=DESTINATION, tables=SETTINGS
        )

    def _folder(self) -> Path:
        """Return where all files go."""
        if self._wanted.keep:
            self._wanted.keep.mkdir(parents=True)
            return Path(self._wanted.keep).absolute()
        with self._interrupts.held():
            folder = tempfile.TemporaryDirectory(
                prefix="canal-demo-", ignore_cleanup_errors=True
            )
            self._stack.callback(folder.cleanup)
        return Path(folder.name)

    def _start_mirror(self) -> None:
        for line in self._mirror.conf.read_text().splitlines():
            self._screen.aside(line)
        self._screen.statement("$", "canal-server mirror --conf mirror.yml")
        begun = time.monotonic()
        with self._interrupts.held():
            self._stack.callback(self._mirror.stop)
            self._mirror.launch()
        # Already while it copies: what is written now must be in the copies, once.
        self._shop.begin()
        for name in TABLES:
            self._wait_for_copy(name)
            seconds = time.monotonic() - begun
            rows = self._mirror.rows(f"{SCHEMA}/{name}")
            self._screen.note(
                f"{name:12} {rows:9,} rows in the lake after {seconds:.0f} s"
            )

    def _follow(self) -> None:
        """Let the shop work, and change its tables."""
        self._screen.note(f"{LOAD_PER_SECOND} transactions a second, and meanwhile:")
        pause_s = self._wanted.seconds / (len(DDL) + 1)
        for _, sql, what in DDL:
            self._wait(pause_s)
            self._screen.statement("mysql", f"{sql};")
            self._screen.aside(f"└ {what}")
            self._shop.execute(sql)
        self._wait(pause_s)
        for name in {table for table, _, _ in DDL} - TABLES.keys():
            self._wait_for_copy(name)
        self._screen.statement("$", "canal-server mirror status --conf mirror.yml")
        self._tell(*self._mirror.run("status"))

    def _wait_for_copy(self, name: str) -> None:
        there = partial(self._mirror.is_there, f"{SCHEMA}/{name}")
        self._mirror.wait(there, f"the copy of {name}", COPY_SECONDS_MAX)

    def _verify(self) -> None:
        """Compare while the shop works, and when it has stopped."""
        # Without a key, a table is compared while nothing changes it.
        self._shop.end_visits()
        self._screen.note(
            "While both go on, at one place of the binlog; only `visits`, which has "
            "no key, rests:"
        )
        self._compare()
        self._shop.end()
        self._screen.note(
            f"The shop is closed after {self._shop.transactions:,} transactions; "
            "once more:"
        )
        self._compare()

    def _compare(self) -> None:
        self._screen.statement("$", "canal-server mirror verify --conf mirror.yml")
        status, output = self._mirror.run("verify")
        self._tell(status, output)
        if status:
            raise WrongCopyError("`verify` found a difference, or could not compare")

    def _tell(self, status: int, output: str) -> None:
        for line in output.splitlines():
            self._screen.note(line)
        if status > 1:
            raise MirrorFailed(f"the command ended with status {status}")

    def _sum_up(self) -> None:
        for name in sorted({*TABLES, *(table for table, _, _ in DDL)}):
            path = f"{SCHEMA}/{name}"
            self._screen.note(
                f"{name:12} {self._shop.count(name):9,} rows in MySQL, "
                f"{self._mirror.rows(path):9,} in the lake, "
                f"{self._mirror.version(path):4,} versions to go back to"
            )
        if status := self._mirror.stop():
            raise MirrorFailed(f"the mirror ended with status {status}")
        if status := self._daemon.stop():
            raise DaemonFailed(f"canal-server ended with status {status}")
        self._screen.result("the lake's tables equal the source's")
        if self._wanted.keep:
            self._screen.note(f"{self._mirror.lake} has them")

    def _wait(self, seconds: float) -> None:
        """Let time pass, while all of it has to run."""
        over_at = time.monotonic() + seconds
        while (left_s := over_at - time.monotonic()) > 0:
            self._mirror.check()
            self._daemon.check()
            time.sleep(min(left_s, 0.2))


def require() -> None:
    """Raise Unavailable, with what to do, where the mirror cannot run."""
    missing = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(
            f"not here: {', '.join(missing)}; pip install 'canal-server[mirror]'"
        )
    if not os.environ.get("JAVA_HOME"):
        # Spark finds it there.
        os.environ["JAVA_HOME"] = str(Path(find_java()).resolve().parents[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Show the mirror at work.", allow_abbrev=False
    )
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of load after the copy (30)"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="a new folder, whose files stay"
    )
    wanted = parser.parse_args(arguments)
    screen, interrupts = Screen(), Interrupts()
    try:
        with ExitStack() as stack:
            stack.callback(interrupts.ignore)  # runs again below, before all others
            try:
                require()
                Demo(screen, interrupts, stack, wanted).run()
            finally:
                interrupts.ignore()
    except Interrupted as end:
        with contextlib.suppress(OSError):
            print(f"\ndemo: {end}; all is cleaned up", file=sys.stderr)
        return SIGNALLED + end.number
    except BrokenPipeError:  # nobody reads what we print any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (
        Unavailable,
        DaemonFailed,
        MirrorFailed,
        WrongCopyError,
        CanalError,
        pymysql.err.MySQLError,
        OSError,
    ) as error:
        first, *more = str(error).splitlines() or [repr(error)]
        print(f"demo: {first}{f' {more[-1]}' if more else ''}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # Until there is something to clean up, Ctrl-C just ends us: no traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())
