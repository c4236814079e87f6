"""Two canal-servers that share a destination for each source, by ZooKeeper."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import small_disk
from server_data import CANAL
from server_folders import Unavailable
from server_spawner import SPAWNER

from canal_server.daemon.control import ControlError, ask
from soak.clock import Clock

if TYPE_CHECKING:
    from pathlib import Path

    from servers import PrivateServer

    from soak.sources import Source

HISTORY = "soak_history"  # database
WIRING = "classpath:spring/default-instance.xml"
SESSION_MS = 6000
START_S = 60.0
STOP_S = 60.0
POLL_S = 0.2
DISK = "size=256m"


class Node:
    """One canal-server: its folder, its port, and its process when it runs."""

    def __init__(self, name: str, folder: Path, port: int) -> None:
        self.name, self.folder, self.port = name, folder, port
        self.conf = folder / "conf"
        self.data = folder / "data"
        self.log = folder / "server.log"
        self.has_disk = False  # of its own, which can be full
        self._process: subprocess.Popen[bytes] | None = None
        self._opened = ExitStack()

    def prepare(
        self,
        settings: dict[str, object],
        history: dict[str, object],
        sources: list[Source],
    ) -> None:
        """Write the settings, and mount a small disk where that is possible."""
        self.folder.mkdir(parents=True)
        self.clock = Clock(self.folder)
        try:
            self._opened.enter_context(small_disk.mounted(self.data, DISK))
            self.has_disk = True
        except Unavailable as error:
            print(f"{self.name}: no disk that can be full: {error}")
            self.data.mkdir(exist_ok=True)
        mine = {
            "canal.port": self.port,
            "canal.metrics.pull.port": 0,
            "canal.http.port": 0,  # any free one
            "canal.file.data.dir": self.data,
        }
        write_properties(self.conf / "canal.properties", settings | mine)
        for source in sources:
            file = self.conf / source.flavour / "instance.properties"
            write_properties(file, instance_settings(source) | history)

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process else None

    def launch(self) -> None:
        """Start it, and wait until it answers. Raises TimeoutError."""
        command = [sys.executable, "-P", "-m", "canal_server", "start"]
        command = ["env", *self.clock.environ, *command, "--conf", str(self.conf)]
        self._process = SPAWNER.spawn(command, self.folder, self.log)
        give_up_at = time.monotonic() + START_S
        while True:
            with contextlib.suppress(ControlError):
                if ask(self.data, "status")["pid"] == self.pid:
                    return
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                raise TimeoutError(f"{self.name} does not come up: {self.log_end()}")
            time.sleep(POLL_S)

    def kill(self) -> None:
        """End it as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> str:
        """End it as an operator does; returns what was wrong with its end."""
        process, self._process = self._process, None
        if process is None:
            return ""
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"{self.name} did not end within {STOP_S:g} s of SIGTERM"
        return f"{self.name} ended with status {status}" if status else ""

    def ended(self) -> int | None:
        """Return the exit status of a process that ended without being asked to."""
        return self._process.poll() if self._process else None

    def status(self) -> dict[str, Any]:
        """Return what it says of itself. Raises ControlError."""
        return dict(ask(self.data, "status"))

    def log_end(self) -> str:
        """Return the last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])

    def close(self) -> None:
        """End it, and take its disk away."""
        self.kill()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def server_settings(zookeepers: str, sources: list[Source]) -> dict[str, object]:
    """Return what all servers have in canal.properties."""
    return {
        "canal.ip": "127.0.0.1",
        "canal.register.ip": "127.0.0.1",
        "canal.destinations": ",".join(each.flavour for each in sources),
        "canal.zkServers": zookeepers,
        "canal.zookeeper.session.timeout.ms": SESSION_MS,
        "canal.zookeeper.takeover.delay.ms": 1000,
        "canal.instance.global.spring.xml": WIRING,
        "canal.instance.cursor.pin.seconds": 15,
    }


def history_settings(history: PrivateServer) -> dict[str, object]:
    """Return where the history of tables lies: where whoever takes over finds it.

    Of one server's own it would begin where that takes over, and what clients and Spark
    are yet to read may be older than a statement before that.
    """
    user, password = CANAL
    history.execute(
        f"CREATE DATABASE {HISTORY}", f"GRANT ALL ON {HISTORY}.* TO '{user}'@'%'"
    )
    address = f"{history.host}:{history.port}/{HISTORY}"
    return {
        "canal.instance.tsdb.url": f"jdbc:mysql://{address}",
        "canal.instance.tsdb.dbUsername": user,
        "canal.instance.tsdb.dbPassword": password,
    }


def instance_settings(source: Source) -> dict[str, object]:
    """Return the settings of a destination: from here on, by GTID, with a standby."""
    file, offset = source.now.binlog_position()
    master, standby = source.proxies
    return {
        "canal.instance.master.address": f"127.0.0.1:{master.port}",
        "canal.instance.master.journal.name": file,
        "canal.instance.master.position": offset,
        "canal.instance.standby.address": f"127.0.0.1:{standby.port}",
        "canal.instance.gtidon": "true",
        "canal.instance.dbUsername": source.now.user,
        "canal.instance.dbPassword": source.now.password,
        "canal.instance.filter.regex": rf"{source.schema}\..*",
        "canal.instance.detecting.enable": "true",
        "canal.instance.detecting.sql": "select 1",
        "canal.instance.detecting.interval.time": 2,
        "canal.instance.detecting.retry.threshold": 3,
        "canal.instance.detecting.heartbeatHaEnable": "true",
    }


def write_properties(file: Path, settings: dict[str, object]) -> None:
    """Write a file of settings, readable by us only."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (f"{k} = {v}\n".replace("\\", "\\\\") for k, v in settings.items())
    descriptor = os.open(file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w", encoding="latin-1") as opened:
        opened.writelines(lines)
