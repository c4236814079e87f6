"""Keeps a second server from writing a history in a MySQL: a lock that it holds there.

The lock is the connection's, and is free when that ends in whatever way. A server that
only has not noticed yet that a connection of ours broke would keep us out: such a one
is ended.

Servers that share a destination may lose it to each other while they are paused, or cut
off. Then a lock says too little in both directions: who comes back from a pause could
take it while nobody has it, and who is paused, or lost its power, would keep it for
hours. So a connection of theirs is used only if its server has the destination once the
lock is taken, and the MySQL ends it when it was silent for as long as that may be.
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

# For a server that ended just now, and of whose end the MySQL does not know yet.
WAIT_S: Final = 5
_DIGEST_BYTES: Final = 16  # names may have 64 characters, and case does not count


@dataclass(frozen=True, slots=True)
class Owner:
    """Who may run a destination that several servers share.

    `is_us` asks whether it is this server at this moment; it may take a while.
    `silent_s` tells after which time a server has it no more that says nothing.
    """

    is_us: Callable[[], bool]
    silent_s: Callable[[], float]


class HistoryLock:
    """The right to write one destination's history in one data base."""

    def __init__(
        self, destination: str, wait_s: int, owner: Owner | None = None
    ) -> None:
        """`owner`: of a destination that servers share."""
        self._destination = destination
        self._wait_s = wait_s
        self._owner = owner
        self._held: tuple[int, str] | None = None  # connection that had it last

    def take(self, connection: ControlConnection) -> str | None:
        """Take the lock, or tell who has it. Raises ConnectionLost.

        Where the server has no locks (a Galera cluster in strict mode), that is
        logged and nobody is kept away.
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
        """Tell whether what it guards is for this server to write, once it is taken."""
        return self._owner is None or self._owner.is_us()

    def _name(self, connection: ControlConnection) -> str:
        rows = connection.query(
            "SELECT IF(@@lower_case_table_names > 0, LOWER(DATABASE()), DATABASE())"
        )
        text = f"{rows[0][0]}\0{self._destination}".encode()
        digest = hashlib.blake2b(text, digest_size=_DIGEST_BYTES)
        return f"canal_server.{digest.hexdigest()}"

    def _end_former(self, connection: ControlConnection, name: str) -> None:
        """End the connection that we lost, where the server holds on to it."""
        if self._held is None:
            return
        identity, host = self._held
        rows = connection.query("SELECT IS_USED_LOCK(%s)", (name,))
        # A server that was started anew gives the same number to others.
        if rows[0][0] == identity and _host(connection, identity) == host:
            # It may be gone by now.
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
    """Return from where a connection comes; "" when it is not of our account."""
    for row in connection.query("SHOW PROCESSLIST"):
        if int(row[0]) == identity:
            return str(row[2])
    return ""
