"""Moves that the control socket is asked for, as the audit has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from canal_server.daemon.control import ACCOUNT
from canal_server.daemon.cursor_requests import CursorRequests
from canal_server.model.positions import (
    EntryPosition,
    LogIdentity,
    LogPosition,
    log_position_to_json,
)
from canal_server.users.audit_log import AuditLog

if TYPE_CHECKING:
    from canal_server.daemon.destinations import Destinations

POSITION = LogPosition(LogIdentity("db", 1), EntryPosition("f", 4711, 1, 1))


class Moved:
    """Destinations that note their moves."""

    def __init__(self) -> None:
        self.moves: list[object] = []

    def seek(self, destination, clients, *positions):
        """Note a move."""
        self.moves.append((destination, clients, positions))


def test_a_move_has_the_account_of_who_asked(tmp_path):
    """Nobody logs in at the socket; the operating system says who it is."""
    path, moved = tmp_path / "audit.jsonl", Moved()
    requests = CursorRequests(cast("Destinations", moved), AuditLog(path))
    requests.seek(
        {
            "destination": "one",
            "clients": [1001],
            "positions": [log_position_to_json(POSITION)],
            ACCOUNT: "canal",
        }
    )
    assert moved.moves == [("one", [1001], (POSITION,))]
    noted = json.loads(path.read_text())
    assert (noted["event"], noted["user"], noted["account"]) == ("seek", None, "canal")
    assert (noted["address"], noted["client_ids"]) == ("control socket", [1001])
