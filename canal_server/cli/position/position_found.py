"""What the actions of `canal-server position` share: finding cursors, formatting."""

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
    from canal_server.source.begin.source_lag import Lag, PurgedPart

_KIB: Final = 1024


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


def access_for(config: InstanceConfig, cursors: DestinationCursors) -> Access:
    """Return the access to the source that is read, which may be the standby."""
    standby = standby_access_of(config.source)
    known = (cursors.parsed, *(each.cursor for each in cursors.clients))
    # After a switch, stored positions name the previous server for a while.
    last = cursors.reads or next((each.identity for each in known if each), None)
    if standby is not None and last is not None:
        address = standby.address
        if same_server(last, LogIdentity(address.host, address.port)):
            return standby
    return access_of(config.source, config.destination)


def position_text(position: EntryPosition) -> str:
    """Return a position and its time."""
    when = time_text(position.timestamp)
    return f"{position} ({when})" if when else str(position)


def size_text(size: int) -> str:
    """Return a number of bytes in a unit that fits it."""
    if size < _KIB:
        return f"{size} bytes"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB"):  # noqa: B007  # the last one is used
        value /= _KIB
        if value < _KIB:
            break
    return f"{value:.1f} {unit}"


def amount_text(transactions: int | None, size: int | None) -> str:
    """Return an amount of binlog, as far as it is known."""
    parts = []
    if transactions is not None:
        parts.append(
            "1 transaction" if transactions == 1 else f"{transactions} transactions"
        )
    if size is not None:
        parts.append(size_text(size))
    return ", ".join(parts) or "an unknown amount"


def purged_text(purged: PurgedPart) -> str:
    """Return which binlog files are purged, from which time, and how much was lost."""
    files = purged.first if purged.files == 1 else f"{purged.first} to {purged.last}"
    number = "" if purged.files == 1 else f" ({purged.files} files)"
    since, until = time_text(purged.since_ms), time_text(purged.until_ms)
    lost = (
        "" if purged.transactions is None else f", {purged.transactions} transactions"
    )
    return (
        f"{files}{number} purged: changes"
        f"{f' from {since}' if since else ''}{f' to {until}' if until else ''}"
        f"{lost} are no longer in the binlog"
    )


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
    behind = position["behind"]
    if behind["transactions"] == 0:
        return ": up to date"
    if behind["bytes"] is None and behind["transactions"] is None:
        seconds = behind["seconds"]
        return "" if seconds is None else f": {seconds:.0f} s behind"
    amount = amount_text(behind["transactions"], behind["bytes"])
    seconds = behind["seconds"]
    return f": {amount}{'' if seconds is None else f', {seconds:.0f} s'} behind"
