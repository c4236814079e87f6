"""Runs a command that writes a password to its standard output."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Final, NoReturn

from canal_server.errors import PasswordError
from canal_server.passwords.password_file import PASSWORD_BYTES_MAX

if TYPE_CHECKING:
    from canal_server.runtime.lifecycle import Stop

TIMEOUT_S: Final = 10.0  # of one run, the wait for others included
END_S: Final = 1.0  # to end it after that
AT_A_TIME: Final = 4  # commands that run together when many connections are lost

_slots = threading.BoundedSemaphore(AT_A_TIME)


def output_of(key: str, command: str, stop: Stop | None = None) -> bytes:
    """Run a command without a shell and return its output.

    Its standard error is discarded, because programs write secrets there. A `stop`
    ends the command. Raises PasswordError with the key and the program; its arguments
    are not shown.
    """
    return _Run(key, command, stop).run()


def program_of(command: str) -> str:
    """Return the name of the program in a command line."""
    return next(iter(shlex.split(command)), "")


class _Run:
    """One run of a command."""

    def __init__(self, key: str, command: str, stop: Stop | None) -> None:
        self._key = key
        self._arguments = shlex.split(command)
        self._stop = stop
        self._until_s = time.monotonic() + TIMEOUT_S

    def run(self) -> bytes:
        if not _slots.acquire(timeout=TIMEOUT_S):
            self._fail(
                f"did not start within {TIMEOUT_S:g} s: {AT_A_TIME} commands for"
                " passwords are running; use faster ones"
            )
        try:
            return self._run()
        finally:
            _slots.release()

    def _run(self) -> bytes:
        try:
            # In a group of its own, so that what it starts can be ended as well.
            process = subprocess.Popen(  # noqa: S603  # the operator's own
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "not a command"
            self._fail(f"cannot run: {why}; write the path of a program")
        try:
            output = self._output(process)
            status = process.wait(max(0.0, self._until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._end(process)
            self._fail_by_time()
        except BaseException:
            self._end(process)
            raise
        finally:
            assert process.stdout is not None, "it was asked for"
            process.stdout.close()
        if status:
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            self._fail(
                f"failed with {how}; run it as the user of the server to see why"
            )
        return output

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End a command, which was not waited for, and what it has started."""
        # It may run as another user, by sudo, and cannot be ended then.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)

    def _output(self, process: subprocess.Popen[bytes]) -> bytes:
        """Return what it writes until it closes its output."""
        assert process.stdout is not None, "it was asked for"
        descriptor = process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if self._stop is not None:
            poll.register(self._stop, select.POLLIN)
        output = b""
        while True:
            left_s = self._until_s - time.monotonic()
            ready = [found for found, _ in poll.poll(max(0.0, left_s) * 1000)]
            if self._stop is not None and self._stop.requested():
                self._fail("was ended, as the server stops")
            if descriptor not in ready:
                self._fail_by_time()
            data = os.read(descriptor, PASSWORD_BYTES_MAX)
            if not data:
                return output
            output += data
            if len(output) > PASSWORD_BYTES_MAX:
                self._fail(
                    f"wrote more than {PASSWORD_BYTES_MAX} bytes; it must write the"
                    " password, and nothing else"
                )

    def _fail_by_time(self) -> NoReturn:
        self._fail(f"did not end within {TIMEOUT_S:g} s; use a faster command")

    def _fail(self, problem: str) -> NoReturn:
        # Not chained: errors of `subprocess` have the arguments in them.
        program = next(iter(self._arguments), "")
        raise PasswordError(self._key, program, problem) from None
