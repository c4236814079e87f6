"""A process that continues in the background, and its starter, which waits until then.

::

    starter ── fork ── session leader ── fork ── background process
       │ its standard error  ◄──────────────────────── until it is ready
       │ exit status ◄──── ready, or how it ended ◄──── writes a pipe, or ends

The session leader ends with the status of the background process, or with 0 when that
is ready; the background process, not a leader, can never acquire a terminal. Leaves out
what runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from canal_server.runtime.private_files import make_private_folder, open_private

if TYPE_CHECKING:
    from pathlib import Path

STANDARD_ERROR: Final = 2
SIGNALLED: Final = 128  # added to the number of the signal that ended a process


class Starter:
    """The process that started another one: waits until that is ready or has ended."""

    def __init__(self, leader: int, pids: int, errors: int) -> None:
        self._leader = leader
        self._errors = errors
        with os.fdopen(pids, "rb") as pipe:
            self.pid = int(pipe.read() or 0)

    def wait(self) -> tuple[int, bool]:
        """Copy its standard error to ours until it is ready or has ended.

        Returns its exit status, 0 if it is ready, and whether there was any output.
        """
        with os.fdopen(self._errors, encoding="utf-8", errors="replace") as pipe:
            is_silent = True
            for line in pipe:
                is_silent = False
                sys.stderr.write(line)
        _, status = os.waitpid(self._leader, 0)
        return os.waitstatus_to_exitcode(status), not is_silent

    def stop(self) -> None:
        """Ask the process to stop, and wait until it has ended or was ready."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._leader, 0)


class Background:
    """The process in the background. Its standard error is still the starter's."""

    def __init__(self, ready: int) -> None:
        self._ready = ready

    def begin(self, output: Path) -> None:
        """Send standard output to a file, which is extended. Raises OSError."""
        make_private_folder(output.parent)
        fd = open_private(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(fd, 1)
        os.close(fd)

    def ready(self) -> None:
        """Release the starter; standard error follows standard output from now on."""
        sys.stderr.flush()
        os.dup2(1, STANDARD_ERROR)
        with contextlib.suppress(OSError):  # the starter has ended
            os.write(self._ready, b"\n")
        os.close(self._ready)


def detach() -> Starter | Background:
    """Return twice: in this process, and in a new one in the background.

    Must not be called while other threads run.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    # A standard stream that is closed leaves its number to the next file.
    while (fd := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= STANDARD_ERROR:
        pass
    os.close(fd)
    pids = os.pipe()
    errors = os.pipe()
    leader = os.fork()
    if leader:
        os.close(pids[1])
        os.close(errors[1])
        return Starter(leader, pids[0], errors[0])
    os.close(pids[0])
    os.close(errors[0])
    return _lead(pids[1], errors[1])


def _lead(pids: int, errors: int) -> Background:
    """Lead a new session: start the background process, in which this returns."""
    os.setsid()
    ready = os.pipe()
    child = os.fork()
    if child:
        os.write(pids, str(child).encode())
        for fd in (pids, errors, ready[1], STANDARD_ERROR):
            os.close(fd)
        os._exit(0 if os.read(ready[0], 1) else _status_of(child))
    os.close(pids)
    os.close(ready[0])
    _leave_surroundings(errors)
    return Background(ready[1])


def _status_of(child: int) -> int:
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else SIGNALLED - code


def _leave_surroundings(errors: int) -> None:
    """Use no folder, terminal or file that the starter was given."""
    os.chdir("/")
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.dup2(errors, STANDARD_ERROR)
    os.close(nowhere)
    os.close(errors)
    # What a shell has left open, such as the pipe of a `$(…)`, would keep it waiting.
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # names, not paths
        fd = int(name)
        with contextlib.suppress(OSError):  # that of the listing itself
            if fd > STANDARD_ERROR and os.get_inheritable(fd):
                os.close(fd)
