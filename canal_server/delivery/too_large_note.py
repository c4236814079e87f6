"""The note that is sent instead of a message that is too large for the broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from canal_server.queues.producers.queue_producer import MessageRefusedError

KEYS_MAX: Final = 1000  # rows whose keys are in a note
KEY_CHARACTERS_MAX: Final = 1000  # of one value
_COPIED: Final = ("database", "table", "type", "es", "gtid", "id", "isDdl", "pkNames")


def note_of(error: MessageRefusedError, partition: int, value: bytes) -> bytes:
    """Return a note in JSON: which message is missing, and the keys of its rows."""
    note: dict[str, Any] = {
        "reason": str(error),
        "topic": error.topic,
        "partition": partition,
        "bytes": error.size,
    }
    message = json.loads(value)
    note |= {name: message.get(name) for name in _COPIED}
    names = message.get("pkNames") or ()
    rows = message.get("data") or ()
    note["rows"] = len(rows)
    note["keys"] = [
        {name: _shortened(row.get(name)) for name in names} for row in rows[:KEYS_MAX]
    ]
    return json.dumps(note, ensure_ascii=False, separators=(",", ":")).encode()


def _shortened(value: str | None) -> str | None:
    return value if value is None else value[:KEY_CHARACTERS_MAX]
