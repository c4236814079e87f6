"""Steps of time zones, against what the zones themselves say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from canal_server.arrow.zones import zone_steps
from canal_server.errors import ConfigError

if TYPE_CHECKING:
    import random


def offset_at(steps: tuple[tuple[int, int], ...], local: int) -> int:
    """Return the offset of a local second according to the transitions."""
    return [offset for since, offset in steps if since <= local][-1]


@pytest.mark.parametrize(
    "name", ["Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Adak"]
)
def test_steps(name: str, rng: random.Random) -> None:
    """At each local time the offset is the zone's, of two the first."""
    zone = ZoneInfo(name)
    steps = zone_steps(name)
    seconds = [rng.randrange(1 << 32) for _ in range(1000)]
    for since, offset in steps[1:]:
        seconds += [since - offset + d for d in (-7200, -3600, -1, 0, 1, 3600)]
    for second in seconds:
        if second < 86_400:
            continue
        local = datetime.fromtimestamp(second, UTC).astimezone(zone)
        naive = local.replace(tzinfo=UTC, fold=0)
        expected = local.replace(fold=0).utcoffset()
        assert expected is not None
        found = offset_at(steps, int(naive.timestamp()))
        assert found == expected.total_seconds(), local


def test_utc_has_no_steps() -> None:
    """UTC needs none."""
    assert zone_steps("UTC") == ()


@pytest.mark.parametrize("name", ["Mars/Crater", "", "../etc/passwd"])
def test_unknown_zones(name: str) -> None:
    """An unknown zone is reported."""
    with pytest.raises(ConfigError, match="is unknown on this machine"):
        zone_steps(name)
