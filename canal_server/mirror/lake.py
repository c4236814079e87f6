"""The lake: opens its tables, in whatever format. What they can is in `lake_table`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from canal_server.mirror.changelog import ChangeLog
from canal_server.mirror.delta import DeltaLakeTable
from canal_server.mirror.delta_properties import KEPT_HOURS
from canal_server.mirror.lake_table import (
    NOWHERE,
    Applied,
    Compacted,
    LakeTable,
    OtherCopyError,
    UnlikeError,
    lake_schema,
)
from canal_server.mirror.storage import open_folder

if TYPE_CHECKING:
    from canal_server.mirror.model import MirrorTable
    from canal_server.mirror.settings import MirrorSettings

__all__ = [
    "NOWHERE",
    "Applied",
    "Compacted",
    "LakeTable",
    "OtherCopyError",
    "UnlikeError",
    "lake_schema",
    "open_table",
]


def open_table(settings: MirrorSettings, table: MirrorTable) -> LakeTable:
    """Return a table of the lake; nothing is read yet. Raises LakeError."""
    lake = settings.lake
    if table.form == "delta":
        return DeltaLakeTable(
            f"{lake.path.rstrip('/')}/{table.target}",
            table,
            lake.storage_options,
            change_feed=lake.change_feed,
            # Without a vacuum there are as many versions as Delta keeps by default.
            kept_hours=math.ceil(lake.vacuum_after_s / 3600) or KEPT_HOURS,
        )
    return ChangeLog(open_folder(lake, table.target), table)
