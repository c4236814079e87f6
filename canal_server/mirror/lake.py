"""The lake: opens its tables, in whatever format. What they can is in `lake_table`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from canal_server.mirror.delta import DeltaLakeTable
from canal_server.mirror.lake_table import (
    NOWHERE,
    Applied,
    LakeTable,
    lake_schema,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.mirror.model import MirrorTable

__all__ = [
    "NOWHERE",
    "Applied",
    "LakePlace",
    "LakeSettings",
    "LakeTable",
    "lake_schema",
    "open_table",
]


class LakePlace(Protocol):
    """Where the lake is, and what is kept in it."""

    @property
    def path(self) -> str:
        """The root: a folder, or its URL."""

    @property
    def storage_options(self) -> Mapping[str, str]:
        """What delta-rs is told to get there."""

    @property
    def change_feed(self) -> bool:
        """Whether tables keep their changes for readers of these."""


class LakeSettings(Protocol):
    """Settings that say where the lake is."""

    @property
    def lake(self) -> LakePlace:
        """That place."""


def open_table(settings: LakeSettings, table: MirrorTable) -> LakeTable:
    """Return a table of the lake; nothing is read yet."""
    lake = settings.lake
    path = f"{lake.path.rstrip('/')}/{table.target}"
    if table.form == "delta":
        return DeltaLakeTable(
            path, table, lake.storage_options, change_feed=lake.change_feed
        )
    raise AssertionError(f"settings let no format {table.form} through")
