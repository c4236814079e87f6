"""The content of the node `running`, which the Java server defines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

UNNAMED: Final = "an unnamed server"


@dataclass(frozen=True, slots=True)
class Running:
    """The server that runs a destination, and whether it may continue."""

    address: str  # address:port; clients cut it at the colon
    active: bool = True  # an operator writes false to make the server step down

    def encode(self) -> bytes:
        """Return the content of the node, byte by byte as the Java server writes it."""
        content = {"active": self.active, "address": self.address}
        return json.dumps(content, separators=(",", ":")).encode()


def decode(data: bytes | None) -> Running | None:
    """Read the content of a node; None when it does not name a server.

    The Java server creates the node empty and writes it afterwards. Unknown fields, as
    old servers write them, are ignored.
    """
    try:
        content = json.loads(data or b"{}")
        return Running(str(content["address"]), content.get("active") is not False)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def owner_of(data: bytes | None) -> str:
    """Return the server that a node names, for people."""
    running = decode(data)
    return running.address if running else UNNAMED
