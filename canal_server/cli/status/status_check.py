"""The findings of `status --check`, and its exit status.

A finding comes from the answer of the server alone, because a probe must be quick.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.status.status_text import (
    ago_text,
    blocked_text,
    delivery_text,
    error_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_RUNNING: Final = 3
NO_ANSWER: Final = 4
BROKEN: Final = 5
LAGS: Final = 6
LOST: Final = 7
EXIT_STATUS: Final = (
    "Exit status: 0 success, with --check: healthy; 1 failure, or no server answers; 2 "
    "invalid settings or options; 130 interrupted by Ctrl-C. With --check also: "
    f"{NOT_RUNNING} no server runs, or it is shutting down; {NO_ANSWER} the server did "
    f"not answer within --timeout; {BROKEN} a destination fails, is blocked, or is run "
    f"by no server; {LAGS} lag above --max-lag or --max-client-lag; {LOST} a client is "
    "refused, because the source has purged its position. The first that applies is "
    "returned."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a healthy server, in seconds; None means no limit."""

    lag_s: float | None
    client_lag_s: float | None
    blocked_s: float


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, and the exit status for it."""

    status: int
    text: str


def findings(answer: dict[str, Any], limits: Limits) -> list[Finding]:
    """Return the problems of a server and its destinations, the worst first."""
    found = [Finding(NOT_RUNNING, "the server is shutting down")] * answer["stopping"]
    for each in answer["instances"]:
        found += _of_destination(each, limits)
    found += [
        Finding(BROKEN, f"{name}: not running: {why}")
        for name, why in answer.get("refused", {}).items()
    ]
    return sorted(found, key=lambda each: each.status)


def _of_destination(each: dict[str, Any], limits: Limits) -> Iterator[Finding]:
    name = each["destination"]
    if each.get("error"):
        yield Finding(BROKEN, f"{name}: {error_text(each)}")
    elif not each["running"] and each["life"] != "idle" and not each.get("runs_on"):
        yield Finding(BROKEN, f"{name}: {each['life']}; no server runs it")
    blocked = each.get("blocked")
    if blocked and time.time() - blocked["since_ms"] / 1000 >= limits.blocked_s:
        yield Finding(BROKEN, f"{name}: {blocked_text(blocked)}")
    delivery = each.get("delivery") or {}
    if delivery.get("state") in ("blocked", "stopped"):
        since_s = time.time() - delivery["since_ms"] / 1000
        if delivery["state"] == "stopped" or since_s >= limits.blocked_s:
            yield Finding(BROKEN, f"{name}: {delivery_text(delivery)}")
    lag_s = (each.get("lag") or {}).get("seconds")
    if limits.lag_s is not None and lag_s is not None and lag_s > limits.lag_s:
        yield Finding(LAGS, f"{name}: {_above('lag', lag_s, limits.lag_s)}")
    slowest = each.get("slowest_client") or {}
    client_s = slowest.get("seconds")
    if (
        limits.client_lag_s is not None
        and client_s is not None
        and client_s > limits.client_lag_s
    ):
        what = f"lag of client {slowest['client']}"
        yield Finding(LAGS, f"{name}: {_above(what, client_s, limits.client_lag_s)}")
    for why in each.get("lost_clients", {}).values():
        yield Finding(LOST, f"{name}: {why}")


def _above(what: str, seconds: float, limit_s: float) -> str:
    return f"{what} is {ago_text(seconds)}, above the limit of {limit_s:g} s"
