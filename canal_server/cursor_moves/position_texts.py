"""Positions, amounts of binlog and purged files as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.model.moments import time_text

if TYPE_CHECKING:
    from canal_server.model.positions import EntryPosition
    from canal_server.source.begin.source_lag import PurgedPart

_KIB: Final = 1024


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
