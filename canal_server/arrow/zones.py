"""The transitions of a time zone, for TIMESTAMP texts in local time in entries."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from canal_server.errors import ConfigError

if TYPE_CHECKING:
    from datetime import tzinfo

_STEP_S: Final = 24 * 3600  # no zone has two transitions within it
_ZONES_KEPT: Final = 16  # reading one takes a tenth of a second
_END_S: Final = 1 << 32  # a TIMESTAMP has 32 bits


@lru_cache(_ZONES_KEPT)
def zone_steps(name: str) -> tuple[tuple[int, int], ...]:
    """Return pairs: the start in local seconds since 1970, and the seconds east of UTC.

    If a local time occurs twice, the first one is used, as a text cannot distinguish
    them. `UTC` has no transitions and is exact. Raises ConfigError for an unknown zone.
    """
    if name.upper() == "UTC":
        return ()
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        problem = (
            f"time zone {name!r} is unknown on this machine: use a name such as "
            "Europe/Berlin, or install tzdata"
        )
        raise ConfigError([problem]) from error
    offset = _offset(zone, 0)
    steps = [(-_STEP_S, offset)]
    for high in range(_STEP_S, _END_S, _STEP_S):
        following = _offset(zone, high)
        if following != offset:
            change = _change(zone, high - _STEP_S, high)
            # After the hour that occurs twice, or not at all.
            steps.append((change + max(offset, following), following))
            offset = following
    return tuple(steps)


def _offset(zone: tzinfo, second: int) -> int:
    found = datetime.fromtimestamp(second, UTC).astimezone(zone).utcoffset()
    return int(found.total_seconds()) if found else 0


def _change(zone: tzinfo, low: int, high: int) -> int:
    """Return the second between the two at which the zone has a transition."""
    before = _offset(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high
