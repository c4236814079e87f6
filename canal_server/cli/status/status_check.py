"""What `status --check` finds wrong, and the exit status that says so.

Looks at what the server answered, and asks nobody else: a probe is to be quick.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.status.status_text import ago_text, blocked_text, error_text

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_RUNNING: Final = 3
NO_ANSWER: Final = 4
BROKEN: Final = 5
LAGS: Final = 6
EXIT_STATUS: Final = (
    "Exit status: 0 done, with --check: healthy; 1 failed, or no server answers; 2 "
    "settings or options that cannot be used; 130 ended by Ctrl-C. With --check also "
    f"{NOT_RUNNING} no server runs, or it is shutting down; {NO_ANSWER} the server did "
    f"not answer within --timeout; {BROKEN} a destination fails, is blocked, or is run "
    f"by no server; {LAGS} lag above --max-lag or --max-client-lag. The first of these "
    "that is true counts."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is still healthy, in seconds; None: whatever it is."""

    lag_s: float | None
    client_lag_s: float | None
    blocked_s: float


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, and the exit status that it deserves."""

    status: int
    text: str


def findings(answer: dict[str, Any], limits: Limits) -> list[Finding]:
    """Return what is wrong with a server and its destinations, the worst first."""
    found = [Finding(NOT_RUNNING, "the server is shutting down")] * answer["stopping"]
    for each in answer["instances"]:
        found += _of_destination(each, limits)
    found += [
        Finding(BROKEN, f"{name}: does not run: {why}")
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


def _above(what: str, seconds: float, limit_s: float) -> str:
    return f"{what} is {ago_text(seconds)}, the limit is {limit_s:g} s"
