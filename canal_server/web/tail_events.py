"""The events of a tail, as server-sent events: a name, and a line of JSON.

::

    event: update
    data: {"kind": "update", "schema": "shop", "table": "orders", …}

JSON escapes line breaks and control characters, so that a value cannot end a line.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from canal_server.client.change_reader import Change
    from canal_server.store.head_taps import Skipped

KINDS: Final = (  # of changes
    "insert",
    "update",
    "delete",
    "ddl",
    "truncate",
    "statement",
    "xa_commit",
    "xa_rollback",
)
# Readers ignore it; proxies see that the connection is in use.
KEEP_ALIVE: Final = b": nothing\n\n"


def change_event(change: Change) -> bytes:
    """Return the event of one row, or of one statement."""
    file, offset = change.position
    return _event(
        change.kind,
        {
            "kind": change.kind,
            "schema": change.schema,
            "table": change.table,
            "before": change.before,
            "after": change.after,
            "changed": list(change.updated) if change.kind == "update" else [],
            "key": list(change.key),
            "sql": change.sql,
            "file": file,
            "offset": offset,
            "gtid": change.gtid or None,
            "commit_time_ms": change.commit_time_ms,
        },
    )


def skipped_event(skipped: Skipped) -> bytes:
    """Return the event that entries are missing here."""
    return _event("skipped", skipped._asdict())


def state_event(state: dict[str, Any]) -> bytes:
    """Return the event that says why nothing comes."""
    return _event("state", state)


def _event(name: str, data: dict[str, Any]) -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n".encode()
