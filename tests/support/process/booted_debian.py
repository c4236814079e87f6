"""A Debian of a test's own, booted by systemd-nspawn: a real systemd, its journal, `/`.

It has the network of this machine, so that servers of tests are on 127.0.0.1 for it,
and no rights outside of its folder. Only one runs at a time. It takes root, and rights
of the kernel that containers often lack.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from debian_tree import copy_tree, debian_tree
from server_folders import Unavailable, cache_folder, locked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROGRAM = "systemd-nspawn"
PATH = "/usr/sbin:/usr/bin"
SYSTEMD_IS_HERE = Path("/run/systemd/system")  # as sd_booted(3) asks
BOOT_SECONDS_MAX = 240.0
STOP_SECONDS_MAX = 60.0
COMMAND_SECONDS_MAX = 240.0


class BootedDebian:
    """A running systemd; `root` is its file system as this machine sees it."""

    def __init__(self) -> None:
        self._ended = ExitStack()
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._leader = 0
        folder = Path(tempfile.mkdtemp(prefix="canal-debian-"))
        self._ended.callback(shutil.rmtree, folder, ignore_errors=True)
        self._console = folder / "console"
        self._notify = folder / "notify"
        self.root = folder / "root"

    def prepare(self) -> Self:
        """Lay out its files; after that a test adds its own. Raises Unavailable."""
        if shutil.which(PROGRAM) is None:
            raise Unavailable(f"no {PROGRAM}: apt-get install systemd-container")
        if os.getuid() != 0:
            raise Unavailable(f"{PROGRAM} must be run by root")
        # Without a systemd here that has a group for each, two would share one group of
        # processes, and end those of the other.
        self._ended.enter_context(locked(cache_folder() / ".booted.lock"))
        self.root.mkdir()
        copy_tree(debian_tree(["systemd"]), self.root)
        return self

    def boot(self, read_only: Mapping[Path, str]) -> None:
        """Start it and wait until systemd has; `read_only`: our folders, and where.

        Raises Unavailable when it does not boot here.
        """
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified,
            self._console.open("wb") as console,
        ):
            notified.bind(str(self._notify))
            self._nspawn = subprocess.Popen(
                [
                    PROGRAM,
                    f"--directory={self.root}",
                    f"--machine=canal-{os.getpid()}",
                    "--boot",
                    "--quiet",
                    "--notify-ready=yes",
                    "--register=no",
                    *([] if SYSTEMD_IS_HERE.exists() else ["--keep-unit"]),
                    "--link-journal=no",
                    "--resolv-conf=off",
                    "--console=pipe",
                    *(
                        f"--bind-ro={ours}:{inside}"
                        for ours, inside in read_only.items()
                    ),
                ],
                env={"PATH": os.environ["PATH"], "NOTIFY_SOCKET": str(self._notify)},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
            self._ended.callback(self._halt)
            for message in self._messages(notified):
                said = dict(line.split("=", 1) for line in message.splitlines())
                self._leader = int(said.get("X_NSPAWN_LEADER_PID", self._leader))
                if said.get("READY") == "1" and self._leader:
                    return

    def _messages(self, notified: socket.socket) -> Iterator[str]:
        """Yield what nspawn says of the boot, until it ended. Raises Unavailable."""
        assert self._nspawn
        give_up_at = time.monotonic() + BOOT_SECONDS_MAX
        received = notified.fileno()
        ended = os.pidfd_open(self._nspawn.pid)
        try:
            while (left_s := give_up_at - time.monotonic()) > 0:
                readable, _, _ = select.select([received, ended], [], [], left_s)
                if received in readable:
                    yield notified.recv(4096).decode()
                elif ended in readable:
                    raise Unavailable(
                        f"{PROGRAM} cannot boot a Debian here:\n{self._shown()}"
                    )
        finally:
            os.close(ended)
        raise Unavailable(
            f"the Debian did not boot within {BOOT_SECONDS_MAX:g} s:\n{self._shown()}"
        )

    def _shown(self) -> str:
        return self._console.read_text(errors="replace")[-2000:]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as root, to its end; returns its status and output."""
        return self.run_in(self._leader, *command)

    def run_in(self, pid: int, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as root with the files that a process in it sees.

        `pid` is that of this machine.
        """
        return subprocess.run(
            ["nsenter", f"--target={pid}", "--mount", "--uts", "--ipc", "--pid",
             "--root", "--wd", *command],
            env={"PATH": PATH},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )  # fmt: skip

    def output(self, *command: str) -> str:
        """Return what a command printed, which must succeed."""
        done = self.run(*command)
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    def outer_pid(self, pid: int) -> int:
        """Return the id that a process of it has on this machine."""
        ours = Path(f"/proc/{self._leader}/ns/pid").readlink()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "ns/pid").readlink() != ours:
                    continue
                status = (folder / "status").read_text()
            except OSError:  # it has ended
                continue
            ids = next(
                line for line in status.splitlines() if line.startswith("NSpid:")
            )
            if int(ids.split()[-1]) == pid:
                return int(folder.name)
        raise AssertionError(f"there is no process {pid}")

    def close(self) -> None:
        """Power it off and remove its files."""
        self._ended.close()

    def _halt(self) -> None:
        assert self._nspawn
        self._nspawn.terminate()  # has systemd power off
        try:
            self._nspawn.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._nspawn.kill()
            self._nspawn.wait()
