"""Log-ins over HTTP, and what slows down who tries passwords."""

from __future__ import annotations

import base64
import ipaddress
from collections import OrderedDict
from typing import Final

ADDRESSES_MAX: Final = 10_000  # whose failed log-ins are counted
FORGET_S: Final = 60.0  # after the last failed log-in
DELAY_MIN_S: Final = 0.25
DELAY_MAX_S: Final = 5.0


def group_of(host: str) -> str:
    """Return what counts as one address: for IPv6 one customer's network, a /64."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:  # noqa: PLR2004  # the protocol's
        return host
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def basic_login(authorization: str) -> tuple[str, str]:
    """Return the name and the password of HTTP's basic authentication, or empty."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        sent = base64.b64decode(encoded, validate=True).decode()
    except ValueError:  # not Base64, or not UTF-8
        return "", ""
    user, _, password = sent.partition(":")
    return user, password


class FailedLogins:
    """How long the refusal of a wrong password waits, by address; under one lock.

    The delay grows with each failure in a row. The right password never waits, so that
    other clients of the same address are not delayed.
    """

    def __init__(self) -> None:
        # By address: how many, and when the last one happened; oldest first.
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def delay_s(self, address: str, now_s: float) -> float:
        """Count a failure, and return how long to delay its refusal."""
        count, last_s = self._failures.pop(address, (0, now_s))
        if now_s - last_s > FORGET_S:
            count = 0
        self._failures[address] = count + 1, now_s
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)
        return min(DELAY_MAX_S, DELAY_MIN_S * 2.0 ** min(count, 16))
