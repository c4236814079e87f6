"""What the node `running` holds: who runs a destination, as the original writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

UNNAMED: Final = "a server that does not say its name"


@dataclass(frozen=True, slots=True)
class Running:
    """Who runs a destination, and whether it is to go on."""

    address: str  # address:port; clients cut it at the colon
    active: bool = True  # an operator writes false, to have it given up

    def encode(self) -> bytes:
        """Return the content of the node, byte by byte that of the original."""
        content = {"active": self.active, "address": self.address}
        return json.dumps(content, separators=(",", ":")).encode()


def decode(data: bytes | None) -> Running | None:
    """Read the content of a node; None when it does not say who runs it.

    So it is while the original is about to write it. Fields that are not known, as old
    servers have them, are passed over.
    """
    try:
        content = json.loads(data or b"{}")
        return Running(str(content["address"]), content.get("active") is not False)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def owner_of(data: bytes | None) -> str:
    """Return who a node says that runs it, for people."""
    running = decode(data)
    return running.address if running else UNNAMED
