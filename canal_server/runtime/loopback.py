"""Which addresses are those of the loopback interface."""

from __future__ import annotations

import ipaddress
from typing import Final

NAMES: Final = ("localhost",)


def is_loopback(host: str) -> bool:
    """Return whether an address or a name is that of the loopback interface."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in NAMES
