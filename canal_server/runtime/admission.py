"""Decides who may connect: limits for all, for one address, and before log-in.

Strangers that open connections and stay silent displace only each other: when there are
too many of them, or no connection is left, the oldest one is closed of the address that
has most. So a client that knows the password can always connect, unless clients that
logged in use all connections. Leaves out sockets and threads, and how long a log-in may
take; used under the lock of a port.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

C = TypeVar("C", bound="Hashable")


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections may exist at the same time."""

    all: int
    per_address: int
    pending: int  # that have not logged in
    per_user: int  # that have logged in as one user


def group_of(host: str) -> str:
    """Return what counts as one address: for IPv6 one customer's network, a /64."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:  # noqa: PLR2004  # the protocol's
        return host
    return str(ipaddress.ip_network((int(address), 64), strict=False))


class Admission(Generic[C]):
    """The current connections, by address, and which of them have logged in."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._addresses: dict[C, str] = {}
        self._counts: Counter[str] = Counter()  # by address
        self._pending: dict[C, str] = {}  # oldest first
        self._users: dict[C, str] = {}
        self._by_user: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._addresses)

    def address_of(self, connection: C) -> str:
        """Return the address of a connection that has not ended."""
        return self._addresses[connection]

    def refusal(self, address: str) -> str:
        """Return why an address may not connect; empty when it may."""
        limits = self._limits
        if self._counts[address] >= limits.per_address:
            return f"{limits.per_address} clients are connected from one address"
        if len(self._addresses) >= limits.all and not self._pending:
            return f"{limits.all} clients are connected"
        return ""

    def displaced(self) -> C | None:
        """Return which connection must end before another one is accepted, or None.

        From here on it no longer counts as one that may be displaced.
        """
        limits = self._limits
        is_full = len(self._addresses) >= limits.all
        if not self._pending or not (is_full or len(self._pending) >= limits.pending):
            return None
        counts = Counter(self._pending.values())
        most = max(counts.values())
        oldest = next(c for c, host in self._pending.items() if counts[host] == most)
        del self._pending[oldest]
        return oldest

    def oldest_of(self, address: str) -> C | None:
        """Return the connection of an address that may end for another one of it.

        From here on it no longer counts as one that may be displaced.
        """
        oldest = next((c for c, host in self._pending.items() if host == address), None)
        if oldest is not None:
            del self._pending[oldest]
        return oldest

    def wait_again(self, connection: C) -> None:
        """Note that a connection may be displaced again, after all others."""
        self._pending[connection] = self._addresses[connection]

    def add(self, connection: C, address: str) -> None:
        """Note a new connection."""
        self._addresses[connection] = self._pending[connection] = address
        self._counts[address] += 1

    def logged_in(self, connection: C, user: str = "", most: int = 0) -> str:
        """Note that a connection logged in; returns why it may not, or nothing.

        `most` replaces the limit of connections per user unless it is 0. Those without
        a name have none, as they may be of anybody.
        """
        most = most or self._limits.per_user
        if user and self._users.get(connection) == user:
            return ""  # again, because its first subscription was refused
        if user and self._by_user[user] >= most:
            return f"{most} clients are connected as this user, the limit"
        self._pending.pop(connection, None)
        self._forget_user(connection)
        if user:
            self._users[connection] = user
            self._by_user[user] += 1
        return ""

    def _forget_user(self, connection: C) -> None:
        user = self._users.pop(connection, "")
        if user:
            self._by_user[user] -= 1
            if not self._by_user[user]:
                del self._by_user[user]

    def __contains__(self, connection: C) -> bool:
        """Return whether a connection was added and has not ended."""
        return connection in self._addresses

    def remove(self, connection: C) -> None:
        """Note that a connection ended."""
        self._pending.pop(connection, None)
        self._forget_user(connection)
        address = self._addresses.pop(connection)
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
