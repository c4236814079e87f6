"""Texts of `status`: durations, errors, what blocks reading, the slowest client."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from canal_server.model.moments import time_text

if TYPE_CHECKING:
    from collections.abc import Iterator


def ago_text(seconds: float) -> str:
    """Return a duration in one fitting unit."""
    for unit_s, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"


def error_text(status: dict[str, Any]) -> str:
    """Return the error of a destination or a source, and its start if known."""
    since_ms = status.get("error_since_ms")
    if not since_ms:
        return str(status["error"])
    ago = ago_text(time.time() - since_ms / 1000)
    return f"{status['error']} (since {time_text(since_ms)}, {ago})"


def blocked_text(blocked: dict[str, Any]) -> str:
    """Return what blocks reading, and for how long."""
    ago = ago_text(time.time() - blocked["since_ms"] / 1000)
    return f"blocked: {blocked['reason']} (since {ago})"


def delivery_text(delivery: dict[str, Any]) -> str:
    """Return what the delivery to a message queue does."""
    queue, reason = delivery["queue"], delivery["reason"]
    ago = ago_text(time.time() - delivery["since_ms"] / 1000)
    match delivery["state"]:
        case "delivering":
            text = f"delivers to {queue}"
        case "blocked":
            text = f"delivery to {queue} is blocked: {reason} (since {ago})"
        case "stopped":
            text = f"delivery to {queue} has stopped: {reason} (since {ago})"
        case _:
            what = reason or "until the destination runs here"
            text = f"delivery to {queue} waits {what}"
    sent = f"{delivery['messages']} messages since the start"
    if waiting := delivery["in_flight"]:
        sent += f", {waiting} not confirmed"
    if notes := delivery.get("too_large"):
        sent += f", {notes} too large and replaced by notes"
    if position := delivery.get("position"):
        sent += f"; delivered up to {position}"
    return f"{text}; {sent}"


def lag_cell(status: dict[str, Any]) -> str:
    """Return the lag behind the source for the table."""
    seconds = (status.get("lag") or {}).get("seconds")
    return "-" if seconds is None else ago_text(seconds)


def standing_lines(status: dict[str, Any]) -> Iterator[str]:
    """Yield warnings, doubts, what blocks reading, the queue, the slowest client."""
    yield from (f"warning: {each}" for each in status.get("warnings", ()))
    if uncertain := status.get("uncertain_tables"):
        yield f"uncertain tables: {uncertain['reason']}"
    if blocked := status.get("blocked"):
        yield blocked_text(blocked)
    if delivery := status.get("delivery"):
        yield delivery_text(delivery)
    if slowest := status.get("slowest_client"):
        number, seconds = slowest["entries"], slowest["seconds"]
        parts = [] if number is None else [f"{number} entries"]
        if seconds is not None:
            parts.append(ago_text(seconds))
        lag = ", ".join(parts) or "by an unknown amount"
        text = f"slowest client {slowest['client']}, {lag} behind"
        yield text + ("" if slowest.get("connected", True) else _away_text(slowest))


def _away_text(client: dict[str, Any]) -> str:
    """Return that a client is not connected, and for how long if known."""
    away_s = client["away_s"]
    return f"; not connected{'' if away_s is None else f' for {ago_text(away_s)}'}"
