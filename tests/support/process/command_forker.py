"""The process that imports the command `canal-server` and forks runs of it.

A program, with a socket as its standard input, over which `forked_command` asks; its
arguments are what to import.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

REQUEST_BYTES_MAX = 1 << 16
NUMBER = struct.Struct("i")  # a process id, and later an exit status


def main() -> int:
    """Import what the command needs, then run it in each child."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    asked = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    arguments = _fork_when_asked(asked)
    asked.detach()  # closed by now, and its number somebody else's
    status: int = importlib.import_module("canal_server.cli").main(arguments)
    return status


def _fork_when_asked(asked: socket.socket) -> list[str]:
    """Fork for each request; returns in the child, with the arguments of the command.

    Kills what still runs when the one who asks has ended.
    """
    running: dict[int, tuple[int, int]] = {}  # by what waits: process id, reports
    while True:
        ready, _, _ = select.select([asked.fileno(), *running], [], [])
        for waits in running.keys() & set(ready):
            pid, reports = running.pop(waits)
            _, status = os.waitpid(pid, 0)
            _report(reports, os.waitstatus_to_exitcode(status))
            os.close(waits)
            os.close(reports)
        if asked.fileno() in ready:
            request, descriptors, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, 2)
            if not request:
                break
            stderr, reports = descriptors
            if (pid := os.fork()) == 0:
                return _begin(json.loads(request), stderr)
            os.close(stderr)
            _report(reports, pid)
            running[os.pidfd_open(pid)] = pid, reports
    for pid, _ in running.values():
        os.kill(pid, signal.SIGKILL)
    sys.exit()


def _report(reports: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody needs to know any more
        os.write(reports, NUMBER.pack(number))


def _begin(request: dict[str, Any], stderr: int) -> list[str]:
    """Become what a process of its own would be, in the child; return its arguments."""
    os.dup2(stderr, sys.stderr.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.closerange(sys.stderr.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    arguments: list[str] = request["arguments"]
    return arguments


if __name__ == "__main__":
    raise SystemExit(main())
