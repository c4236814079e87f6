"""Times and durations as people write them: absolute, in ms, relative, with units.

Leaves out binlog positions, which some commands accept as an alternative to a time.
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final

_EARLIEST_MS: Final = 10**11  # 1973; a smaller number is in seconds
_UNITS_MS: Final = {
    "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000,
    "d": 86_400_000, "w": 604_800_000,
}  # fmt: skip
_PART: Final = r"\d+(?:\.\d+)?(?:ms|min|s|m|h|d|w)"
_PARTS: Final = re.compile(rf"({_PART})")
_DURATION: Final = re.compile(rf"(?:{_PART})+")
_RELATIVE: Final = re.compile(rf"-(?:{_PART})+")
_SHOWN: Final = 100  # characters of a text in an error
WRITTEN_AS: Final = (
    "a time as 2026-11-21T10:00:00+00:00, in milliseconds since 1970, or relative to"
    " now as -10m, -1h, -2d"
)


def is_relative(text: str) -> bool:
    """Return whether a text is a time relative to now, as `-1h30m`."""
    return _RELATIVE.fullmatch(text) is not None


def moment_ms(text: str, *, needs_zone: bool = False, now_ms: int | None = None) -> int:
    """Return a time in ms since 1970; a time without a zone is local.

    Raises ValueError with the accepted forms. With `needs_zone`, a time without a zone
    raises, too.
    """
    text = text.strip()
    shown = text[:_SHOWN]
    if is_relative(text):
        now_ms = round(time.time() * 1000) if now_ms is None else now_ms
        return max(0, now_ms - _sum_ms(text[1:]))
    if text.isascii() and text.isdecimal():
        if int(text) < _EARLIEST_MS:
            raise ValueError(
                f"{shown}: a number is a time in milliseconds since 1970, and this one"
                " is too small"
            )
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        found_ms = int(moment.astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        # The cause only repeats the text.
        raise ValueError(f"{shown}: expected {WRITTEN_AS}") from None
    if moment.tzinfo is None and needs_zone:
        raise ValueError(
            f"{shown}: a time zone is required, write for example {shown}+00:00"
        )
    return found_ms


def duration_s(text: str) -> float:
    """Return a duration in seconds: `500ms`, `60s`, `1m30s`, `2h`; a number is seconds.

    Raises ValueError with the accepted forms.
    """
    text = text.strip()
    if _DURATION.fullmatch(text):
        return _sum_ms(text) / 1000
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(
            f"{text[:_SHOWN]}: expected a duration as 60s, 500ms, 1m30s, or in seconds"
        )
    return seconds


def time_text(timestamp_ms: int | None) -> str:
    """Return a time in the local zone, with its offset; "" when it is not known."""
    if not timestamp_ms:
        return ""
    moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    return moment.isoformat(timespec="seconds")


def _sum_ms(text: str) -> int:
    total = 0.0
    for part in _PARTS.findall(text):
        number = part.rstrip("abcdefghijklmnopqrstuvwxyz")
        total += float(number) * _UNITS_MS[part[len(number) :]]
    return round(total)
