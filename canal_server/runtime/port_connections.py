"""The connections of a port for HTTP: who may connect, and which one ends for another.

As at the port for clients, those that ask nothing displace only each other: the oldest
one of the address that has most. An address at its limit displaces its own.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from canal_server.runtime.admission import Admission, Limits, group_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from canal_server.runtime.refusal_log import Refusals

C = TypeVar("C", bound="Hashable")


def http_limits(most: int, per_address: int, pending: int) -> Limits:
    """Return limits of a port with at most so many connections.

    `per_address` and `pending` are those of the port for clients, which has more: here
    they are half of all at most, so that one address leaves room for others.
    """
    half = most // 2
    return Limits(most, min(per_address, half), min(pending, half), per_user=most)


class PortConnections(Generic[C]):
    """The connections of one port, and the log of what is refused; thread-safe.

    A connection may be displaced while it asks nothing: before its request has arrived,
    and after that was answered.
    """

    def __init__(
        self, port: str, limits: Limits, refusals: Refusals, close: Callable[[C], None]
    ) -> None:
        """Create without connections; `port` is what the log calls it.

        `close` shuts a connection down and returns at once. It is called while nothing
        can be removed, and uses no method of this object.
        """
        self._port = port
        self._close = close
        self._refusals = refusals
        self._lock = threading.Lock()
        self._admission: Admission[C] = Admission(limits)

    def admit(self, connection: C, host: str, peer: str) -> str:
        """Add a connection; returns why that is refused, empty if it is not.

        Another one is closed if that makes room. `peer` is the address for the log.
        """
        address = group_of(host)
        with self._lock:
            refusal = self._admission.refusal(address)
            if refusal:
                displaced = self._admission.oldest_of(address)
            else:
                displaced = self._admission.displaced()
            if displaced is not None:
                theirs = self._admission.address_of(displaced)
                self._close(displaced)
            is_refused = bool(refusal) and displaced is None
            if not is_refused:
                self._admission.add(connection, address)
        if is_refused:
            self._note(address, f"refused {peer}: {refusal}, the limit")
            return refusal
        if displaced is not None:
            self._note(
                theirs,
                f"closed an idle connection of {theirs} for one of {peer}: the limit of"
                " connections is reached",
            )
        return ""

    def is_asking(self, connection: C, *, asks: bool) -> None:
        """Note that a request has arrived, or was answered."""
        with self._lock:
            if connection not in self._admission:
                return
            if asks:
                self._admission.logged_in(connection)
            else:
                self._admission.wait_again(connection)

    def remove(self, connection: C) -> None:
        """Note that a connection ends; nothing if that is known."""
        with self._lock:
            if connection in self._admission:
                self._admission.remove(connection)

    def log_ended(self) -> None:
        """Log the counts of refusals whose period has ended."""
        self._refusals.log_ended()

    def flush(self) -> None:
        """Log the remaining counts of refusals."""
        self._refusals.flush()

    def _note(self, address: str, what: str) -> None:
        self._refusals.note(address, f"{self._port}: {what}")
