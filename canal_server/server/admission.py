"""Who may connect: limits for all, for one address, and for those not logged in.

Strangers that open connections and stay silent take the places of each other only: when
there are too many of them, or no place is left, the oldest one is closed of the address
that has most. So somebody who knows the password always finds a place, unless all are
taken by those who logged in. Leaves out sockets and threads; used under the lock of the
listener, times are given.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

C = TypeVar("C", bound="Hashable")

ADDRESSES_MAX: Final = 10_000  # of which failed log-ins are counted
FORGET_S: Final = 60.0  # after the last failed one
DELAY_MIN_S: Final = 0.25
DELAY_MAX_S: Final = 5.0


def group_of(host: str) -> str:
    """Return what counts as one address: of IPv6 what one customer has, a /64."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:  # noqa: PLR2004  # the protocol's
        return host
    return str(ipaddress.ip_network((int(address), 64), strict=False))


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections may be there at the same time."""

    all: int
    per_address: int
    pending: int  # that have not logged in


class Admission(Generic[C]):
    """The connections that are there, by address, and which have logged in."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._addresses: dict[C, str] = {}
        self._counts: Counter[str] = Counter()  # by address
        self._pending: dict[C, str] = {}  # oldest first

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._addresses)

    def refusal(self, address: str) -> str:
        """Return why no connection may come from an address; empty when one may."""
        limits = self._limits
        if self._counts[address] >= limits.per_address:
            return f"{limits.per_address} clients are connected from one address"
        if len(self._addresses) >= limits.all and not self._pending:
            return f"{limits.all} clients are connected"
        return ""

    def displaced(self) -> C | None:
        """Return which connection must end before another one may come; None: none.

        It does not count as one that may be displaced from here on.
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

    def add(self, connection: C, address: str) -> None:
        """Note that a connection came."""
        self._addresses[connection] = self._pending[connection] = address
        self._counts[address] += 1

    def logged_in(self, connection: C) -> None:
        """Note that a connection logged in."""
        self._pending.pop(connection, None)

    def remove(self, connection: C) -> None:
        """Note that a connection ended."""
        self._pending.pop(connection, None)
        address = self._addresses.pop(connection)
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]


class FailedLogins:
    """How long the refusal of a wrong password waits, by address; for one lock.

    It grows with each failure in a row; the right password never waits, so that others
    of the same address are not held up.
    """

    def __init__(self) -> None:
        # By address: how many, and when the last one was; oldest first.
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def delay_s(self, address: str, now_s: float) -> float:
        """Count a failure, and return how long its refusal is to wait."""
        count, last_s = self._failures.pop(address, (0, now_s))
        if now_s - last_s > FORGET_S:
            count = 0
        self._failures[address] = count + 1, now_s
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)
        return min(DELAY_MAX_S, DELAY_MIN_S * 2.0 ** min(count, 16))
