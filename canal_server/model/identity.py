"""Who a client is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """A client of a destination; its filter is not part of its identity."""

    destination: str
    client_id: int
    filter: str = field(default="", compare=False)
