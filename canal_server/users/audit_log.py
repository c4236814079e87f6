"""Who did what, as lines of JSON in a file of their own, without values of rows.

Each line has `time`, `event`, `user`, `address` and what belongs to the event;
docs/reference/audit.md lists them. A line is one write, so that lines of several
threads do not mix.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import ConfigError
from canal_server.messages import server_messages
from canal_server.runtime.private_files import (
    make_private_folder,
    open_private,
    reason_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from canal_server.model.identity import ClientIdentity

log = logging.getLogger(__name__)

KEY: Final = "canal.audit.file"
BYTES_MAX: Final = 64 << 20  # of a file, after which a new one begins
FILES_MAX: Final = 16  # with the current one; the oldest are deleted
NAME_MAX: Final = 64  # characters of a name that nobody has proven
LOG_AGAIN_S: Final = 600.0  # what fails each time
SUM_S: Final = 300.0  # after which what a session has read is noted
REFUSED_MAX: Final = 1000  # users, by host, whose refusals are counted
REFUSALS_MAX: Final = 20  # different ones, of a user from a host, in that time
LOCAL: Final = "control socket"  # as an address
COMMAND: Final = "command"  # the same, while no server runs


class AuditLog:
    """The file; without a path, nothing is noted."""

    def __init__(self, path: Path | None, bytes_max: int = BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._fd = -1
        self._failed_s: float | None = None  # when a failure was logged
        self._refusals_lock = threading.Lock()
        # By user and host; the last one is the one that was refused last.
        self._refusals: dict[tuple[str | None, str], _Refusals] = {}

    @property
    def is_on(self) -> bool:
        """Return whether events are noted."""
        return self._path is not None

    def open(self) -> None:
        """Create the file, or append to it. Raises ConfigError."""
        if self._path is None:
            return
        try:
            make_private_folder(self._path.parent)
            with self._lock:
                self._open()
        except OSError as error:
            raise ConfigError(
                [f"{KEY} = {self._path}: cannot write: {reason_of(error)}"]
            ) from error

    def note(self, event: str, user: str | None, address: str, **more: Any) -> None:
        """Append an event; what cannot be written is logged, and lost."""
        if self._path is None:
            return
        content = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": event,
            "user": None if user is None else user[:NAME_MAX],
            "address": address,
            **more,
        }
        line = json.dumps(content, ensure_ascii=True).encode() + b"\n"
        with self._lock:
            try:
                if self._fd < 0 or self._was_moved():
                    self._open()
                if os.fstat(self._fd).st_size + len(line) > self._bytes_max:
                    self._rotate()
                self._write(line)
            except OSError as error:
                self._report(error)
            else:
                self._failed_s = None

    def note_refusal(
        self, user: str | None, address: str, action: str, destination: str | None
    ) -> None:
        """Note that a user may not do something.

        The same once in `SUM_S`, and no more than `REFUSALS_MAX` in that time: a client
        that asks again and again fills no file. A note counts what had none before it.
        """
        if self._path is None:
            return
        now_s = time.monotonic()
        who = user, address.rpartition(":")[0]
        with self._refusals_lock:
            found = self._refusals.pop(who, None) or _Refusals(now_s)
            self._refusals[who] = found
            if len(self._refusals) > REFUSED_MAX:
                del self._refusals[next(iter(self._refusals))]
            times = found.add((action, destination), now_s)
        if times:
            self.note(
                "access_refused",
                user,
                address,
                action=action,
                destination=destination,
                times=times,
            )

    def _open(self) -> None:
        assert self._path is not None, "events are noted"
        self._close()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._fd = open_private(self._path, flags, may_be_pipe=True)

    def _write(self, line: bytes) -> None:
        """Write a line, or nothing of it. Raises OSError."""
        size = os.fstat(self._fd).st_size
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError:
            with contextlib.suppress(OSError):  # it is no file
                os.ftruncate(self._fd, size)
            raise

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _was_moved(self) -> bool:
        """Return whether the file has another name now, as logrotate does."""
        assert self._path is not None, "events are noted"
        here = os.fstat(self._fd)
        try:
            there = self._path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return True
        return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)

    def _rotate(self) -> None:
        """Begin a new file; earlier ones get the numbers 1, 2 and so on."""
        assert self._path is not None, "events are noted"
        names = [self._path] + [
            self._path.with_name(f"{self._path.name}.{n}") for n in range(1, FILES_MAX)
        ]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            if newer.exists():
                newer.replace(older)
        self._open()

    def _report(self, error: OSError) -> None:
        now_s = time.monotonic()
        if self._failed_s is None or now_s - self._failed_s >= LOG_AGAIN_S:
            self._failed_s = now_s
            server_messages.AUDIT_WRITE_FAILED.log(log, self._path, reason_of(error))


@dataclass(slots=True)
class _Refusals:
    """What a user was refused, from one host; `since_s` is of the monotonic clock."""

    since_s: float
    noted: set[tuple[str, str | None]] = field(default_factory=set)
    times: int = 0  # without a note

    def add(self, what: tuple[str, str | None], now_s: float) -> int:
        """Count a refusal; returns how many a note is for, 0 for no note."""
        if now_s - self.since_s >= SUM_S:
            self.since_s = now_s
            self.noted.clear()
        self.times += 1
        if what in self.noted or len(self.noted) >= REFUSALS_MAX:
            return 0
        self.noted.add(what)
        times, self.times = self.times, 0
        return times


class ReadSums:
    """What one session has read: noted now and then, and at its end; for one thread."""

    def __init__(self, audit: AuditLog, user: str, address: str) -> None:
        self._audit = audit
        self._who = user or None, address
        # By destination and client id: what was read since it was last noted.
        self._sums: dict[tuple[str, int], dict[str, Any]] = {}
        self._since_s = time.monotonic()

    def add(  # noqa: PLR0917  # the fields of one batch
        self,
        identity: ClientIdentity,
        start: object,
        end: object,
        rows: int,
        size: int,
        filter_of: Callable[[ClientIdentity], str],
    ) -> None:
        """Add a batch; `size` in bytes."""
        key = identity.destination, identity.client_id
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = {
                "filter": filter_of(identity),
                "from": str(start),
                "batches": 0,
                "rows": 0,
                "bytes": 0,
            }
        found["to"] = str(end)
        found["batches"] += 1
        found["rows"] += rows
        found["bytes"] += size
        if time.monotonic() - self._since_s >= SUM_S:
            self.flush()

    def flush(self) -> None:
        """Note what was read."""
        for (destination, client_id), found in self._sums.items():
            self._audit.note(
                "read",
                *self._who,
                destination=destination,
                client_id=client_id,
                **found,
            )
        self._sums.clear()
        self._since_s = time.monotonic()
