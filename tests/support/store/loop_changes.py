"""What tests of a loop over changes look at."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.client import Change


def ids(changes: Iterable[Change]) -> list[Any]:
    """Return the ids of inserted rows."""
    return [(change.after or {})["id"] for change in changes]


def take(client: Iterable[Change], count: int) -> list[Any]:
    """Return the ids of so many rows, and leave the loop within the last one."""
    return ids(itertools.islice(client, count))


def acked_by(store: Any, client_id: int = 1001) -> int:
    """Return how many entries a client acked."""
    return int(store.cursors[client_id].acked)
