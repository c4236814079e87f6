"""Private MySQL and MariaDB servers for tests, the demo and benchmarks.

Each runs in a folder of its own on a free port of the loopback interface, never
touches a server that already runs, and ends with the process that started it. As a
command: `servers.py prepare [mysql|mariadb-11.4|…]` fetches the programs, `servers.py
run mysql` runs a server in the foreground. Leaves out where the programs come from
(`server_packages`) and which releases there are (`server_releases`).
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from typing import TYPE_CHECKING, Any, Self

import pymysql
import pymysql.cursors
from server_data import ADMIN, CANAL, template_of
from server_features import has_feature
from server_folders import Unavailable, claim_folder
from server_packages import Programs, find_programs
from server_releases import RELEASES, release_of
from server_spawner import SPAWNER

from canal_server.mysql.flavour import parse_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

__all__ = [
    "ADMIN",
    "CANAL",
    "MariaDB",
    "MySQL",
    "PrivateServer",
    "Server",
    "Unavailable",
    "named_or_private",
]

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
START_TRIES_MAX = 5  # another process may take the port between choosing and using it
LOG_TAIL_BYTES = 4000
POLL_SECONDS = 0.03

OPTIONS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--socket=server.sock",  # below the data folder, which may have a long name
    "--pid-file=server.pid",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--sync-binlog=0",
    # Not 0: what was committed must survive `kill`, as it does in the binlog.
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-buffer-pool-size=64M",
    "--innodb-doublewrite=OFF",
    "--performance-schema=OFF",
    "--max-connections=200",
)
OPTIONS_OF = {
    "mysql": (
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        # Not of all releases: those that lack one only warn.
        "--loose-mysqlx=OFF",
        "--loose-log-slave-updates",  # without it 5.6 has no GTIDs
        "--loose-innodb-redo-log-capacity=64M",
    ),
    "mariadb": ("--innodb-log-file-size=32M",),
}
# With this variable at 1 servers do not wait for the disk, most of all in DDL. Whatever
# way they end nothing is lost of it: only the machine's own end would lose some.
UNSYNCED = "CANAL_SERVERS_UNSYNCED"
UNSYNCED_OPTIONS = ("--innodb-flush-method=nosync",)


class Server:
    """A server that somebody else runs, named by a URL; what all servers offer.

    `user` and `password` are for the program under test, `connect` and `execute` use
    an account that may do everything where there is one.
    """

    def __init__(self, flavour: str, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "mysql" or not parts.hostname:
            raise Unavailable(
                f"{flavour.upper()}_URL must be mysql://user:password@host:port"
            )
        self.flavour = flavour
        self.host = parts.hostname
        self.port = parts.port or 3306
        self.user = urllib.parse.unquote(parts.username or "root")
        self.password = urllib.parse.unquote(parts.password or "")
        self.admin = (self.user, self.password)

    @property
    def url(self) -> str:
        """Return mysql://user:password@host:port of the account under test."""
        return f"mysql://{self.user}:{self.password}@{self.host}:{self.port}"

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        """Open an autocommit connection as administrator; options as PyMySQL's."""
        return pymysql.connect(
            **{
                "host": self.host,
                "port": self.port,
                "user": self.admin[0],
                "password": self.admin[1],
                "charset": "utf8mb4",
                "autocommit": True,
                "connect_timeout": 10,
                **options,
            }
        )

    def execute(self, *statements: str) -> Sequence[tuple[Any, ...]]:
        """Run statements on one connection; returns the rows of the last one."""
        rows: Sequence[tuple[Any, ...]] = ()
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = cursor.fetchall()
        return rows

    @functools.cached_property
    def version(self) -> tuple[int, int, int]:
        """Return the three numbers of the release."""
        ((text,),) = self.execute("SELECT VERSION()")
        return parse_version(str(text))

    def can(self, feature: str) -> bool:
        """Return whether it has a feature (`server_features`)."""
        return has_feature(self.flavour, self.version, feature)

    @property
    def reset_binlogs(self) -> str:
        """Return the statement that deletes all binlogs."""
        renamed = "RESET BINARY LOGS AND GTIDS"
        return renamed if self.can(renamed) else "RESET MASTER"

    def binlog_position(self) -> tuple[str, int]:
        """Return the file and the offset at which the binlog ends now."""
        log = "BINARY LOG" if self.flavour == "mysql" else "MASTER"
        with contextlib.suppress(pymysql.err.ProgrammingError):
            row = self.execute(f"SHOW {log} STATUS")[0]
            return str(row[0]), int(row[1])
        row = self.execute("SHOW MASTER STATUS")[0]  # MySQL before 8.2
        return str(row[0]), int(row[1])

    def start(self) -> Self:
        """See that the server answers. Raises Unavailable."""
        try:
            self.connect().close()
        except pymysql.err.MySQLError as error:
            raise Unavailable(
                f"the {self.flavour} at {self.host}:{self.port} does not let "
                f"{self.admin[0]} in: {error}"
            ) from error
        return self

    def stop(self) -> None:
        """Leave the server alone: it is not ours."""

    def kill(self) -> None:
        """Refuse: it is not ours. Raises Unavailable."""
        raise Unavailable(f"the {self.flavour} at {self.host} is not ours to stop")

    def restart(self, options: Sequence[str] | None = None) -> None:
        """Refuse: it is not ours. Raises Unavailable."""
        del options
        self.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class PrivateServer(Server):
    """A server of ours in a temporary folder, with options of mysqld after ours.

    The folder and its binlogs live until `stop`; `kill` and `restart` keep them, and
    the port.
    """

    def __init__(
        self,
        flavour: str,
        options: Sequence[str] = (),
        *,
        port: int = 0,
        release: str = "",
    ) -> None:
        """Store what to start; the release is what the environment or the host says.

        Raises Unavailable for a release that is not known.
        """
        self._release = release_of(release) if release else None
        super().__init__(flavour, f"mysql://{CANAL[0]}:{CANAL[1]}@127.0.0.1:1")
        self.admin = ADMIN
        self.options = list(options)
        self._requested_port = port  # 0: any that is free
        self.folder: Path | None = None
        self._owned: int | None = None  # descriptor whose lock says the folder is used
        self._process: subprocess.Popen[bytes] | None = None

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        """Open a connection as `Server` does, but without TLS unless that is requested.

        To this machine it protects nothing, and takes longer than most statements.
        """
        if not any(name.startswith("ssl") for name in options):
            options["ssl_disabled"] = True
        return super().connect(**options)

    @property
    def data_folder(self) -> Path:
        """Return the folder with the binlogs. Raises Unavailable when stopped."""
        if self.folder is None:
            raise Unavailable(f"the {self.flavour} is not started")
        return self.folder / "data"

    @property
    def pid(self) -> int | None:
        """Return the process id while it runs."""
        return self._process.pid if self._process else None

    @property
    def programs(self) -> Programs:
        """Return the programs that this server is made of."""
        return find_programs(self.flavour, self._release)

    def start(self) -> Self:
        """Start and wait until it answers. Raises Unavailable with the log's end."""
        template = template_of(self.programs)
        self.folder, self._owned = claim_folder(self.flavour)
        atexit.register(self.stop)
        shutil.copytree(template, self.data_folder)
        for attempt in range(START_TRIES_MAX):
            try:
                self.port = free_port(self._requested_port)
                self._launch()
            except Unavailable as error:
                in_use = "in use" in str(error) and not self._requested_port
                if in_use and attempt + 1 < START_TRIES_MAX:
                    continue
                self.stop()
                raise
            break
        return self

    def stop(self) -> None:
        """End the server and remove its folder; may be called again."""
        self._end(signal.SIGKILL)  # its data go away: nothing is worth writing
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
        if self._owned is not None:
            os.close(self._owned)
            self._owned = None
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """End the server as a power cut would; `restart` brings it back."""
        self._end(signal.SIGKILL)

    def restart(self, options: Sequence[str] | None = None) -> None:
        """End the server if it runs, and start it on its data, port and options.

        Raises Unavailable with the log's end when it does not come up.
        """
        self._end(signal.SIGTERM)
        if options is not None:
            self.options = list(options)
        self._launch()

    def on_end(self, call: Callable[[], object]) -> None:
        """Have this called, on another thread, when the server's process ends."""
        process = self._process
        assert process is not None, "it was started"

        def watch() -> None:
            process.wait()
            call()

        threading.Thread(target=watch, daemon=True).start()

    def log_tail(self) -> str:
        """Return the end of the server's log."""
        if self.folder is None or not (self.folder / "server.log").exists():
            return ""
        written = (self.folder / "server.log").read_bytes()
        return written[-LOG_TAIL_BYTES:].decode(errors="replace")

    def _launch(self) -> None:
        """Start the process on the data folder and wait until it answers."""
        assert self.folder is not None
        # A MariaDB that starts removes the temporary tables of all others in /tmp.
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        # What is left after a kill has a process id that may be in use again by now.
        (self.data_folder / "server.sock.lock").unlink(missing_ok=True)
        command = [
            *self.programs.command(),
            *OPTIONS,
            *OPTIONS_OF[self.flavour],
            *(UNSYNCED_OPTIONS if os.environ.get(UNSYNCED) == "1" else ()),
            f"--datadir={self.data_folder}",
            f"--tmpdir={temporary}",
            f"--port={self.port}",
            f"--server-id={self.port}",
            *self.options,
        ]
        log = self.folder / "server.log"
        log.unlink(missing_ok=True)
        self._process = SPAWNER.spawn(command, self.folder, log)
        give_up_at = time.monotonic() + START_SECONDS_MAX
        while True:
            if self._process.poll() is not None:
                status, tail = self._process.returncode, self.log_tail()
                self._process = None
                raise Unavailable(
                    f"the {self.flavour} ended at once with status {status}:\n{tail}"
                )
            with contextlib.suppress(pymysql.err.OperationalError):
                if self._is_ours():
                    return
            if time.monotonic() > give_up_at:
                self._end(signal.SIGKILL)
                raise Unavailable(
                    f"the {self.flavour} did not answer within "
                    f"{START_SECONDS_MAX:g} s:\n{self.log_tail()}"
                )
            time.sleep(POLL_SECONDS)

    def _is_ours(self) -> bool:
        """Ask who answers: another one of ours may have been faster at the port."""
        ((folder,),) = self.execute("SELECT @@datadir")
        return str(folder).rstrip("/") == str(self.data_folder)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class MySQL(PrivateServer):
    """A private MySQL with GTIDs; `options` are arguments of mysqld."""

    def __init__(self, options: Sequence[str] = ()) -> None:
        super().__init__("mysql", options)


class MariaDB(PrivateServer):
    """A private MariaDB; `options` are arguments of mariadbd."""

    def __init__(self, options: Sequence[str] = ()) -> None:
        super().__init__("mariadb", options)


def named_or_private(flavour: str, options: Sequence[str] = ()) -> Server:
    """Return the server that MYSQL_URL or MARIADB_URL names, else a private one.

    It is not started yet; `options` count for a private one only.
    """
    url = os.environ.get(f"{flavour.upper()}_URL")
    return Server(flavour, url) if url else PrivateServer(flavour, options)


def flavour_and_release(name: str) -> tuple[str, str]:
    """Return what `mysql` or `mysql-5.6` stands for; a flavour has no release.

    Raises Unavailable for any other name.
    """
    if name in OPTIONS_OF:
        return name, ""
    return release_of(name).flavour, name


def free_port(requested: int = 0) -> int:
    """Return a port that nobody listens on: the requested one, or any.

    Raises Unavailable when the requested one is in use: another server of ours there
    would answer to our accounts, and be mistaken for the one that could not start.
    """
    with socket.socket() as probe:
        if requested:  # connections that a server there has closed do not matter
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", requested))
        except OSError as error:
            raise Unavailable(f"port {requested}: {error.strerror}") from error
        return int(probe.getsockname()[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="fetch the programs")
    names = ["mysql", "mariadb", *RELEASES]
    prepare.add_argument(
        "names", nargs="*", default=["mysql", "mariadb"], help=", ".join(names)
    )
    foreground = commands.add_parser("run", help="run a server until ^C")
    foreground.add_argument("--port", type=int, default=0, help="default: a free one")
    foreground.add_argument("name", choices=names)
    foreground.add_argument("options", nargs="*", help="for mysqld, after --")
    options = parser.parse_args(arguments)
    if options.command == "prepare":
        missing = 0
        for name in options.names:
            try:
                flavour, release = flavour_and_release(name)
                programs = PrivateServer(flavour, release=release).programs
                print(f"{name}: {template_of(programs)}")
            except Unavailable as error:
                missing += 1
                print(f"{name}: unavailable: {error}", file=sys.stderr)
        return 1 if missing else 0
    if any(option.startswith("--port") for option in options.options):
        foreground.error("name the port in front of the flavour, it is ours to know")
    stop, over = threading.Event(), threading.Event()

    def on_signal(*_: object) -> None:
        stop.set()
        over.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    try:
        flavour, release = flavour_and_release(options.name)
        with PrivateServer(
            flavour, options.options, port=options.port, release=release
        ) as server:
            admin = f"mysql://{ADMIN[0]}:{ADMIN[1]}@{server.host}:{server.port}"
            print(f"{server.url}\nadministrator: {admin}", flush=True)
            server.on_end(over.set)
            over.wait()
            if not stop.is_set():
                log = server.log_tail()
                print(f"{options.name}: the server has ended:\n{log}", file=sys.stderr)
                return 1
    except Unavailable as error:
        print(f"{options.name}: unavailable: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
