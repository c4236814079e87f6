"""Opens the lake's tables, in either format; `lake_table` has their interface."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.mirror.lake.change_files import ChangeLog
from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.lake.delta.delta_properties import KEPT_HOURS
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.lake.lake_table import (
    NOWHERE,
    Applied,
    Compacted,
    LakeTable,
    OtherCopyError,
    UnlikeError,
    UnusableTableError,
    lake_schema,
)

if TYPE_CHECKING:
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import MirrorTable

__all__ = [
    "NOWHERE",
    "Applied",
    "Compacted",
    "LakeTable",
    "OtherCopyError",
    "UnlikeError",
    "UnusableTableError",
    "lake_schema",
    "open_table",
    "other_format",
]


def open_table(settings: MirrorSettings, table: MirrorTable) -> LakeTable:
    """Return a table of the lake, without reading it. Raises LakeError."""
    lake = settings.lake
    if table.form == "delta":
        return DeltaLakeTable(
            f"{lake.path.rstrip('/')}/{table.target}",
            table,
            lake.storage_options,
            change_feed=lake.change_feed,
            # Without a vacuum, Delta's default decides how many versions remain.
            kept_hours=math.ceil(lake.vacuum_after_s / 3600) or KEPT_HOURS,
        )
    return ChangeLog(open_folder(lake, table.target), table)


def other_format(settings: MirrorSettings, table: MirrorTable) -> str:
    """Return the problem if a table's folder has another format, else "".

    Readers of a log would read Delta's files as part of it, and Delta's vacuum would
    delete the files of a log. Raises LakeError.
    """
    is_delta = table.form == "delta"
    other = open_table(
        settings, replace(table, form="parquet" if is_delta else "delta")
    )
    if not other.exists():
        return ""
    there = "a log of changes" if is_delta else "a Delta table"
    return (
        f"{settings.lake.path}/{table.target} has {there}, but format is {table.form} "
        "now: move the old one away, or choose another folder (`to` of its rule)"
    )
