"""Cursors as a server reports them: what is written is read back."""

from __future__ import annotations

import json

from canal_server.model.cursors import (
    ClientCursor,
    DestinationCursors,
    cursors_from_json,
    cursors_to_json,
)
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition


def position_at(offset: int) -> LogPosition:
    """Return a position in a binlog."""
    return LogPosition(LogIdentity("db", 3306), EntryPosition("f.000001", offset))


def test_round_trip() -> None:
    """Cursors of a single source, and those of a group by source."""
    client = ClientIdentity("merged", 1001, "a\\.b")
    one = DestinationCursors(
        (ClientCursor(client, position_at(4), position_at(9), 2),), position_at(30)
    )
    nothing = DestinationCursors((ClientCursor(client, None),))
    group = DestinationCursors(one.clients, sources={1: one, 12: nothing})
    switched = DestinationCursors(one.clients, reads=LogIdentity("db2", 3307))
    for cursors in (one, nothing, group, switched):
        text = json.dumps(cursors_to_json(cursors))
        assert cursors_from_json("merged", json.loads(text)) == cursors


def test_of_an_older_server() -> None:
    """What a server does not report is unknown; a command may be newer than it."""
    one = DestinationCursors((), position_at(30), reads=LogIdentity("db", 3306))
    shown = cursors_to_json(one)
    del shown["reads"], shown["sources"]
    assert cursors_from_json("merged", shown) == DestinationCursors((), position_at(30))


def test_what_was_not_acked_begins_there() -> None:
    """The later of cursor and store counts, if they are on one server."""
    client = ClientIdentity("merged", 1001)
    other = LogPosition(LogIdentity("db2", 3306), EntryPosition("f.000001", 99))
    for cursor, before, furthest in (
        (position_at(4), position_at(9), position_at(9)),
        (position_at(9), position_at(4), position_at(9)),
        (position_at(4), other, position_at(4)),
        (None, position_at(4), position_at(4)),
        (position_at(4), None, position_at(4)),
    ):
        assert ClientCursor(client, cursor, before).furthest() == furthest
