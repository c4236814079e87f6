"""A mirror as a user runs it: a YAML file, and the command on it.

Leaves out the source that it reads (`servers`), and canal-server (`demo_run`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Protocol

from deltalake import DeltaTable
from process_sessions import kill_session
from server_spawner import SPAWNER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


NAME = "demo"
POLL_S = 0.2
STOP_SECONDS_MAX = 60.0
LOG_LINES = 5  # of the end of a log, when it failed

CONF = """\
name: {name}
canal:
  servers: {canal}
  destination: {destination}
source:
  host: "{host}"
  port: {port}
  user: "{user}"
  password: ${{MIRROR_PASSWORD}}
  ssl_mode: {ssl_mode}
mask_salt: ${{MIRROR_SALT}}
lake:
  path: lake
{tables}
{more}"""


class MirrorFailed(Exception):  # noqa: N818  # what a demo or a benchmark ends with
    """The mirror does not run as it should; the message says why."""


class Account(Protocol):
    """Where the source is, and who the mirror is there; a `Server` is one."""

    host: str
    port: int
    user: str
    password: str


class MirrorProcess:
    """`canal-server mirror` on a lake of its own; ends with this process at last."""

    def __init__(
        self,
        folder: Path,
        source: Account,
        *canal: tuple[str, int],
        destination: str,
        tables: str,
        more: str = "",
    ) -> None:
        """Write the settings; `canal` are servers, `tables` and `more` YAML."""
        self.folder = folder
        self.conf = folder / "mirror.yml"
        self.lake = folder / "lake"
        self._password = source.password
        self._process: subprocess.Popen[bytes] | None = None
        self.conf.write_text(
            CONF.format(
                name=NAME,
                canal=",".join(f"{host}:{port}" for host, port in canal),
                destination=destination,
                host=source.host,
                port=source.port,
                user=source.user,
                ssl_mode="preferred",
                tables=tables.strip("\n"),
                more=more.strip("\n"),
            )
        )

    @property
    def pid(self) -> int:
        """The process that drives Spark."""
        assert self._process is not None
        return self._process.pid

    @property
    def state(self) -> Path:
        """The mirror's own folder in the lake."""
        return self.lake / "_mirror" / NAME

    def launch(self) -> None:
        """Start the process."""
        command = ["env", *self._variables(), *self._command()]
        self._process = SPAWNER.spawn(command, self.folder, self._log)

    def run(self, *action: str, timeout_s: float = 600.0) -> tuple[int, str]:
        """Run an action beside it, as `verify`; returns its exit status and output."""
        done = subprocess.run(
            self._command(*action),
            cwd=self.folder,
            env=os.environ | dict(each.split("=", 1) for each in self._variables()),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return done.returncode, done.stdout + (done.stderr if done.returncode else "")

    def is_there(self, table: str) -> bool:
        """Return whether a table has a copy in the lake; `table` is its folder."""
        return bool(DeltaTable.is_deltatable(str(self.lake / table)))

    def rows(self, table: str) -> int:
        """Return how many rows a copy has now."""
        return int(DeltaTable(self.lake / table).count())

    def version(self, table: str) -> int:
        """Return the number of a copy's newest version."""
        return int(DeltaTable(self.lake / table).version())

    def wait(self, done: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until something is so. Raises MirrorFailed."""
        give_up_at = time.monotonic() + timeout_s
        while not done():
            self.check()
            if time.monotonic() > give_up_at:
                raise MirrorFailed(
                    f"{what}: not within {timeout_s:g} s; {self.log_end()}"
                )
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raise MirrorFailed if the process has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise MirrorFailed(f"canal-server mirror has ended: {self.log_end()}")

    def kill(self) -> None:
        """End the process and all that it started, as a machine that goes away does."""
        process, self._process = self._process, None
        if process is not None:
            kill_session(process.pid)  # its own
            process.wait()

    def ended(self) -> int | None:
        """Return the exit status of a process that ended by itself."""
        return self._process.poll() if self._process else None

    def stop(self) -> int:
        """End the process by SIGTERM; returns its exit status, 0 without one."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    @property
    def _log(self) -> Path:
        return self.folder / "mirror.log"

    def log_end(self) -> str:
        """Return the last lines of its log."""
        lines = self._log.read_text(errors="replace").splitlines() or ["no log"]
        return " / ".join(lines[-LOG_LINES:])

    def _command(self, *action: str) -> Sequence[str]:
        program = [sys.executable, "-m", "canal_server", "mirror"]
        return [*program, *action, "--conf", str(self.conf)]

    def _variables(self) -> list[str]:
        """Return what its environment has: secrets, and where Spark finds us."""
        return [
            f"MIRROR_PASSWORD={self._password}",
            "MIRROR_SALT=a salt for show",
            f"PYSPARK_PYTHON={sys.executable}",
            "SPARK_LOCAL_IP=127.0.0.1",
        ]
