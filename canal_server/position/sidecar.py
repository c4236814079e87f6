"""Data next to each cursor that the cursors of the Java server cannot hold.

The Java server cannot read a tag in a GTID (`uuid:tag:1-5`) and would not start with
one in a cursor. It also has no cursors of clients that have acked nothing. Such a
cursor names the first event to deliver (`included`), while all others name an event
that was acked; the Java server would deliver nothing. Therefore cursors and positions
are stored *abridged* to what it can read, and the complete ones next to them, in a file
or node with `SUFFIX`::

    {"entries":[{"position":{a position as in the cursor, but complete}}, …]}

Outside of GTID mode cursors have no set at all. If the source has GTIDs, an entry then
has a set next to the position, with the boundary at which it was executed::

    "executed":{"event":…,"gtids":"…","journalName":"…","stop":…}

There is an entry for each content that the cursor may have now, and it is valid only
while the cursor has that content: other programs move a cursor and leave the entries
unchanged. The entries are written before the cursor, together with those of the
previous cursors, so that the right entry exists at every moment between two writes.
Unknown keys are ignored.

Leaves out where all this is stored (`file_meta`, `zookeeper_meta`).
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from canal_server.messages import position_messages
from canal_server.model.positions import (
    LogPosition,
    executed_from_json,
    executed_to_json,
    log_position_from_json,
    log_position_to_json,
)
from canal_server.position.gtid_cache import unchanged
from canal_server.position.log_position_managers import same_server
from canal_server.position.meta_file import (
    abridged,
    check,
    compact,
    damage_message,
    says_more,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from canal_server.position.gtid_cache import Completed

logger = logging.getLogger(__name__)

SUFFIX: Final = ".full"  # appended to the name of the cursor's file or node
HELD_MAX: Final = 16  # writes that may or may not have happened


def completed(cursor: LogPosition, entries: Sequence[LogPosition]) -> LogPosition:
    """Return the last entry that matches the cursor, else the cursor."""
    same = (each for each in reversed(entries) if _same(abridged(each), cursor))
    found = next(same, cursor)
    return found if found.moved == cursor.moved else replace(found, moved=cursor.moved)


def encode(entries: Sequence[LogPosition]) -> bytes:
    """Return the content next to one position."""
    return compact(_entries_to_json(entries))


def decode(content: bytes) -> list[LogPosition]:
    """Read what `encode` wrote. Raises ValueError when it is damaged."""
    with damage_message():
        return _entries_from_json(json.loads(content))


class Encoder:
    """Encodes the content next to the cursors of several clients repeatedly.

    The text of a client is cached: thousands of idle clients cost almost nothing.
    """

    def __init__(self) -> None:
        # By client id: the entries of the cached text, and the text.
        self._texts: dict[int, tuple[Sequence[LogPosition], bytes]] = {}

    def encode(self, entries: Mapping[int, Sequence[LogPosition]]) -> bytes:
        """Return the content next to these clients' cursors."""
        self._texts = {
            client_id: self._text(client_id, entries[client_id])
            for client_id in sorted(entries)
        }
        content = b",".join(text for _, text in self._texts.values())
        return b'{"clients":[' + content + b"]}"

    def _text(
        self, client_id: int, entries: Sequence[LogPosition]
    ) -> tuple[Sequence[LogPosition], bytes]:
        known = self._texts.get(client_id)
        # The comparison is fast: `Held` returns the same object until a change.
        if known is not None and known[0] is entries:
            return known
        return entries, compact({"clientId": client_id} | _entries_to_json(entries))


def encode_clients(entries: Mapping[int, Sequence[LogPosition]]) -> bytes:
    """Return the content next to the cursors of several clients."""
    return Encoder().encode(entries)


def decode_clients(content: bytes) -> dict[int, list[LogPosition]]:
    """Read what `encode_clients` wrote. Raises ValueError when it is damaged."""
    with damage_message():
        return {
            int(client["clientId"]): _entries_from_json(client)
            for client in json.loads(content)["clients"]
        }


def warn_of_damage(what: str, error: ValueError) -> None:
    """Log that the content next to a cursor is not used."""
    position_messages.CURSOR_NOTES_DAMAGED.log(logger, what, error)


class Held:
    """What the cursors in one storage may hold now, whether or not writes failed.

    Used by one thread at a time; any hashable value names a cursor. `completed` adds
    the executed set to a position, if it is known.
    """

    def __init__(self, completed: Completed = unchanged) -> None:
        self._completed = completed
        # For each cursor: what it may hold, first what it certainly held.
        self._now: dict[object, list[LogPosition]] = {}
        self._before: dict[object, list[LogPosition]] = {}  # what its backup may hold
        # For cursors that do not move: the position and its entries.
        self._calm: dict[object, tuple[LogPosition, list[LogPosition]]] = {}

    def stored(self, cursor: object, position: LogPosition) -> None:
        """Note that this was read, or certainly written."""
        self._stir(cursor, position)
        known = self._now.get(cursor, ())
        if len(known) == 1 and known[0] is position and not self._before.get(cursor):
            return  # it is idle
        self._before[cursor] = [each for each in known if each != position]
        self._now[cursor] = [position]

    def tried(self, cursor: object, position: LogPosition) -> None:
        """Note that this is about to be written."""
        self._stir(cursor, position)
        known = self._now.setdefault(cursor, [])
        if position not in known:
            known.append(position)
        if len(known) > HELD_MAX:
            del known[1]

    def forget(self, cursor: object) -> None:
        """Note that the cursor no longer exists."""
        self._now.pop(cursor, None)
        self._before.pop(cursor, None)
        self._calm.pop(cursor, None)

    def entries(self, cursor: object, position: LogPosition) -> list[LogPosition]:
        """Return the entries to store before this position is written to the cursor.

        It is the same object as before while the cursor does not move.
        """
        calm = self._calm.get(cursor)
        # A position with a set keeps it; one without may be completed later.
        if calm is not None and calm[0] is position:
            return calm[1]
        known = [
            *self._before.get(cursor, ()),
            *self._now.get(cursor, ()),
            position,
        ]
        found = [
            self._completed(each)
            for at, each in enumerate(known)
            if each not in known[:at]
        ]
        entries = [each for each in found if each.executed or says_more(each)]
        if len(found) == 1 and found[0].executed:
            self._calm[cursor] = position, entries
        return entries

    def _stir(self, cursor: object, position: LogPosition) -> None:
        """Forget the entries of a cursor whose position changes."""
        calm = self._calm.get(cursor)
        if calm is not None and calm[0] is not position:
            del self._calm[cursor]


def _same(one: LogPosition, other: LogPosition) -> bool:
    """Return whether two abridged positions are equal, in any order of their sets."""
    ours, theirs = one.position, other.position
    # Older versions wrote cursors that are `included`.
    return (
        replace(ours, gtid=None) == replace(theirs, gtid=None, included=False)
        and _items(ours.gtid) == _items(theirs.gtid)
        and same_server(one.identity, other.identity)
    )


def _items(gtids: str | None) -> set[str]:
    return {item.strip().lower() for item in (gtids or "").split(",")}


def _entries_to_json(entries: Sequence[LogPosition]) -> dict[str, Any]:
    return {"entries": [entry_to_json(each) for each in entries]}


def entry_to_json(entry: LogPosition) -> dict[str, Any]:
    """Return a position with what the Java server's form cannot hold."""
    content = {"position": log_position_to_json(entry)}
    if entry.executed is not None:
        content["executed"] = executed_to_json(entry.executed)
    return content


def _entries_from_json(content: dict[str, Any]) -> list[LogPosition]:
    found = [entry_from_json(each) for each in content["entries"]]
    for each in found:
        check(each)
    return found


def entry_from_json(content: dict[str, Any]) -> LogPosition:
    """Read what `entry_to_json` wrote.

    Raises KeyError, TypeError, ValueError or AttributeError for any other value.
    """
    position = log_position_from_json(content["position"])
    if content.get("executed") is None:
        return position
    return replace(position, executed=executed_from_json(content["executed"]))
