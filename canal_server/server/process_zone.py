"""The name of this process's time zone, in which entries write TIMESTAMP columns."""

from __future__ import annotations

import os
import re
import zoneinfo
from pathlib import Path
from typing import Final

LOCAL: Final = Path("/etc/localtime")
NAMES_BELOW: Final = "/zoneinfo/"  # in the path that LOCAL is a link to
# "std offset dst […]", where std is letters or <…> (POSIX.1-2017, 8.3, TZ).
_RULE: Final = re.compile(
    r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)[+-]?[0-9].*", re.DOTALL
)


def zone_name(local: Path = LOCAL) -> str:
    """Return the zone's name (`Europe/Berlin`), empty when it has none.

    It has none where TZ is a rule rather than a name, and where the system's zone is a
    copy of a file rather than a link.
    """
    name = os.environ.get("TZ")
    if name is None and local.exists():
        name = local.resolve().as_posix().rpartition(NAMES_BELOW)[2]
        if not name:
            return ""
    # Without a zone the C library uses UTC.
    name = (name or "").removeprefix(":") or "UTC"
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return ""
    return name


def unknown_zone() -> str:
    """Return the value of TZ if it is no zone of this machine, otherwise nothing.

    The C library then uses UTC without a word.
    """
    value = os.environ.get("TZ", "")
    name = value.removeprefix(":")
    if not name or _RULE.fullmatch(name):
        return ""
    # Not by ZoneInfo: it also has the names of the package tzdata, which the C library
    # does not read. UTC needs no file.
    if name == "UTC" or _has_file(name):
        return ""
    return value


def _has_file(name: str) -> bool:
    try:
        return any(Path(folder, name).is_file() for folder in zoneinfo.TZPATH)
    except (ValueError, OSError):  # not a name that a file can have
        return False
