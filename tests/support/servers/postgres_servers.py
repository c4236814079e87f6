"""Private PostgreSQL servers from Debian's packages, for handlers that write to one.

Each runs in a folder of its own on a free port of the loopback interface, and ends with
the process that started it. POSTGRES_URL=postgresql://user:password@host:port names one
that somebody else runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import psycopg
from server_data import ADMIN
from server_folders import (
    Unavailable,
    cache_folder,
    claim_folder,
    locked,
    made_atomically,
)
from server_packages import package_tree, run
from server_spawner import SPAWNER
from servers import START_SECONDS_MAX, STOP_SECONDS_MAX, free_port

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

VARIABLE = "POSTGRES_URL"
POLL_SECONDS = 0.03
# PostgreSQL refuses to run as root; in a namespace, root is somebody else.
AS_NOBODY = ("unshare", "--user", "--map-user=65534", "--map-group=65534")
INITDB = ("--auth=trust", f"--username={ADMIN[0]}", "--no-sync", "--encoding=UTF8",
          "--locale=C")  # fmt: skip
OPTIONS = (
    "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
    # It is killed, but the machine is not.
    "-c", "fsync=off", "-c", "max_connections=50", "-c", "shared_buffers=32MB",
)  # fmt: skip


class Postgres:
    """A server that somebody else runs."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "postgresql" or not parts.hostname:
            raise Unavailable(
                f"{VARIABLE} must be postgresql://user:password@host:port"
            )
        self.host, self.port = parts.hostname, parts.port or 5432
        self.user, self.password = parts.username or ADMIN[0], parts.password or ""

    def url(self, database: str) -> str:
        """Return the URL of a database for SQLAlchemy."""
        return (
            f"postgresql+psycopg://{self.user}:{self.password}@{self.host}:{self.port}"
            f"/{database}"
        )

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """Open an autocommit connection."""
        return psycopg.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=database,
            autocommit=True,
            connect_timeout=10,
        )

    def execute(self, database: str, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements on one connection; returns the rows of the last one."""
        with self.connect(database) as connection:
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
            return rows

    def start(self) -> Self:
        """See that the server answers. Raises Unavailable."""
        try:
            self.connect().close()
        except psycopg.OperationalError as error:
            raise Unavailable(f"{VARIABLE}: {error}") from error
        return self

    def stop(self) -> None:
        """Leave the server alone: it is not ours."""


class PrivatePostgres(Postgres):
    """A server of ours, which can be killed and restarted on its data."""

    def __init__(self) -> None:
        super().__init__(f"postgresql://{ADMIN[0]}:{ADMIN[1]}@127.0.0.1")
        self._folder: Path | None = None
        self._owned: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, and wait until it answers. Raises Unavailable with the log's end."""
        programs = _programs()
        template = _template(programs)
        self._folder, self._owned = claim_folder("postgres")
        shutil.copytree(template, self._folder / "data")
        self.port = free_port()
        try:
            self._launch()
        except Unavailable:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the server and remove its folder."""
        self._end(signal.SIGKILL)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._owned is not None:
            os.close(self._owned)
        self._folder = self._owned = None

    def kill(self) -> None:
        """End the server as a crash would; `restart` brings it back."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Start it again on its data and port."""
        self._end(signal.SIGINT)
        self._launch()

    def _launch(self) -> None:
        assert self._folder is not None
        programs = _programs()
        command = [
            *programs.prefix,
            # Inside the namespace: to enter it resets this setting.
            *("setpriv", "--pdeathsig", "KILL"),
            str(programs.folder / "postgres"),
            *("-D", str(self._folder / "data"), "-p", str(self.port)),
            *OPTIONS,
        ]
        log = self._folder / "server.log"
        self._process = SPAWNER.spawn(command, self._folder, log)
        give_up_at = time.monotonic() + START_SECONDS_MAX
        while True:
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                raise Unavailable(f"PostgreSQL does not start:\n{_end_of(log)}")
            with contextlib.suppress(psycopg.OperationalError):
                return self.connect().close()
            time.sleep(POLL_SECONDS)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        process.wait(STOP_SECONDS_MAX)


class Programs:
    """The programs of one version, and how to run them."""

    def __init__(self, folder: Path, libraries: Path | None) -> None:
        self.folder = folder
        env = ["env", f"LD_LIBRARY_PATH={libraries}"] if libraries else []
        self.prefix = [*(AS_NOBODY if os.getuid() == 0 else ()), *env]


def named_or_private() -> Postgres:
    """Return the server that POSTGRES_URL names, else a private one, not started."""
    url = os.environ.get(VARIABLE)
    return Postgres(url) if url else PrivatePostgres()


def _programs() -> Programs:
    """Return the installed programs, else those of Debian's packages.

    Raises Unavailable.
    """
    if os.getuid() == 0:
        run([*AS_NOBODY, "true"], "PostgreSQL does not run as root, and a namespace")
    if installed := _newest(Path("/")):
        return Programs(installed, None)
    tree = package_tree("postgresql", "postgresql")
    if unpacked := _newest(tree):
        (libraries,) = tree.glob("usr/lib/*-linux-gnu*")
        return Programs(unpacked, libraries)
    raise Unavailable(f"{tree} is not complete: remove it, it is fetched again")


def _newest(root: Path) -> Path | None:
    found = [
        each.parent
        for each in root.glob("usr/lib/postgresql/*/bin/postgres")
        if (each.parent / "initdb").exists()
    ]
    return max(found, key=_version) if found else None


def _version(folder: Path) -> int:
    return int(re.sub(r"\D", "", folder.parent.name) or 0)


def _template(programs: Programs) -> Path:
    """Return a fresh data folder to copy, made once per version."""
    version = run(
        [*programs.prefix, str(programs.folder / "postgres"), "--version"],
        "asking PostgreSQL for its version",
    )
    recipe = "\n".join((version, *INITDB))
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    template = cache_folder() / f"postgres-data-{digest}"
    with locked(cache_folder() / ".postgres-data.lock"):
        if not template.exists():
            with made_atomically(template) as part:
                _initialize(programs, part)
    return template


def _initialize(programs: Programs, data: Path) -> None:
    command: Sequence[str] = [
        *programs.prefix,
        str(programs.folder / "initdb"),
        f"--pgdata={data}",
        *INITDB,
    ]
    run(command, "making a data folder for PostgreSQL")


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""
