"""The local zone's offsets, compared with the C library's own."""

from __future__ import annotations

import time

import pytest

from canal_server.decoder.text import time_zone


@pytest.fixture
def in_zone(monkeypatch):
    """Give a function that sets the process's zone for the test."""

    def use(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time_zone.read_zone()

    yield use
    monkeypatch.undo()
    time_zone.read_zone()


@pytest.mark.parametrize(
    "name",
    ["UTC", "America/New_York", "Europe/Lisbon", "Asia/Kolkata", "Africa/Monrovia"],
)
def test_offsets_are_those_of_localtime(name, in_zone, rng):
    """A moment has the offset that localtime gives it, also around every change."""
    in_zone(name)
    moments = [rng.randrange(1 << 32) for _ in range(20_000)]
    for moment in moments:
        assert time_zone.offset_of(moment) == time.localtime(moment).tm_gmtoff, moment


def test_a_change_takes_effect_in_its_second(in_zone):
    """The second before daylight saving time is not in it, its first one is."""
    in_zone("America/New_York")
    change = 1710054000  # 2024-03-10 07:00:00 UTC
    assert time_zone.offset_of(change - 1) == -5 * 3600
    assert time_zone.offset_of(change) == -4 * 3600
