"""Pauses of tables that leave the stream repeatedly, each time for a new copy.

The first few copies start at once. Each further copy waits twice as long as the one
before, up to an hour, so a table that keeps changing in ways that cannot be followed
costs the database an occasional copy only. A table that has followed the stream for an
hour is reset. Times are of the wall clock, so a restart does not shorten a pause.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.mirror.run.progress import duration
from canal_server.mirror.state.state import Phase

if TYPE_CHECKING:
    from canal_server.mirror.state.state import TableState

AT_ONCE: Final = 3  # copies in a row
FIRST_S: Final = 60.0
MAX_S: Final = 3600.0
CALM_S: Final = 3600.0  # of following the stream, after which the count is reset


def paused(state: TableState, why: str, now_s: float) -> TableState:
    """Return the state of a table that left the stream and waits for its next copy."""
    since_s = now_s - max(state.left_at_ms, state.due_at_ms) / 1000
    leaves = 1 if since_s >= CALM_S else state.leaves + 1
    pause_s = 0.0
    if leaves > AT_ONCE:
        # The exponent is limited, as a float would overflow.
        pause_s = min(MAX_S, FIRST_S * 2.0 ** min(leaves - AT_ONCE - 1, 60))
        why += (
            f" (the copy had to be repeated {leaves} times in a row, so it waits for "
            f"{duration(pause_s)})"
        )
    return replace(
        state.moved(Phase.WAITING, why, round(now_s * 1000)),
        leaves=leaves,
        left_at_ms=round(now_s * 1000),
        due_at_ms=round((now_s + pause_s) * 1000),
    )


def requested(state: TableState, why: str, at_ms: int | None = None) -> TableState:
    """Return the state of a table whose new copy was requested: it starts at once.

    `at_ms` is when the mirror ended; None: it runs.
    """
    return replace(state.moved(Phase.WAITING, why, at_ms), leaves=0, origin=None)


def is_due(state: TableState, now_s: float) -> bool:
    """Check whether a table has waited long enough.

    The wait is at most the longest pause, even if the clock is changed.
    """
    left_s = state.due_at_ms / 1000 - now_s
    return not 0 < left_s <= MAX_S
