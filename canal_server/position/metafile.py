"""The content of `meta.dat`: the clients of one destination and their cursors.

And that of `parse.dat`, which is one position.

Bytes in, values out. The JSON is that of canal: compact, keys in alphabetical order,
no nulls. Leaves out files (`durable`, `file`).
"""

from __future__ import annotations

import json
from typing import Any

from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import (
    LogPosition,
    log_position_from_json,
    log_position_to_json,
)

Clients = list[tuple[ClientIdentity, LogPosition | None]]


def encode(destination: str, clients: Clients) -> bytes:
    """Return the content for these clients and their cursors, if they have one."""
    content = {
        "clientDatas": [_client_to_json(*client) for client in clients],
        "destination": destination,
    }
    return _compact(content)


def decode(destination: str, content: bytes) -> Clients:
    """Read what `encode` or the Java server wrote; unknown keys are ignored.

    The folder decides whose file it is: `destination` in the content may be of the
    folder that it was copied from. Raises ValueError when the content is damaged.
    """
    try:
        return [
            _client_from_json(destination, client)
            for client in json.loads(content)["clientDatas"]
        ]
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"a part is missing or of another kind: {error!r}") from error


def decode_position(content: bytes) -> LogPosition:
    """Read one position. Raises ValueError when the content is damaged."""
    try:
        position = log_position_from_json(json.loads(content))
        _check(position)
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"a part is missing or of another kind: {error!r}") from error
    return position


def encode_position(position: LogPosition) -> bytes:
    """Return the content for one position."""
    return _compact(log_position_to_json(position))


def _compact(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _client_to_json(
    identity: ClientIdentity, cursor: LogPosition | None
) -> dict[str, Any]:
    client: dict[str, Any] = {
        "clientIdentity": {
            "clientId": identity.client_id,
            "destination": identity.destination,
            "filter": identity.filter,
        }
    }
    if cursor is not None:
        client["cursor"] = log_position_to_json(cursor)
    return client


def _client_from_json(
    destination: str, client: dict[str, Any]
) -> tuple[ClientIdentity, LogPosition | None]:
    identity = client["clientIdentity"]
    cursor = client.get("cursor")
    position = None if cursor is None else log_position_from_json(cursor)
    if position is not None:
        _check(position)
    return (
        ClientIdentity(
            destination, int(identity["clientId"]), str(identity.get("filter") or "")
        ),
        position,
    )


def _check(cursor: LogPosition) -> None:
    """Raise TypeError when a cursor is no place that one could start from."""
    position = cursor.position
    if not isinstance(position.journal_name, str | None):
        raise TypeError(f"journalName is {position.journal_name!r}")
    for value in (position.position, position.timestamp, position.server_id):
        if not isinstance(value, int | None):
            raise TypeError(f"a number of a cursor is {value!r}")
