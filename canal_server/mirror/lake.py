"""The lake: opens its tables, in whatever format. What they can is in `lake_table`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.mirror.delta import DeltaLakeTable
from canal_server.mirror.lake_table import (
    NOWHERE,
    Applied,
    LakeTable,
    StreamBatch,
    lake_schema,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.mirror.model import MirrorTable

__all__ = [
    "NOWHERE",
    "Applied",
    "LakeTable",
    "StreamBatch",
    "lake_schema",
    "open_table",
]


def open_table(
    root: str,
    table: MirrorTable,
    storage_options: Mapping[str, str] | None = None,
    *,
    change_feed: bool = True,
) -> LakeTable:
    """Return a table of the lake below a folder or URL; nothing is read yet."""
    path = f"{root.rstrip('/')}/{table.target}"
    if table.form == "delta":
        return DeltaLakeTable(path, table, storage_options, change_feed=change_feed)
    raise AssertionError(f"settings let no format {table.form} through")
