"""Runs of the command `canal-server` that begin with everything imported.

To import it takes longer than most of what a test does with a server. So one process
per run of the tests imports it, does nothing else, and forks whenever a test needs the
command: from there on it goes as in a process of its own, to the exit status.
The tests of the demo start it as a person does.

Leaves out that process (`command_forker`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from command_forker import NUMBER
from fix_daemon import child_environ

if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence

# What a command loads, where the first use would else load it after the fork.
STARTING = (
    "canal_server.cli.start",
    "canal_server.daemon.daemon",
    "canal_server.instance.instance",
)
FORKER_PROGRAM = Path(__file__).parent / "command_forker.py"
START_SECONDS_MAX = 4 * float(os.environ.get("CANAL_TEST_UNIT_S", "20"))


class ForkedCommand:
    """One run of the command: what a `Popen` of it offers, as far as tests need it.

    Its standard output goes nowhere, `stderr` is the file to read the other from.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        forker: Forker | None = None,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        ours, theirs = os.pipe()
        self.stderr = os.fdopen(ours)
        # Says the process id at first, then the exit status.
        self._reported, reports = os.pipe()
        try:
            (forker or FORKER).request(
                self.args, environ or child_environ(), theirs, reports
            )
        finally:
            os.close(theirs)
            os.close(reports)
        self.pid = self._read_number(START_SECONDS_MAX)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        """Wait for its end, return its status as `Popen` does. May be called again."""
        if self.returncode is None:
            self.returncode = self._read_number(timeout_s)
            os.close(self._reported)
        return self.returncode

    def _read_number(self, timeout_s: float) -> int:
        if not select.select([self._reported], [], [], timeout_s)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout_s)
        # Written at once, and far smaller than what a pipe takes whole.
        received = os.read(self._reported, NUMBER.size)
        assert received, "the process that forks has ended"
        (number,) = NUMBER.unpack(received)
        return int(number)


class Forker:
    """Our side of the process that forks; it ends when we do, and its children too."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def request(
        self, arguments: list[str], environ: dict[str, str], stderr: int, reports: int
    ) -> None:
        """Have it fork; the descriptors may be closed after."""
        request = json.dumps({"arguments": arguments, "environ": environ})
        with self._lock:
            if self._socket is None:
                self._socket = self._start()
            socket.send_fds(self._socket, [request.encode()], [stderr, reports])

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, str(FORKER_PROGRAM), *self._modules],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=child_environ(),
                start_new_session=True,  # ^C is for us, not for it
            )

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
        return ours


FORKER = Forker(*STARTING)
