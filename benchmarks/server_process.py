"""canal-server as a user starts it: a conf folder, a process, its memory.

Also what the Java original needs of the same: a free port, the text of a conf folder.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from loads import Range
    from servers import Server

DESTINATION = "bench"
MEMORY_WIRING = "classpath:spring/memory-instance.xml"
FILE_WIRING = "classpath:spring/file-instance.xml"
STOP_SECONDS_MAX = 20.0
LOG_TAIL_BYTES = 3000


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a process in bytes: now, and the most it ever was."""

    now: int
    highest: int

    @classmethod
    def of(cls, pid: int) -> Memory:
        """Ask the kernel. Raises FileNotFoundError when the process has ended."""
        fields = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        return cls(
            *(int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
        )


@functools.cache
def history_folder() -> str:
    """Return the folder of the table history, which all runs share as a user's do."""
    folder = tempfile.mkdtemp(prefix="canal-bench-history-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class ServerProcess:
    """`canal-server start` on one destination; a context manager that ends it.

    Reads `server` from where `load` begins, by GTID if `gtid`; all else is default, but
    for settings of the instance, and `main` ones of the server, that are given.
    """

    def __init__(
        self,
        server: Server,
        load: Range,
        *,
        gtid: bool = False,
        wiring: str = MEMORY_WIRING,
        settings: Mapping[str, str] | None = None,
        main: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="canal-bench-")
        folder = Path(self._folder.name)
        self.address = ("127.0.0.1", free_port())
        self.started_at = 0.0
        self._log = folder / "log"
        self._conf = folder / "conf"
        key = "canal.instance.global.spring.xml"
        all_main = {key: wiring, **(main or {})}
        write_conf(self._conf, self.address[1], folder, **all_main)
        properties = {"canal.instance.tsdb.dir": history_folder(), **(settings or {})}
        write_instance(self._conf / DESTINATION, server, load, gtid=gtid, **properties)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data_dir(self) -> Path:
        """Return the folder with the control socket."""
        return Path(self._folder.name)

    @property
    def pid(self) -> int:
        """Return the id of the running process."""
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def memory(self) -> Memory:
        """Return what the process holds."""
        return Memory.of(self.pid)

    def log_tail(self) -> str:
        """Return the end of the server's log."""
        return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    def __enter__(self) -> Self:
        # `-m` looks into the current folder first: the checkout must not be there.
        command = [sys.executable, "-m", "canal_server", "start"]
        with self._log.open("wb") as log:
            self.started_at = time.monotonic()
            self._process = subprocess.Popen(
                [*command, "--conf", str(self._conf)],
                cwd=self._folder.name,
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        if error is not None:
            error.add_note(f"the log of the server ends with:\n{self.log_tail()}")
        end(self._process)
        self._folder.cleanup()


def write_conf(conf: Path, port: int, data_dir: Path, **settings: str) -> None:
    """Write canal.properties: memory wiring, one destination, else defaults."""
    conf.mkdir(parents=True, exist_ok=True)
    properties = {
        "canal.ip": "127.0.0.1",
        "canal.port": str(port),
        "canal.metrics.pull.port": "0",
        "canal.http.port": "0",  # any free one
        "canal.destinations": DESTINATION,
        "canal.instance.global.spring.xml": MEMORY_WIRING,
        "canal.file.data.dir": str(data_dir),
        **settings,
    }
    (conf / "canal.properties").write_text(_properties(properties))


def write_instance(
    folder: Path, server: Server, load: Range, *, gtid: bool = False, **settings: str
) -> None:
    """Write instance.properties: the source and where to begin, readable by us only."""
    folder.mkdir(exist_ok=True)
    properties = {
        "canal.instance.master.address": f"{server.host}:{server.port}",
        "canal.instance.dbUsername": server.user,
        "canal.instance.dbPassword": server.password,
        "canal.instance.filter.regex": r".*\\..*",
        "canal.instance.gtidon": str(gtid).lower(),
        **settings,
    }
    if gtid:
        properties["canal.instance.master.gtid"] = load.gtids
    else:
        properties["canal.instance.master.journal.name"] = load.file
        properties["canal.instance.master.position"] = str(load.position)
    path = folder / "instance.properties"
    path.touch(mode=0o600)
    path.write_text(_properties(properties))


def end(process: subprocess.Popen[bytes], how: int = signal.SIGTERM) -> None:
    """End a process: by a signal, and after a while by force."""
    process.send_signal(how)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        print(f"process {process.pid} had to be killed", file=sys.stderr)


def free_port() -> int:
    """Return a port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def require_package() -> str:
    """Return where the canal_server under test lies. Raises SystemExit without one."""
    probe = subprocess.run(
        [
            sys.executable,
            "-c",
            "import canal_server.source.read.binlog_reader as m; print(m.__file__)",
        ],
        cwd=tempfile.gettempdir(),
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        raise SystemExit(
            "canal-server is not installed for this Python, or not compiled: use "
            f"`make bench`\n{probe.stderr}"
        )
    return str(Path(probe.stdout.strip()).parents[1])


def _properties(settings: dict[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in settings.items())
