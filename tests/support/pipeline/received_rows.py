"""What a client receives, for tests that need no ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canal_server.client import CanalClient


def next_values(client: CanalClient, column: str, timeout_s: float) -> list[Any]:
    """Return a column of the next rows, in a message that is not acked."""
    while True:
        message = client.get(100, timeout_s)
        assert message, f"nothing arrived in {timeout_s:g} s"
        rows = [change.after for change in message.changes() if change.after]
        if rows:
            return [row[column] for row in rows]
        client.ack(message.id)
