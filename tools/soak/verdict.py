"""What is wrong at the end of a run, as sentences."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from soak.ledger import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from soak.checker import Follower
    from soak.ledger import Ledger

SHOWN = 5  # of what is missing


class Ending(Protocol):
    """A process of ours."""

    def ended(self) -> int | None:
        """Return the exit status of a process that ended without being asked to."""

    def log_end(self) -> str:
        """Return the last lines of its log."""


def missing(followers: Sequence[Follower]) -> list[str]:
    """Say what did not come."""
    found = []
    for follower in followers:
        if items := follower.missing():
            shown = "; ".join(map(str, items[:SHOWN]))
            found.append(
                f"{follower.name}: {len(items)} items are missing, the first ones are "
                f"{shown}"
            )
    return found


def never_committed(ledger: Ledger, followers: Sequence[Follower]) -> list[str]:
    """Say what arrived before it was known that it was not committed."""
    found = []
    for follower in followers:
        uncommitted = [
            n for n in follower.order if ledger.items[n].state is State.UNCOMMITTED
        ]
        found += [
            f"{follower.name}: {ledger.items[n]} was never committed"
            for n in uncommitted[:SHOWN]
        ]
    return found


def other_orders(followers: Sequence[Follower]) -> list[str]:
    """Say who has another order than the first one, of what both have."""
    found: list[str] = []
    if not followers:
        return found
    first = followers[0]
    rank = {item: n for n, item in enumerate(first.order)}
    for follower in followers[1:]:
        ranks = [rank[n] for n in follower.order if n in rank]
        for before, after in pairwise(ranks):
            if before > after:
                found.append(
                    f"{follower.name} has item {first.order[after]} after item "
                    f"{first.order[before]}, {first.name} before it"
                )
                break
    return found


def ended(processes: Mapping[str, Ending]) -> list[str]:
    """Say which processes ended by themselves."""
    return [
        f"{name} has ended, status {status}: {process.log_end()}"
        for name, process in processes.items()
        if (status := process.ended()) is not None
    ]
