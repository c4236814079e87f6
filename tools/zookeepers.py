"""Private ZooKeepers for tests, each one process in a folder of its own.

The programs come from Debian's packages, unpacked into the cache folder; Java is the
host's, else one from Debian's packages too. As a command: `zookeepers.py prepare`
fetches the programs, `zookeepers.py run` runs one in the foreground.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import shutil
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Self

from server_folders import (
    Unavailable,
    claim_folder,
)
from server_packages import package_tree
from server_spawner import SPAWNER

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 10.0
START_TRIES_MAX = 5  # another process may take the port between choosing and using it
POLL_SECONDS = 0.03
TICK_MS = 100  # sessions may be from 2 to 20 ticks long, by default
SESSION_MAX_MS = 90_000
LIMIT_TICKS = 100  # for one of several to follow the others
LOG_TAIL_BYTES = 4000
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class PrivateZooKeeper:
    """A ZooKeeper of ours on a free port of the loopback interface.

    Its data live until `stop`; `kill` and `restart` keep them, and the port. `number`
    and `quorum` make it one of several, see `ZooKeepersOfOneMind`. No session lives
    longer than `session_max_ms`, whatever its client asks for. It looks for expired
    ones every `tick_ms`.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        number: int = 0,
        quorum: str = "",
        session_max_ms: int = SESSION_MAX_MS,
        tick_ms: int = TICK_MS,
    ) -> None:
        self._requested_port = port  # 0: any that is free
        self._number = number
        self._quorum = quorum
        self._session_max_ms = session_max_ms
        self._tick_ms = tick_ms
        self.host = "127.0.0.1"
        self.port = port
        self._folder: Path | None = None
        self._owned: int | None = None  # descriptor whose lock says the folder is used
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """Return what `canal.zkServers` is to be."""
        return f"{self.host}:{self.port}"

    def start(self) -> Self:
        """Start and wait until it answers. Raises Unavailable with the log's end."""
        command = _command()
        self._folder, self._owned = claim_folder("zookeeper")
        atexit.register(self.stop)
        for attempt in range(START_TRIES_MAX):
            self.port = self._requested_port or _free_port()
            try:
                self._launch(command)
            except Unavailable:
                if not self._requested_port and attempt + 1 < START_TRIES_MAX:
                    continue
                self.stop()
                raise
            break
        return self

    def kill(self) -> None:
        """End it as a power cut would; `restart` brings it back."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_SECONDS_MAX)

    def pause(self) -> None:
        """Let it fall silent with its connections open, until `resume`."""
        assert self._process is not None, "it is not started"
        self._process.send_signal(signal.SIGSTOP)
        # The signal comes to one of its threads after the other.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        assert self._process is not None, "it is not started"
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """End it if it runs, and start it on its data and port."""
        self.kill()
        self._launch(_command())

    def stop(self) -> None:
        """End it and remove its folder; may be called again."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._owned is not None:
            os.close(self._owned)
            self._owned = None
        atexit.unregister(self.stop)

    def begin(self) -> None:
        """Start it on its port, without waiting: it serves when enough others run."""
        self._folder, self._owned = claim_folder("zookeeper")
        atexit.register(self.stop)
        self._spawn(_command())

    def wait(self) -> None:
        """Wait until it serves. Raises Unavailable with the log's end."""
        assert self._process is not None, "it is started"
        give_up_at = time.monotonic() + START_SECONDS_MAX
        while not serves(self.host, self.port):
            ended = self._process.poll() is not None
            if ended or time.monotonic() > give_up_at:
                self.kill()
                tail = self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
                raise Unavailable(f"the ZooKeeper did not come up:\n{tail}")
            time.sleep(POLL_SECONDS)

    @property
    def _log(self) -> Path:
        assert self._folder is not None, "`start` claims it"
        return self._folder / "server.log"

    def _launch(self, command: list[str]) -> None:
        """Start the process on its folder and wait until it serves."""
        self._spawn(command)
        self.wait()

    def _spawn(self, command: list[str]) -> None:
        assert self._folder is not None, "`start` claims it"
        data = self._folder / "data"
        if self._number:
            data.mkdir(exist_ok=True)
            (data / "myid").write_text(str(self._number))
        settings = self._folder / "zoo.cfg"
        settings.write_text(
            f"tickTime={self._tick_ms}\n"
            f"maxSessionTimeout={self._session_max_ms}\n"
            f"dataDir={data}\n"
            f"clientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=srvr\n"
            f"{self._quorum}"
        )
        self._process = SPAWNER.spawn(
            [*command, str(settings)], self._folder, self._log
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class ZooKeepersOfOneMind:
    """Several ZooKeepers that serve as long as most of them run."""

    def __init__(self, count: int = 3) -> None:
        self._count = count
        self.nodes: list[PrivateZooKeeper] = []

    @property
    def servers(self) -> str:
        """Return what `canal.zkServers` is to be."""
        return ",".join(node.servers for node in self.nodes)

    def start(self) -> Self:
        """Start all and wait until all answer. Raises Unavailable."""
        for attempt in range(START_TRIES_MAX):
            try:
                self._start()
            except Unavailable:
                self.stop()
                if attempt + 1 == START_TRIES_MAX:
                    raise
            else:
                break
        return self

    def _start(self) -> None:
        ports = _free_ports(3 * self._count)
        numbers = range(1, self._count + 1)
        quorum = f"initLimit={LIMIT_TICKS}\nsyncLimit={LIMIT_TICKS}\n" + "".join(
            f"server.{number}=127.0.0.1:{ports.pop()}:{ports.pop()}\n"
            for number in numbers
        )
        self.nodes = [
            PrivateZooKeeper(port=ports.pop(), number=number, quorum=quorum)
            for number in numbers
        ]
        for node in self.nodes:
            node.begin()
        for node in self.nodes:
            node.wait()

    def stop(self) -> None:
        """End all and remove their folders; may be called again."""
        for node in self.nodes:
            node.stop()


def serves(host: str, port: int) -> bool:
    """Ask as an operator does; a server that still loads refuses to answer."""
    try:
        with socket.create_connection((host, port), STOP_SECONDS_MAX) as asked:
            asked.sendall(b"srvr")
            return asked.recv(4096).startswith(b"Zookeeper version")
    except OSError:
        return False


def _command() -> list[str]:
    """Return the server's command without its settings. Raises Unavailable."""
    tree = package_tree("zookeeper", "libzookeeper-java")
    return [
        find_java(),
        "-Xmx64m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # it lives for seconds
        "-classpath",
        f"{tree}/usr/share/java/*",
        MAIN_CLASS,
    ]


def find_java() -> str:
    """Return the host's Java, else one that is unpacked. Raises Unavailable."""
    found = shutil.which("java")
    if found:
        return found
    tree = package_tree("jre", "default-jre-headless")
    programs = sorted(tree.glob("usr/lib/jvm/*/bin/java"))
    if not programs:
        raise Unavailable(
            f"{tree} holds no Java: remove it, it will be downloaded again"
        )
    _turn_links_inwards(tree)
    return str(programs[0])


def _turn_links_inwards(tree: Path) -> None:
    """Let links to files of the system, as /etc, lead to those of the tree."""
    for link in tree.glob("usr/lib/jvm/**/*"):
        if not link.is_symlink():
            continue
        target = link.readlink()
        if target.is_absolute() and not target.is_relative_to(tree):
            link.unlink()
            link.symlink_to(tree / target.relative_to("/"))


def _free_port() -> int:
    return _free_ports(1)[0]


def _free_ports(count: int) -> list[int]:
    """Return ports that differ, as all are held until the last one is known."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare", help="fetch the programs")
    foreground = commands.add_parser("run", help="run a ZooKeeper until ^C")
    foreground.add_argument("--port", type=int, default=0, help="default: a free one")
    options = parser.parse_args(arguments)
    try:
        if options.command == "prepare":
            print(" ".join(_command()))
            return 0
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        with PrivateZooKeeper(port=options.port) as server:
            print(server.servers, flush=True)
            stop.wait()
    except Unavailable as error:
        print(f"zookeeper: unavailable: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
