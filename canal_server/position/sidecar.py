"""What the original's cursors cannot say, beside each cursor.

The original cannot read a tag in a GTID (`uuid:tag:1-5`) and would not start with one
in a cursor. And it has no cursors of clients that have acked nothing, which say with
what to begin (`included`), while all others name an event that was acked: it would hand
out nothing. So cursors and positions are stored *abridged* to what it can read, and
the whole ones stand beside them, in a file or node with `SUFFIX`::

    {"entries":[{"position":{a position as in the cursor, but whole}}, …]}

Outside of GTID mode cursors have no set at all. Where the source has GTIDs, an entry
then has one beside the position, with the boundary at which it was executed::

    "executed":{"event":…,"gtids":"…","journalName":"…","stop":…}

There is an entry for each content that the cursor may have now, and it counts only
while the cursor says the same: whoever moves a cursor knows nothing of what is beside
it. It is written before the cursor, with the entries of the cursors before; so at every
moment between two writes the right entry is there. Unknown keys are skipped.

Leaves out where all this is stored (`file`, `nodes`).
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from canal_server.model.positions import (
    LogPosition,
    executed_from_json,
    executed_to_json,
    log_position_from_json,
    log_position_to_json,
)
from canal_server.position.gtid_cache import unchanged
from canal_server.position.log_positions import same_server
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

SUFFIX: Final = ".full"  # behind the name of what has the cursor
HELD_MAX: Final = 16  # writes of which nobody knows whether they happened


def completed(cursor: LogPosition, entries: Sequence[LogPosition]) -> LogPosition:
    """Return the last entry that says what the cursor says, else the cursor."""
    same = (each for each in reversed(entries) if _same(abridged(each), cursor))
    return next(same, cursor)


def encode(entries: Sequence[LogPosition]) -> bytes:
    """Return the content beside one position."""
    return compact(_entries_to_json(entries))


def decode(content: bytes) -> list[LogPosition]:
    """Read what `encode` wrote. Raises ValueError when it is damaged."""
    with damage_message():
        return _entries_from_json(json.loads(content))


class Encoder:
    """Makes the content beside the cursors of several clients, again and again.

    The text of a client is kept: thousands that are idle cost next to nothing.
    """

    def __init__(self) -> None:
        # By client id: for which entries, and the text.
        self._texts: dict[int, tuple[Sequence[LogPosition], bytes]] = {}

    def encode(self, entries: Mapping[int, Sequence[LogPosition]]) -> bytes:
        """Return the content beside these clients' cursors."""
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
        # Faster: `Held` gives out the same object while nothing has changed.
        if known is not None and known[0] is entries:
            return known
        return entries, compact({"clientId": client_id} | _entries_to_json(entries))


def encode_clients(entries: Mapping[int, Sequence[LogPosition]]) -> bytes:
    """Return the content beside the cursors of several clients."""
    return Encoder().encode(entries)


def decode_clients(content: bytes) -> dict[int, list[LogPosition]]:
    """Read what `encode_clients` wrote. Raises ValueError when it is damaged."""
    with damage_message():
        return {
            int(client["clientId"]): _entries_from_json(client)
            for client in json.loads(content)["clients"]
        }


def warn_of_damage(what: str, error: ValueError) -> None:
    """Say that what is beside a cursor is not used."""
    logger.warning(
        "%s is damaged (%s) and is not used: transactions with a tag in their GTID"
        " may come again, and another server is read by time",
        what,
        error,
    )


class Held:
    """What the cursors of one place may hold now, whatever became of the last write.

    Used by one thread at a time, with whatever names the cursors. `completed` gives a
    position the set executed there, if it is known.
    """

    def __init__(self, completed: Completed = unchanged) -> None:
        self._completed = completed
        # Of each cursor: what it may hold, first what it did for certain.
        self._now: dict[object, list[LogPosition]] = {}
        self._before: dict[object, list[LogPosition]] = {}  # and what its backup may
        # Of cursors that stay where they are: the position and its entries.
        self._calm: dict[object, tuple[LogPosition, list[LogPosition]]] = {}

    def stored(self, cursor: object, position: LogPosition) -> None:
        """Take note that this was read, or written for certain."""
        self._stir(cursor, position)
        known = self._now.get(cursor, ())
        if len(known) == 1 and known[0] is position and not self._before.get(cursor):
            return  # it is idle
        self._before[cursor] = [each for each in known if each != position]
        self._now[cursor] = [position]

    def tried(self, cursor: object, position: LogPosition) -> None:
        """Take note that this is about to be written."""
        self._stir(cursor, position)
        known = self._now.setdefault(cursor, [])
        if position not in known:
            known.append(position)
        if len(known) > HELD_MAX:
            del known[1]

    def forget(self, cursor: object) -> None:
        """Take note that there is no such cursor any more."""
        self._now.pop(cursor, None)
        self._before.pop(cursor, None)
        self._calm.pop(cursor, None)

    def entries(self, cursor: object, position: LogPosition) -> list[LogPosition]:
        """Return what must stand beside the cursor while this is written to it.

        It is the same object as before while the cursor stays where it is.
        """
        calm = self._calm.get(cursor)
        # A position that has its set keeps it; one that has none may yet be given one.
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
        """Forget the entries of a cursor that is given another position."""
        calm = self._calm.get(cursor)
        if calm is not None and calm[0] is not position:
            del self._calm[cursor]


def _same(one: LogPosition, other: LogPosition) -> bool:
    """Tell whether two abridged positions are one, however their sets are sorted."""
    ours, theirs = one.position, other.position
    # A cursor that is `included` all the same is one of a time when they could be.
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
    """Return a position with what the original cannot say of it."""
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

    Raises KeyError, TypeError, ValueError or AttributeError when it is something else.
    """
    position = log_position_from_json(content["position"])
    if content.get("executed") is None:
        return position
    return replace(position, executed=executed_from_json(content["executed"]))
