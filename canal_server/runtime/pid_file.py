"""The file with the process id of a running server, for scripts and service managers.

The server keeps the file open and locked while it runs. So a file that a killed server
or a restart of the machine left is recognized, also if another process has the same id
by now, and never leads to a signal for that process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from canal_server.errors import CanalError
from canal_server.runtime.private_files import reason_of

if TYPE_CHECKING:
    from canal_server.runtime.lifecycle import Deadline

READABLE_BY_ALL: Final = 0o644  # monitoring runs as other users
_TEXT_BYTES_MAX: Final = 64
_ENDED: Final = (b"Z", b"X")  # states of processes in /proc
_CLOCK_SLACK_S: Final = 2.0  # start times of processes have a resolution of 10 ms


class PidFile:
    """A stage: the pid file of this process, from `start` until `join`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def start(self) -> None:
        """Write the file; a stale one is replaced.

        Raises CanalError if a running process has it, or it cannot be written.
        """
        assert self._fd < 0, "a pid file is written once"
        try:
            self._fd = _locked(self._path)
        except OSError as error:
            raise CanalError(
                f"cannot write the pid file {self._path}: {reason_of(error)}; choose"
                " another one with --pid-file"
            ) from error

    def request_stop(self) -> None:
        """Do nothing: the process runs until its stages have ended."""

    def join(self, deadline: Deadline) -> bool:
        """Remove the file; does not wait."""
        del deadline
        if self._fd >= 0:
            # Clean-up: a start recognizes a file that stays.
            with contextlib.suppress(OSError):
                # Not a file that an operator has put there in the meantime.
                if _is_same(self._fd, self._path):
                    self._path.unlink()
            os.close(self._fd)
            self._fd = -1
        return True


def stop_process(path: Path, deadline: Deadline) -> int:
    """Send SIGTERM to the process of a pid file, and wait for its end; returns its id.

    Raises CanalError if no server has the file, if it may not be signalled, or if it
    still runs at the deadline.
    """
    fd = _opened(path)
    try:
        pid = _holder(fd, path)
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            raise _not_running(path) from None
    finally:
        os.close(fd)
    try:
        _end(process, pid, path, deadline)
    finally:
        os.close(process)
    _remove_stale(path)
    return pid


def _end(process: int, pid: int, path: Path, deadline: Deadline) -> None:
    """Send SIGTERM and wait. Raises CanalError."""
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise CanalError(
            f"may not stop process {pid} of {path}: it belongs to another user; stop it"
            " as that user or as root"
        ) from None
    poll = select.poll()
    poll.register(process, select.POLLIN)  # readable when it has ended
    remaining_s = deadline.remaining_s()
    if not poll.poll(None if remaining_s is None else 1000 * remaining_s):
        raise CanalError(
            f"process {pid} of {path} was asked to stop, but still runs after the"
            " timeout; see its log"
        )


def _locked(path: Path) -> int:
    """Write the id of this process to a file; returns the locked descriptor.

    Raises CanalError if it belongs to a running process, OSError.
    """
    while True:
        fd = os.open(
            path,
            os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            READABLE_BY_ALL,
        )
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A server that ends removes its file, perhaps after it was opened here.
            if _is_same(fd, path):
                _refuse_other_owner(fd, path)
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
                return fd
        except BlockingIOError:
            pid = _pid_in(fd)
            os.close(fd)
            raise CanalError(
                f"the pid file {path} belongs to a running server (process"
                f" {pid or 'unknown'}): stop it, or choose another one with --pid-file"
            ) from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _refuse_other_owner(fd: int, path: Path) -> None:
    """Raise CanalError if a running program of another kind has written the file.

    The Java server does not lock its file. A process that is younger than the file has
    its number by chance.
    """
    text = os.pread(fd, _TEXT_BYTES_MAX, 0)
    if not text.strip():
        return
    pid = _pid_in(fd)
    if not pid:
        raise CanalError(
            f"the pid file {path} does not contain a process id: remove it, or choose"
            " another one with --pid-file"
        )
    if pid == os.getpid():  # a container's, before a restart
        return
    born_s = _start_time_s(pid)
    if born_s is None or born_s > os.fstat(fd).st_mtime + _CLOCK_SLACK_S:
        return
    raise CanalError(
        f"the pid file {path} names process {pid} ({_name_of(pid)}), which runs: stop"
        " it, or remove the file if it is not a server"
    )


def _opened(path: Path) -> int:
    """Open the pid file of a running server. Raises CanalError."""
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _not_running(path) from None
    except OSError as error:
        raise CanalError(
            f"cannot read the pid file {path}: {reason_of(error)}"
        ) from error


def _holder(fd: int, path: Path) -> int:
    """Return the id of the process that holds a pid file.

    Raises CanalError if there is none, or if it is another one here: a container has
    process ids of its own.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    else:
        raise _not_running(path)
    pid = _pid_in(fd)
    try:
        if pid and _has_open(pid, os.fstat(fd)):
            return pid
    except PermissionError:
        raise CanalError(
            f"may not stop process {pid} of {path}: it belongs to another user; stop it"
            " as that user or as root"
        ) from None
    raise CanalError(
        f"the pid file {path} belongs to a server that is not process"
        f" {pid or 'unknown'} on this host: stop it in its container"
    )


def _has_open(pid: int, expected: os.stat_result) -> bool:
    """Return whether a process has a file open. Raises PermissionError."""
    folder = Path(f"/proc/{pid}/fd")
    try:
        for each in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(each.stat(), expected):
                    return True
    except (FileNotFoundError, ProcessLookupError):
        pass
    return False


def _remove_stale(path: Path) -> None:
    """Remove the file of a server that was killed, unless another has it by now."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same(fd, path):
                path.unlink()
        finally:
            os.close(fd)


def _not_running(path: Path) -> CanalError:
    return CanalError(f"no server runs with the pid file {path}")


def _is_same(fd: int, path: Path) -> bool:
    """Return whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _pid_in(fd: int) -> int:
    """Return the process id in a file; 0 if there is none."""
    text = os.pread(fd, _TEXT_BYTES_MAX, 0).strip()
    return int(text) if text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004  # an int


def _start_time_s(pid: int) -> float | None:
    """Return when a process started, in seconds since 1970; None if none has the id.

    Nor if it has ended: in a container nobody may have asked for its exit status.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        boot = Path("/proc/stat").read_text()
    except OSError:
        return None
    if fields[0] in _ENDED:
        return None
    booted_s = int(boot.partition("\nbtime ")[2].split()[0])
    return booted_s + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "unknown"
