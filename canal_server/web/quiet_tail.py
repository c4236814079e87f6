"""Why nothing comes to a tail, for people and as a state for programs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from canal_server.model.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.model.ddl_statement import FilteredNames
    from canal_server.observe.readings import Reading

ENDING: Final = {
    "state": "stopping",
    "reason": "the server is shutting down",
    "since_ms": None,
    "position": None,
    "position_ms": None,
}
REMOVED: Final = {
    **ENDING,
    "state": "removed",
    "reason": "the destination was removed from the settings",
}
NOT_ALLOWED: Final = {
    **ENDING,
    "state": "not_allowed",
    "reason": "the rights of this user have changed: log in again",
}
STATES: Final = (
    "quiet",
    "not_read",
    "removed",
    "not_allowed",
)  # besides those of a destination
_READS: Final = ("dumping", "catching_up")
_NAME: Final = re.compile(r"([\w$-]+)\\?\.([\w$-]+)")


def state_of(
    reading: Reading,
    expression: str,
    quiet_since_ms: int | None,
    *,
    is_limited: bool = False,
) -> dict[str, Any]:
    """Return the state of a destination as seen by a tail with a filter.

    `quiet_since_ms` is the time of the last change that was sent, None: none so far;
    `is_limited`: the user may not read everything.
    """
    status, state = reading.status, reading.state
    reason, since_ms = _reason_of(reading)
    if state in _READS:
        state, since_ms = "quiet", quiet_since_ms
        reason = "no change so far" if since_ms is None else "no further change"
        if expression:
            reason += f" that {quoted(expression)} matches"
        if expression and is_limited:
            reason += " and this user may read"
        if reading.state == "catching_up" and reading.lag_s is not None:
            reason += f"; reading lags {reading.lag_s:.0f} s behind the source"
    return {
        "state": state,
        "reason": reason,
        "since_ms": since_ms,
        "position": status.get("position") or None,
        "position_ms": status.get("position_ms"),
    }


def _reason_of(reading: Reading) -> tuple[str, int | None]:
    """Return why a destination reads nothing, and since when if that is known."""
    status = reading.status
    error, error_since_ms = status.get("error"), status.get("error_since_ms")
    blocked = status.get("blocked")
    if blocked:
        return f"reading waits: {blocked['reason']}", blocked["since_ms"]
    if reading.state == "standby" and status.get("runs_on"):
        return f"the destination runs on {status['runs_on']}: connect there", None
    if error and reading.state == "no_lease":
        return f"no server is known to run the destination: {error}", error_since_ms
    if error and reading.state == "failed":
        return f"the destination cannot start: {error}", error_since_ms
    if error:
        return f"the source cannot be read: {error}", error_since_ms
    return _REASONS.get(reading.state, reading.state), None


_REASONS: Final = {
    "idle": "the destination is lazy, and starts when its first client connects",
    "standby": "no server runs the destination now",
    "starting": "the destination is starting",
    "locating": "the server is connecting to the source",
    "waiting": "the server waits to retry the source",
    "stopping": "the destination is stopping",
    "failed": "the destination ended with an error, see the server's log",
    "stopped": "an operator stopped the destination",
}


def not_read(
    expression: str, reads: Callable[[FilteredNames], bool]
) -> dict[str, Any] | None:
    """Return the state when no client asks for any table of a list of plain names.

    None when one does, or the expression has other patterns.
    """
    names = list(_plain_names(expression))
    if not names or any(map(reads, names)):
        return None
    return {
        "state": "not_read",
        "reason": f"no client subscribes to {quoted(expression)}, and the server reads"
        " only what clients ask for",
        "since_ms": None,
        "position": None,
        "position_ms": None,
    }


def _plain_names(expression: str) -> Iterator[FilteredNames]:
    """Yield the tables that an expression lists; none if it has a pattern."""
    found = [_NAME.fullmatch(piece) for piece in expression.split(",")]
    for each in found if all(found) else ():
        assert each is not None, "all are found"
        yield ((each[1], each[2]),)
