"""Prevents a second server from writing a history in MySQL, by a lock on that server.

The lock belongs to a connection, and is released when that ends for whatever reason. If
the MySQL server has not yet noticed that a connection of ours broke, it would lock us
out: such a connection is killed.

Servers that share a destination may lose it to each other while they are paused or
disconnected. A lock is then insufficient in both directions: a server that resumes
could acquire it while it is free, and a server that is paused or has lost power would
keep it for hours. Therefore their connection is used only if the server owns the
destination once the lock is acquired, and MySQL closes it after it has been idle for
that long.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConnectionLost, SourceError
from canal_server.messages import history_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.mysql.control_connection import ControlConnection

_log = logging.getLogger(__name__)

# For a server that has just stopped, which MySQL may not have noticed.
WAIT_S: Final = 5
_DIGEST_BYTES: Final = 16  # lock names have up to 64 characters, and ignore case


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a destination that several servers share.

    `is_us` checks whether it is this server now; it may be slow. `silent_s` is the time
    after which a silent server loses the destination.
    """

    is_us: Callable[[], bool]
    silent_s: Callable[[], float]


class HistoryLock:
    """The right to write the history of one destination in one database."""

    def __init__(
        self, destination: str, wait_s: int, owner: Owner | None = None
    ) -> None:
        """`owner`: for a destination that servers share."""
        self._destination = destination
        self._wait_s = wait_s
        self._owner = owner
        self._held: tuple[int, str] | None = None  # connection that last held it

    def take(self, connection: ControlConnection) -> str | None:
        """Acquire the lock, or return who holds it. Raises ConnectionLost.

        If the server has no locks (a Galera cluster in strict mode), that is logged and
        no server is locked out.
        """
        name = self._name(connection)
        self._end_former(connection, name)
        if self._owner is not None:
            silent_s = max(1, round(self._owner.silent_s()))
            connection.query(f"SET SESSION wait_timeout = {silent_s}")
        try:
            rows = connection.query("SELECT GET_LOCK(%s, %s)", (name, self._wait_s))
        except ConnectionLost:
            raise
        except SourceError as error:
            history_messages.HISTORY_NOT_LOCKED.log(
                _log, self._destination, connection.access.address, error
            )
            return None
        if rows[0][0] != 1:
            return self._holder(connection, name)
        identity = connection.connection_id
        self._held = (identity, _host(connection, identity))
        return None

    def is_ours(self) -> bool:
        """Return whether this server may write the history, once it holds the lock."""
        return self._owner is None or self._owner.is_us()

    def _name(self, connection: ControlConnection) -> str:
        rows = connection.query(
            "SELECT IF(@@lower_case_table_names > 0, LOWER(DATABASE()), DATABASE())"
        )
        text = f"{rows[0][0]}\0{self._destination}".encode()
        digest = hashlib.blake2b(text, digest_size=_DIGEST_BYTES)
        return f"canal_server.{digest.hexdigest()}"

    def _end_former(self, connection: ControlConnection, name: str) -> None:
        """Kill our lost connection if the server still keeps it."""
        if self._held is None:
            return
        identity, host = self._held
        rows = connection.query("SELECT IS_USED_LOCK(%s)", (name,))
        # A restarted server assigns the same number to other connections.
        if rows[0][0] == identity and _host(connection, identity) == host:
            # It may have ended by now.
            with contextlib.suppress(SourceError):
                connection.query(f"KILL {identity}")

    def _holder(self, connection: ControlConnection, name: str) -> str:
        rows = connection.query("SELECT IS_USED_LOCK(%s)", (name,))
        if rows[0][0] is None:
            return "a connection that has just ended"
        identity = int(rows[0][0])
        host = _host(connection, identity)
        return f"connection {identity}" + (f" from {host}" if host else "")


def _host(connection: ControlConnection, identity: int) -> str:
    """Return the host of a connection; "" if it is not of our account."""
    for row in connection.query("SHOW PROCESSLIST"):
        if int(row[0]) == identity:
            return str(row[2])
    return ""
