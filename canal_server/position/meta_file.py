"""The content of `meta.dat`: the clients of one destination and their cursors.

Also that of `parse.dat`, which is one position. Both leave out what the Java server
cannot read (`sidecar` stores it).

Bytes in, values out. The JSON is that of canal: compact, keys in alphabetical order,
no nulls. Leaves out files (`atomic_file`, `file_meta`).
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import (
    LogPosition,
    log_position_from_json,
    log_position_to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Clients = list[tuple[ClientIdentity, LogPosition | None]]

# A tag and its intervals. A uuid may begin with letters, too, but follows no colon.
_TAG: Final = re.compile(r":\s*[a-z_]\w*\s*(?::[\s\d-]+)+", re.IGNORECASE)


class Encoder:
    """Encodes one destination's file repeatedly.

    The text of a client is cached: thousands of idle clients cost almost nothing.
    """

    def __init__(self, destination: str) -> None:
        self._destination = destination
        # By client id: the filter and cursor of the cached text, and the text.
        self._texts: dict[int, tuple[str, LogPosition | None, bytes]] = {}

    def encode(
        self, clients: Iterable[tuple[ClientIdentity, LogPosition | None]]
    ) -> bytes:
        """Return the content for these clients and their cursors, if they have one."""
        texts = {
            identity.client_id: self._text(identity, cursor)
            for identity, cursor in clients
        }
        self._texts = texts
        content = b",".join(text for _, _, text in texts.values())
        name = json.dumps(self._destination, ensure_ascii=False).encode()
        return b'{"clientDatas":[' + content + b'],"destination":' + name + b"}"

    def _text(
        self, identity: ClientIdentity, cursor: LogPosition | None
    ) -> tuple[str, LogPosition | None, bytes]:
        known = self._texts.get(identity.client_id)
        # The comparison is fast: a cursor that did not move is the same object.
        if (
            known is not None
            and known[1] is cursor
            and known[0] == identity.filter
            and identity.destination == self._destination
        ):
            return known
        return identity.filter, cursor, compact(_client_to_json(identity, cursor))


def encode(destination: str, clients: Clients) -> bytes:
    """Return the content for these clients and their cursors, if they have one."""
    return Encoder(destination).encode(clients)


def decode(destination: str, content: bytes) -> Clients:
    """Read what `encode` or the Java server wrote; unknown keys are ignored.

    The folder decides which destination it is: the content may name the one that
    the folder was copied from. Raises ValueError when the content is damaged.
    """
    with damage_message():
        return [
            _client_from_json(destination, client)
            for client in json.loads(content)["clientDatas"]
        ]


def decode_position(content: bytes) -> LogPosition:
    """Read one position. Raises ValueError when the content is damaged."""
    with damage_message():
        position = log_position_from_json(json.loads(content))
        check(position)
        return position


def says_more(position: LogPosition) -> bool:
    """Return whether a position holds more than the Java server can read."""
    return position.position.included or _has_tags(position)


def abridged(position: LogPosition) -> LogPosition:
    """Return the position as the Java server can read it.

    It has no tags, "" for no set, and is never `included`: with that, the Java server
    reads entries in its memory before the first one, and fails.
    """
    gtids = position.position.gtid or ""
    if _has_tags(position):
        items = (_TAG.sub("", item) for item in gtids.split(","))
        gtids = ",".join(item for item in items if ":" in item)
    entry = replace(position.position, gtid=gtids, included=False)
    return replace(position, position=entry)


@contextmanager
def damage_message() -> Iterator[None]:
    """Turn the errors of reading JSON of another form into a ValueError."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"a part is missing or has another type: {error!r}") from error


def check(position: LogPosition) -> None:
    """Raise TypeError when a part of a position has another type."""
    entry = position.position
    for text in (entry.journal_name, entry.gtid):
        if not isinstance(text, str | None):
            raise TypeError(f"expected a string in a position, found {text!r}")
    for value in (entry.position, entry.timestamp, entry.server_id):
        if not isinstance(value, int | None):
            raise TypeError(f"expected an integer in a position, found {value!r}")


def compact(content: dict[str, Any]) -> bytes:
    """Return JSON as the Java server writes it."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _has_tags(position: LogPosition) -> bool:
    return _TAG.search(position.position.gtid or "") is not None


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
        client["cursor"] = log_position_to_json(abridged(cursor))
    return client


def _client_from_json(
    destination: str, client: dict[str, Any]
) -> tuple[ClientIdentity, LogPosition | None]:
    identity = client["clientIdentity"]
    cursor = client.get("cursor")
    position = None if cursor is None else log_position_from_json(cursor)
    if position is not None:
        check(position)
    return (
        ClientIdentity(
            destination, int(identity["clientId"]), str(identity.get("filter") or "")
        ),
        position,
    )
