"""Whole server processes around instances that do nothing.

As a program it is the command `canal-server` with `FakeInstance` instead of the
real instances: `python fix_daemon.py start --conf DIR`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import canal_server
from canal_server.errors import CanalError, ConfigError, ConnectionLost
from canal_server.model.cursors import DestinationCursors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STOP_TIMEOUT = "FAKE_STOP_TIMEOUT_S"
SAME_SIGNAL = "FAKE_SAME_SIGNAL_S"
START_FIFO = "FAKE_START_FIFO"  # a pipe; while it is open, `waiting…` does not start


def child_environ(*folders: str) -> dict[str, str]:
    """Return an environment in which a child finds the package that we test.

    Not the checkout in the working folder, which has no compiled part. `folders`: where
    else it finds modules.
    """
    package = str(Path(canal_server.__file__).parents[1])
    return os.environ | {
        "PYTHONPATH": os.pathsep.join((package, *folders)),
        "PYTHONSAFEPATH": "1",
    }


class FakeInstance:
    """An instance that records what is asked of it; its name says how it fails.

    `broken…` cannot start, `wrong…` cannot be made, `stuck…` does not end before it is
    `freed`, `unwritten…` cannot write its cursors at the end, `waiting…` starts when a
    pipe was closed, `awaiting…` fails if a stop ended its wait.
    """

    def __init__(self, config, zookeepers=None, *, held=None) -> None:
        self.destination = config.destination
        self.config = config
        self.calls: list[str] = []
        self.moved: list[tuple[list[int], object]] = []
        self.entered = threading.Event()
        self.may_start = threading.Event()
        self.may_start.set()
        self.may_end = threading.Event()
        self.may_end.set()
        self.freed = threading.Event()
        if self.destination.startswith("wrong"):
            raise ConfigError([f"{self.destination} is wrong"])

    def start(self) -> None:
        """Wait for `may_start`, then start or fail."""
        self.calls.append("start")
        self.entered.set()
        self.may_start.wait()
        if self.destination.startswith("waiting"):
            Path(os.environ[START_FIFO]).read_bytes()
        if self.destination.startswith("broken"):
            raise CanalError("the cursors cannot be read")
        if self.destination.startswith("awaiting") and "request_stop" in self.calls:
            raise ConnectionLost("a stop ended the wait")
        if self.destination.startswith("faulty"):
            raise RuntimeError("a fault of ours")

    def request_stop(self) -> None:
        """Take note of the first one."""
        if "request_stop" not in self.calls:
            self.calls.append("request_stop")

    def join(self, deadline) -> bool:
        """Take note; a stuck one waits in vain."""
        if "join" not in self.calls:
            self.calls.append("join")
        if not self.may_end.wait(deadline.remaining_s()):
            return False
        if self.destination.startswith("stuck"):
            return self.freed.wait(deadline.remaining_s())
        if self.destination.startswith("unwritten"):
            raise CanalError("cannot write the cursors")
        return True

    def status(self):
        """Return something that only this class says."""
        return {"state": "fake"}

    def hold_end(self) -> threading.Event:
        """Have it not end before the event that is returned."""
        self.may_end.clear()
        return self.may_end

    def cursors(self):
        """Have no clients."""
        return DestinationCursors(())

    def seek(self, clients, *positions) -> None:
        """Take note; a truncated one fails midway."""
        self.moved.append((clients, *positions))
        if self.destination.startswith("incomplete"):
            raise RuntimeError("a fault of ours")

    def retry(self) -> None:
        """Take note."""
        self.calls.append("retry")

    def is_whole(self) -> bool:
        """Return whether no move failed."""
        return not (self.moved and self.destination.startswith("incomplete"))


class Makes:
    """Makes fake instances and remembers them."""

    def __init__(self) -> None:
        self.made: list[FakeInstance] = []

    def __call__(self, config, *, held=None, on_loaded=None):
        """Make one."""
        self.made.append(FakeInstance(config))
        return self.made[-1]

    def calls(self):
        """Return what was asked of each instance."""
        return {instance.destination: instance.calls for instance in self.made}


class ServerProcess:
    """A running `canal-server start`, its log read line by line."""

    def __init__(self, conf: Path, environ: dict[str, str]) -> None:
        self.conf = conf
        self.process = subprocess.Popen(
            [sys.executable, __file__, "start", "--conf", str(conf)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=child_environ() | environ,
        )
        self.log = ""

    def read_until(self, text: str) -> str:
        """Read the log up to the line with this text; fails when the log ends."""
        assert self.process.stderr
        for line in self.process.stderr:
            self.log += line
            if text in line:
                return line
        raise AssertionError(f"{text!r} never happened; the log is:\n{self.log}")

    def freeze(self) -> None:
        """Pause the process, and wait until all of it stands still."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def wait(self) -> int:
        """Read the rest of the log; return the exit status."""
        assert self.process.stderr
        self.log += self.process.stderr.read()
        return self.process.wait()


@pytest.fixture
def start_server() -> Iterator[Callable[..., ServerProcess]]:
    """Return a function that starts a server; what still runs is killed after."""
    processes: list[ServerProcess] = []

    def start(conf: Path, **environ: str) -> ServerProcess:
        processes.append(ServerProcess(conf, environ))
        return processes[-1]

    yield start
    for server in processes:
        server.process.kill()
        server.process.wait()
        assert server.process.stderr
        server.process.stderr.close()


def main() -> int:
    """Run the command with fake instances."""
    fake = types.ModuleType("canal_server.instance.instance")
    fake.Instance = FakeInstance  # type: ignore[attr-defined]
    sys.modules["canal_server.instance.instance"] = fake
    # After the module is there.
    from canal_server import cli  # noqa: PLC0415
    from canal_server.daemon import daemon, process_signals  # noqa: PLC0415

    if seconds := os.environ.get(STOP_TIMEOUT):
        daemon.STOP_TIMEOUT_S = float(seconds)
    if seconds := os.environ.get(SAME_SIGNAL):
        process_signals.SAME_SIGNAL_S = float(seconds)
    return cli.main()


if __name__ == "__main__":
    raise SystemExit(main())
