"""Ends the session of a server that died in the same data folder.

A server that is killed leaves a session behind. The session keeps the destinations from
others, and from the server itself when it is restarted, until ZooKeeper has waited long
enough. Therefore each session is remembered in the data folder, with its password; the
next server there reconnects to it and closes it.

That is safe only when the process that had it is certainly dead: as long as it lives it
may trust its lease. So nothing is done unless

* this server holds the lock of the data folder, and the same file was locked then: not
  that of a copy, whose original another server may still hold;
* the machine was not restarted since: a lock says nothing about processes of another
  kernel;
* no process with that number and start time exists: it may be ending without the lock.

Leaves out the lock itself (`canal_server.daemon.control`), which is acquired before
this is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canal_server.doors.zookeeper import end_session
from canal_server.errors import ZooKeeperError
from canal_server.messages import cluster_messages
from canal_server.runtime.private_files import open_private, read_whole, reason_of

if TYPE_CHECKING:
    from canal_server.doors.zookeeper import ZooKeeper

log = logging.getLogger(__name__)

ANSWER_S: Final = 5.0  # for ZooKeeper to hand over the session; it answered just now
PROC: Final = Path("/proc")
_START_FIELD: Final = 19  # of /proc/<pid>/stat, after the name: the start time


class Predecessor:
    """Remembers one session with ZooKeeper at a time; for one thread."""

    def __init__(
        self, lock: Path, servers: str, timeout_s: float, *, proc: Path = PROC
    ) -> None:
        """`lock` is the locked file of the data folder; `proc` describes processes.

        A process has one session for each combination of servers and time-out.
        """
        digest = hashlib.sha256(f"{servers} {timeout_s}".encode()).hexdigest()[:8]
        self.path = lock.with_name(f"canal-server.session-{digest}")
        self._lock = lock
        self._servers = servers
        self._proc = proc
        self._remembered: int | None = None

    def end(self) -> None:
        """End the session of a server that is certainly dead; never raises."""
        try:
            found = self._read()
            if found is None:
                return
            session, secret = int(found["session"]), bytes.fromhex(found["secret"])
            if end_session(self._servers, session, secret, ANSWER_S):
                log.info(
                    "ended the session with ZooKeeper at %s that the dead process %d"
                    " left behind",
                    self._servers,
                    found["process"][0],
                )
        except (
            *(OSError, ValueError, LookupError, TypeError, RecursionError),
            ZooKeeperError,
        ) as error:
            log.info(
                "could not end the session that an earlier server may have left with"
                " ZooKeeper at %s; it ends after its timeout: %s",
                self._servers,
                error,
            )

    def remember(self, zookeeper: ZooKeeper) -> None:
        """Store the current session, unless it is stored already; never raises."""
        key = zookeeper.key
        if key is None or key[0] == self._remembered:
            return
        found: dict[str, Any] = {"session": key[0], "secret": key[1].hex()}
        written = self.path.with_name(f"{self.path.name}.new")
        try:
            found |= self._circumstances()
            fd = open_private(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(fd, "w") as file:
                json.dump(found, file)
            # Not synced: after a crash of the machine the file is ignored.
            written.replace(self.path)
        except OSError as error:
            cluster_messages.SESSION_NOT_REMEMBERED.log(
                log, self.path, reason_of(error)
            )
        self._remembered = key[0]

    def forget(self) -> None:
        """Note that the session was ended."""
        self._remembered = None
        with contextlib.suppress(OSError):  # a next server finds that it has ended
            self.path.unlink()

    def _read(self) -> dict[str, Any] | None:
        """Return what an earlier server stored, None unless it is certainly dead."""
        try:
            found: dict[str, Any] = json.loads(read_whole(self.path))
        except FileNotFoundError:
            return None
        pid, started = found["process"]
        mine = self._circumstances()
        if found["lock"] != mine["lock"] or found["boot"] != mine["boot"]:
            return None
        return None if self._started(int(pid)) == started else found

    def _circumstances(self) -> dict[str, Any]:
        """Return what distinguishes this run of a server from others."""
        lock = self._lock.stat()
        boot = (self._proc / "sys/kernel/random/boot_id").read_text().strip()
        pid = os.getpid()
        return {
            "lock": [lock.st_dev, lock.st_ino],
            "boot": boot,
            "process": [pid, self._started(pid)],
        }

    def _started(self, pid: int) -> int | None:
        """Return the start time of a process, None when it has ended."""
        try:
            stat = (self._proc / str(pid) / "stat").read_text()
        except OSError:
            return None
        # The name is in parentheses, and may contain some; the state follows it.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[_START_FIELD])
