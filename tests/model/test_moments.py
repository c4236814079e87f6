"""Times and durations as people write them."""

from __future__ import annotations

import pytest

from canal_server.model.moments import duration_s, is_relative, moment_ms, time_text

NOW_MS = 1_763_719_200_000


@pytest.mark.parametrize(
    ("text", "before_ms"),
    [
        ("-10s", 10_000),
        ("-10m", 600_000),
        ("-10min", 600_000),
        ("-1h", 3_600_000),
        ("-1h30m", 5_400_000),
        ("-2d", 172_800_000),
        ("-1w", 604_800_000),
        ("-1.5h", 5_400_000),
        ("-250ms", 250),
        ("-99999d", NOW_MS),
    ],
)
def test_relative(text, before_ms):
    """A time relative to now has one unit or several; it is never before 1970."""
    assert is_relative(text)
    assert moment_ms(text, now_ms=NOW_MS) == NOW_MS - before_ms


@pytest.mark.parametrize("text", ["-1", "-h", "-1y", "--1h", "1h", "-1h ago", ""])
def test_not_relative(text):
    """Without a sign, a number or a unit it is not a relative time."""
    assert not is_relative(text)
    with pytest.raises(ValueError, match=r"expected a time as .* -10m, -1h, -2d"):
        moment_ms(text)


def test_zone():
    """A time without a zone is local, and refused where a zone is required."""
    assert moment_ms("2025-11-21T10:00:00Z") == NOW_MS
    assert moment_ms("2025-11-21T11:00:00+01:00", needs_zone=True) == NOW_MS
    with pytest.raises(
        ValueError, match="a time zone is required, write for example 2025"
    ):
        moment_ms("2025-11-21T10:00:00", needs_zone=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("500ms", 0.5), ("1m30s", 90), ("2h", 7200), ("2", 2), ("0.5", 0.5)],
)
def test_durations(text, seconds):
    """A duration has units; a plain number is seconds."""
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "-1s", "1y", "nan", "inf", "soon"])
def test_no_durations(text):
    """A negative, infinite or malformed duration is refused."""
    with pytest.raises(ValueError, match="expected a duration as 60s"):
        duration_s(text)


def test_text_has_its_zone():
    """A shown time has its offset from UTC, and is read back with it."""
    shown = time_text(NOW_MS)
    assert moment_ms(shown, needs_zone=True) == NOW_MS
    assert time_text(None) == ""
