"""What the actions of `canal-server position` share: finding cursors, formatting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from canal_server.cursor_moves.position_texts import amount_text, purged_text
from canal_server.daemon.control import NoServer, ask
from canal_server.model.cursors import DestinationCursors, cursors_from_json
from canal_server.position.offline import read_stored

if TYPE_CHECKING:
    from pathlib import Path

    from canal_server.config.schema import InstanceConfig
    from canal_server.source.begin.source_lag import Lag


@dataclass(frozen=True, slots=True)
class Found:
    """The cursors of the clients of a destination, and who runs it.

    `running`: the server of this conf folder runs the destination. `server_runs`: that
    server runs at all. `owner`: the server that runs it according to ZooKeeper.
    `error`: why the server of this conf folder does not run or read it, and since when.
    """

    cursors: DestinationCursors
    running: bool
    server_runs: bool
    owner: str = ""
    error: str = ""
    error_since_ms: int | None = None


def find_cursors(config: InstanceConfig, data_dir: Path) -> Found:
    """Ask the server, or read the stored cursors.

    Raises ControlError, MetaStoreError.
    """
    destination = config.destination
    try:
        reply = ask(data_dir, "positions", destination=destination)
    except NoServer:
        reply = None
    if reply is not None and reply["running"]:
        cursors = cursors_from_json(destination, reply)
        return Found(cursors, True, True, **_failure(reply))
    stored = read_stored(config)
    return Found(
        stored.cursors, False, reply is not None, stored.owner, **_failure(reply or {})
    )


def _failure(reply: dict[str, Any]) -> dict[str, Any]:
    """Return the error that the server reported; older servers report none."""
    return {
        "error": reply.get("error") or "",
        "error_since_ms": reply.get("error_since_ms"),
    }


def lag_as_json(lag: Lag) -> dict[str, Any]:
    """Return a lag, and which part of it is purged, in its JSON form."""
    purged = lag.purged
    return {
        "behind": {
            "bytes": lag.bytes,
            "seconds": None if lag.seconds is None else round(lag.seconds, 3),
            "transactions": lag.transactions,
        },
        "gone": None
        if purged is None
        else {
            "first": purged.first,
            "last": purged.last,
            "files": purged.files,
            "transactions": purged.transactions,
            "text": purged_text(purged),
        },
        "problem": lag.problem or None,
    }


def lag_text(position: dict[str, Any]) -> str:
    """Return the result of `lag_as_json` as text."""
    lag = position["behind"]
    if lag["transactions"] == 0:
        return ": up to date"
    if lag["bytes"] is None and lag["transactions"] is None:
        seconds = lag["seconds"]
        return "" if seconds is None else f": {seconds:.0f} s behind"
    amount = amount_text(lag["transactions"], lag["bytes"])
    seconds = lag["seconds"]
    return f": {amount}{'' if seconds is None else f', {seconds:.0f} s'} behind"
