"""canal-server as a user runs it: a conf folder, and the command on it.

Leaves out the source that it reads (`servers`) and its clients (`demo_client`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from server_spawner import SPAWNER
from servers import PrivateServer

from canal_server.daemon.control import ControlError, ask

if TYPE_CHECKING:
    from servers import Server

DESTINATION = "example"
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 15.0
FLUSH_SECONDS_MAX = 15.0
POLL_SECONDS = 0.02
LOG_NAME = "canal-server.log"


class DaemonFailed(Exception):  # noqa: N818  # what the demo ends with
    """The server does not run as it should; the message says why."""


class Daemon:
    """`canal-server start` on one destination; ends with this process at the latest."""

    def __init__(self, folder: Path, source: Server, schema: str) -> None:
        self.folder = folder
        self.conf = folder / "conf"
        self.port = 0  # the real one once started
        self.source = ""  # what it says of the server that it reads
        self._process: subprocess.Popen[bytes] | None = None
        _write_conf(self.conf, source, schema)

    def launch(self) -> None:
        """Start the process; `wait_until_reading` waits for it."""
        # Every variable that begins so is a setting and would win over our files.
        environ = [f"--unset={name}" for name in os.environ if _is_setting(name)]
        start = ["-m", "canal_server", "start", "--conf", str(self.conf)]
        self._process = SPAWNER.spawn(
            ["env", *environ, sys.executable, *start], self.folder, self._log
        )

    def wait_until_reading(self) -> None:
        """Return when clients can come and the source is read. Raises DaemonFailed."""
        give_up_at = time.monotonic() + START_SECONDS_MAX
        error = "it does not answer"
        while time.monotonic() < give_up_at:
            self.check()
            with contextlib.suppress(ControlError):
                status = ask(self.folder, "status")
                (instance,) = status["instances"]
                if instance.get("state") == "running":
                    self.port, self.source = status["port"], instance["source"]
                    return
                if instance.get("error"):
                    error = instance["error"]
                    break  # it would try again, but the source was there a moment ago
            time.sleep(POLL_SECONDS)
        raise DaemonFailed(f"canal-server reads nothing: {error}")

    def check(self) -> None:
        """Raise DaemonFailed with the end of the log if the process has ended."""
        if self._process is not None and self._process.poll() is not None:
            lines = self._log.read_text(errors="replace").splitlines() or ["no log"]
            raise DaemonFailed(f"canal-server has ended: {lines[-1]}")

    def kill(self) -> None:
        """End the process as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

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

    def wait_until_stored(self, file: str, offset: int) -> None:
        """Return when a client's acknowledged position is on disk.

        Raises DaemonFailed when that takes too long.
        """
        give_up_at = time.monotonic() + FLUSH_SECONDS_MAX
        while self._stored() != (file, offset):
            self.check()
            if time.monotonic() > give_up_at:
                raise DaemonFailed(
                    f"the cursor {file}:{offset} was not written in "
                    f"{FLUSH_SECONDS_MAX:g} s"
                )
            time.sleep(POLL_SECONDS)

    def memory_bytes(self) -> int:
        """Return the most memory that the process ever had resident."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return int(fields["VmHWM"].split()[0]) * 1024

    @property
    def _log(self) -> Path:
        return self.folder / LOG_NAME

    def _stored(self) -> tuple[str, int] | None:
        try:
            text = (self.folder / DESTINATION / "meta.dat").read_text()
            (client,) = json.loads(text)["clientDatas"]
            position = client["cursor"]["postion"]  # the format's own spelling
            return position["journalName"], position["position"]
        except (OSError, ValueError, KeyError, TypeError):
            return None  # not written yet


def _is_setting(name: str) -> bool:
    return name.lower().startswith(("canal.", "canal_"))


def _write_conf(conf: Path, source: Server, schema: str) -> None:
    """Write what differs from the defaults."""
    named = not isinstance(source, PrivateServer)
    host = f"[{source.host}]" if ":" in source.host else source.host
    server = {
        "canal.ip": "127.0.0.1",
        "canal.port": "0",  # any free one
        "canal.destinations": DESTINATION,
        "canal.file.data.dir": str(conf.parent),
    }
    instance = {
        "canal.instance.master.address": f"{host}:{source.port}",
        "canal.instance.master.sslMode": "PREFERRED" if named else "DISABLED",
        "canal.instance.dbUsername": source.user,
        "canal.instance.dbPassword": source.password,
        "canal.instance.filter.regex": rf"{schema}\..*",
        # MariaDB adds the text of statements to their rows: not here.
        "canal.instance.filter.query.dml": "true",
        # What the demo shows needs all columns of all rows.
        "canal.instance.binlog.format": "ROW",
        "canal.instance.binlog.image": "FULL",
    }
    folder = conf / DESTINATION
    folder.mkdir(parents=True)
    (conf / "canal.properties").write_text(_properties(server))
    (folder / "instance.properties").write_text(_properties(instance))


def _properties(settings: dict[str, str]) -> str:
    """Return a properties file; whatever a value holds stands for itself."""
    return "".join(f"{key} = {_escaped(text)}\n" for key, text in settings.items())


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    numbers = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(
        chr(n) if 0x20 < n < 0x7F and chr(n) != "\\" else f"\\u{n:04x}" for n in numbers
    )
