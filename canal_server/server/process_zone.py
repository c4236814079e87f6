"""The name of this process's time zone, in which entries write TIMESTAMP columns."""

from __future__ import annotations

import os
import zoneinfo
from pathlib import Path
from typing import Final

LOCAL: Final = Path("/etc/localtime")
NAMES_BELOW: Final = "/zoneinfo/"  # in the path that LOCAL is a link to


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
