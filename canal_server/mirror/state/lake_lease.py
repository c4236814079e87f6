"""The right to write into a mirror's part of the lake; one process holds it at a time.

On a file system it is a lock, which ends with its process. An object store has no
locks: there it is a file with a time, which a thread of its owner rewrites at
intervals, whatever else that process is busy with; another process takes over a file
that is too old. Two that do so at once find out by reading the file back; what slips
through fails at the tables' own transactions.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import LakeError, LeaseLost
from canal_server.runtime.private_files import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from canal_server.mirror.lake.lake_storage import Folder

FILE: Final = "lock.json"
LASTS_S: Final = 60.0  # until it expires without renewal, in an object store
RENEWED_S: Final = 10.0  # how often it is renewed there
SETTLES_S: Final = 2.0  # until a read returns the last write
TRIES: Final = 5  # at a lock that another process may only inspect
TRY_S: Final = 0.1


class Lease:
    """The lease of this process; a context manager that holds it inside."""

    def __init__(
        self,
        folder: Folder,
        now: Callable[[], float] = time.time,
        wait: Callable[[float], object] = time.sleep,
        *,
        renewed_s: float = RENEWED_S,
        on_lost: Callable[[], object] = lambda: None,
    ) -> None:
        """Set the mirror's own folder; nothing is locked yet.

        `on_lost` is called once, in the thread that renews the lease, when another
        process has taken it over.
        """
        self._folder = folder
        self._now = now
        self._wait = wait
        self._token = uuid.uuid4().hex
        self._renewed_at = 0.0  # in an object store
        self._file: Any = None
        self._renewed_s = renewed_s
        self._on_lost = on_lost
        self._released = threading.Event()
        self._renewing: threading.Thread | None = None
        self._failure: LakeError | None = None  # of the last renewal
        self.lost: LeaseLost | None = None  # set once

    def acquire(self) -> None:
        """Acquire the lease. Raises LakeError, which names the owner, if it is held."""
        path = self._folder.local_path
        if path is not None:
            self._lock(path)
            return
        other = self._owner()
        if other is not None and self._is_alive(other):
            self._refuse(other)
        self._write()
        self._wait(SETTLES_S)
        other = self._owner()
        if other is None or other.get("token") != self._token:
            self._refuse(other or {})
        self._released.clear()
        self._renewing = threading.Thread(
            target=self._renew_until_released, name="lease", daemon=True
        )
        self._renewing.start()

    def check(self) -> None:
        """Raise LakeError if the last renewal failed."""
        if self._failure is not None:
            raise LakeError(str(self._failure)) from self._failure

    def _renew_until_released(self) -> None:
        while not self._released.wait(self._renewed_s):
            try:
                self._renew()
            except LeaseLost as error:
                self.lost = error
                self._on_lost()
                return
            except LakeError as error:
                self._failure = error  # the store may be back at the next renewal
            else:
                self._failure = None

    def _renew(self) -> None:
        other = self._owner()
        if other is not None and other.get("token") != self._token:
            raise LeaseLost(
                f"the lease of {self._folder} was taken over by {_owner_text(other)}"
            )
        late_s = self._now() - self._renewed_at
        if other is None and late_s > LASTS_S:
            raise LeaseLost(
                f"the lease of {self._folder} was not renewed for {late_s:.0f} s, and "
                "no longer exists: another process may have had it"
            )
        self._write()

    def release(self) -> None:
        """Release the lease; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None
            return
        self._released.set()
        if self._renewing is not None:
            self._renewing.join()  # it would write the file again
            self._renewing = None
        other = self._owner()
        if other is not None and other.get("token") == self._token:
            self._folder.delete(FILE)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _lock(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
            file = open(  # noqa: SIM115  # kept open
                f"{path}/{FILE}", "a+b", opener=_open_no_link
            )
        except OSError as error:
            text = f"cannot write {path}/{FILE}: {reason_of(error)}"
            raise LakeError(text) from error
        if not self._locked(file):
            file.close()
            self._refuse(self._owner() or {})
        file.truncate(0)
        file.write(self._text())
        file.flush()
        self._file = file

    def _locked(self, file: Any) -> bool:
        for tries_left in reversed(range(TRIES)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if tries_left:
                    threading.Event().wait(TRY_S)
            else:
                return True
        return False

    def _write(self) -> None:
        now = self._now()
        self._folder.write(FILE, self._text())
        self._renewed_at = now

    def _text(self) -> bytes:
        text = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "token": self._token,
            "at": self._now(),
        }
        return json.dumps(text).encode()

    def _owner(self) -> dict[str, Any] | None:
        return _owner_of(self._folder)

    def _is_alive(self, other: dict[str, Any]) -> bool:
        return _is_alive(other, self._now())

    def _refuse(self, other: dict[str, Any]) -> None:
        text = (
            f"this mirror is already running: {_owner_text(other)} holds "
            f"{self._folder}/{FILE}; stop it first, or give this mirror another name"
        )
        if self._folder.local_path is None:
            text += f"; if it was killed, start this one {LASTS_S:.0f} seconds later"
        raise LakeError(text)


def _open_no_link(path: str, flags: int) -> int:
    """Open a file to overwrite it, but never through a symbolic link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def holder(folder: Folder) -> str | None:
    """Return who holds the lease now; None if nobody does. Raises LakeError."""
    other = _owner_of(folder)
    if other is None:
        return None
    if folder.local_path is None:
        return _owner_text(other) if _is_alive(other, time.time()) else None
    try:
        with open(f"{folder.local_path}/{FILE}", "rb") as file:  # noqa: PTH123
            # Released at once; a process that fails to lock meanwhile tries again.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner_text(other)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LakeError(f"cannot read {folder}/{FILE}: {error}") from error
    return None


def _owner_of(folder: Folder) -> dict[str, Any] | None:
    """Return who wrote the file last; None if it does not exist."""
    try:
        found = json.loads(folder.read(FILE) or b"null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else None


def _is_alive(other: dict[str, Any], now_s: float) -> bool:
    at = other.get("at")
    return isinstance(at, int | float) and now_s - at < LASTS_S


def _owner_text(other: dict[str, Any]) -> str:
    return f"process {other.get('pid', '?')} on {other.get('host', '?')}"
