"""The lake: opens its tables, in whatever format. What they can is in `lake_table`."""

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


def other_format(settings: MirrorSettings, table: MirrorTable) -> str:
    """Return what is wrong where a table's folder has one of another format, else "".

    Readers of a log would take Delta's files for a part of it, and Delta's vacuum would
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
        f"{settings.lake.path}/{table.target} has {there}, and format is {table.form} "
        "now: move that away, or have this one go to another folder (`to` of its rule)"
    )
