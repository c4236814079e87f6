"""When a mirror ends that runs once, and what it reports then (`mirror --once`).

It is done when its stream has applied everything that the binlog had at the start, and
each table follows, is stopped, or was dropped. Failures are retried as in a mirror that
runs on, but not for ever: a scheduler waits for the process.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import CanalError
from canal_server.mirror.run import pauses
from canal_server.mirror.state.state import PENDING, Phase, TablesNow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.state import TableState

PATIENCE_S: Final = 300.0  # without progress, while everything that is left fails
NAMES_MAX: Final = 20  # of tables in a message
INTERRUPTED: Final = (
    "stopped before it reached the end of the binlog; the next run continues there"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the main loop has seen; `progress` differs if anything was written."""

    tables: TablesNow
    failing: frozenset[TableName] = frozenset()  # tables whose last attempt failed
    reached: RangePosition | None = None  # the end; None: the stream has not ended
    failure: str = ""  # of the stream
    is_settled: bool = True  # whether no rows wait to be read again
    is_listed: bool = True  # whether dropped tables that exist again are known
    progress: Any = None


class Ending:
    """Decides whether a mirror is done; for one thread."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._wall = wall
        self._progress: Any = None
        self._stuck_since_s: float | None = None
        self.reached: RangePosition | None = None  # set when it is done

    def look(self, seen: Seen) -> bool:
        """Check whether the mirror is done.

        Raises CanalError, which names what is left, if that has failed for too long.
        """
        left = [each for each in seen.tables.states.values() if each.phase in PENDING]
        is_known = seen.is_settled and seen.is_listed
        if seen.reached is not None and not left and is_known:
            self.reached = seen.reached
            return True
        is_stuck = bool(seen.reached or seen.failure) and all(
            each.source in seen.failing or not pauses.is_due(each, self._wall())
            for each in left
        )
        if not is_stuck or seen.progress != self._progress:
            self._progress = seen.progress
            self._stuck_since_s = None
        if is_stuck:
            self._wait_on(lambda: _what_is_left(seen, left))
        return False

    def failed(self, error: CanalError) -> None:
        """Record that the source or the lake does not answer.

        Raises CanalError if that has lasted for too long.
        """
        self._wait_on(lambda: str(error))

    def _wait_on(self, why: Callable[[], str]) -> None:
        now = self._now()
        if self._stuck_since_s is None:
            self._stuck_since_s = now
        if now - self._stuck_since_s >= PATIENCE_S:
            raise CanalError(f"no progress for {PATIENCE_S:.0f} s: {why()}")


def check_stopped(tables: TablesNow) -> None:
    """Raise CanalError, which names the tables that are stopped, if there are any."""
    stopped = [each for each in tables.states.values() if each.phase is Phase.STOPPED]
    if stopped:
        raise CanalError(f"tables that are stopped: {_listed(stopped)}")


def _what_is_left(seen: Seen, left: list[TableState]) -> str:
    parts = []
    if seen.reached is None:
        parts.append(f"the stream fails: {seen.failure}")
    if left:
        parts.append(f"tables that do not follow the stream: {_listed(left)}")
    if seen.reached is not None and not seen.is_settled:
        parts.append("rows that foreign keys changed could not be read again")
    if seen.reached is not None and not seen.is_listed:
        parts.append("the source did not answer which dropped tables exist again")
    return "; ".join(parts)


def _listed(states: Iterable[TableState]) -> str:
    found = sorted(states, key=lambda each: each.source)
    shown = [
        f"{each.source} ({each.message or each.phase})" for each in found[:NAMES_MAX]
    ]
    if len(found) > NAMES_MAX:
        shown.append(f"and {len(found) - NAMES_MAX} more")
    return ", ".join(shown)
