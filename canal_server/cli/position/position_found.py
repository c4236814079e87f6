"""What the actions of `canal-server position` share: cursors found, places told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.capture.source_parts import access_of, standby_access_of
from canal_server.daemon.control import NoServer, ask
from canal_server.model.cursors import DestinationCursors, cursors_from_json
from canal_server.model.moments import time_text
from canal_server.model.positions import LogIdentity
from canal_server.position.log_positions import same_server
from canal_server.position.offline import read_stored

if TYPE_CHECKING:
    from pathlib import Path

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.positions import EntryPosition
    from canal_server.mysql.source_settings import Access
    from canal_server.source.begin.source_lag import Gone, Lag

_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Found:
    """Where the clients of a destination stand.

    `running`: the server of this conf folder runs it and said so. `server_runs`: that
    server runs at all. `owner`: who says in ZooKeeper that it runs it. `error`: why
    the server of this conf folder does not run or read it, and since when.
    """

    cursors: DestinationCursors
    running: bool
    server_runs: bool
    owner: str = ""
    error: str = ""
    error_since_ms: int | None = None


def find_cursors(config: InstanceConfig, data_dir: Path) -> Found:
    """Ask the server, or look where cursors are stored.

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
    """Return the error that the server told; one of before this tells none."""
    return {
        "error": reply.get("error") or "",
        "error_since_ms": reply.get("error_since_ms"),
    }


def access_for(config: InstanceConfig, cursors: DestinationCursors) -> Access:
    """Return how to reach the source that is read, which may be the standby."""
    standby = standby_access_of(config.source)
    told = (cursors.parsed, *(each.cursor for each in cursors.clients))
    # After a switch, what is stored names the server before for a while.
    last = cursors.reads or next((each.identity for each in told if each), None)
    if standby is not None and last is not None:
        address = standby.address
        if same_server(last, LogIdentity(address.host, address.port)):
            return standby
    return access_of(config.source, config.destination)


def place_text(position: EntryPosition) -> str:
    """Return a place and its time."""
    when = time_text(position.timestamp)
    return f"{position} ({when})" if when else str(position)


def size_text(size: int) -> str:
    """Return a number of bytes as people read it."""
    if size < _KIB:
        return f"{size} bytes"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB"):  # noqa: B007  # the last one is used
        value /= _KIB
        if value < _KIB:
            break
    return f"{value:.1f} {unit}"


def amount_text(transactions: int | None, size: int | None) -> str:
    """Return how much binlog something is, as far as that is known."""
    parts = []
    if transactions is not None:
        parts.append(
            "1 transaction" if transactions == 1 else f"{transactions} transactions"
        )
    if size is not None:
        parts.append(size_text(size))
    return ", ".join(parts) or "an unknown amount"


def purged_text(gone: Gone) -> str:
    """Return what is missing of the binlog, and since when."""
    files = gone.first if gone.files == 1 else f"{gone.first} to {gone.last}"
    number = "" if gone.files == 1 else f" ({gone.files} files)"
    since, until = time_text(gone.since_ms), time_text(gone.until_ms)
    lost = "" if gone.transactions is None else f", {gone.transactions} transactions"
    return (
        f"{files}{number} purged: what was written"
        f"{f' from {since}' if since else ''}{f' to {until}' if until else ''}"
        f"{lost} is not in the binlog any more"
    )


def lag_as_json(behind: Lag) -> dict[str, Any]:
    """Return how far a place is behind, and what of that is gone, as JSON has it."""
    gone = behind.gone
    return {
        "behind": {
            "bytes": behind.bytes,
            "seconds": None if behind.seconds is None else round(behind.seconds, 3),
            "transactions": behind.transactions,
        },
        "gone": None
        if gone is None
        else {
            "first": gone.first,
            "last": gone.last,
            "files": gone.files,
            "transactions": gone.transactions,
            "text": purged_text(gone),
        },
        "problem": behind.problem or None,
    }


def lag_text(place: dict[str, Any]) -> str:
    """Return what `lag_as_json` tells, for a person."""
    behind = place["behind"]
    if behind["transactions"] == 0:
        return ": up to date"
    if behind["bytes"] is None and behind["transactions"] is None:
        seconds = behind["seconds"]
        return "" if seconds is None else f": {seconds:.0f} s behind"
    amount = amount_text(behind["transactions"], behind["bytes"])
    seconds = behind["seconds"]
    return f": {amount}{'' if seconds is None else f', {seconds:.0f} s'} behind"
