"""Opens the lake's tables, in each format; `lake_table` has their interface."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from canal_server.errors import LakeError
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
from canal_server.mirror.lake.stores.object_stores import store_of

if TYPE_CHECKING:
    from canal_server.mirror.lake.lake_storage import Folder
    from canal_server.mirror.settings.mirror_settings import (
        LakeSettings,
        MirrorSettings,
    )
    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.runtime.lifecycle import Stop

__all__ = [
    "NOWHERE",
    "Applied",
    "Compacted",
    "LakeTable",
    "OtherCopyError",
    "UnlikeError",
    "UnusableTableError",
    "lake_schema",
    "move_table",
    "open_table",
    "other_format",
]


def open_table(settings: MirrorSettings, table: MirrorTable) -> LakeTable:
    """Return a table of the lake, without reading it. Raises LakeError."""
    lake = settings.lake
    path = f"{lake.path.rstrip('/')}/{table.target}"
    if table.form == "delta":
        return DeltaLakeTable(
            path,
            table,
            lake.storage_options,
            change_feed=lake.change_feed,
            # Without a vacuum, Delta's default decides how many versions remain.
            kept_hours=math.ceil(lake.vacuum_after_s / 3600) or KEPT_HOURS,
        )
    if table.form == "iceberg":
        is_own = table.target.startswith(f"{settings.migrations_folder}/")
        return _iceberg(path, table, lake, is_own=is_own)
    return ChangeLog(open_folder(lake, table.target), table)


@runtime_checkable
class _MovableTable(LakeTable, Protocol):
    """A table whose format names its folder, and that can be moved all the same."""

    def move(
        self,
        to: LakeTable,
        copy_id: str,
        folders: tuple[Folder, Folder],
        stop: Stop | None = None,
    ) -> bool:
        """Make this the other table, which has the second folder; see `move_table`."""


def move_table(
    settings: MirrorSettings,
    source: MirrorTable,
    table: MirrorTable,
    copy_id: str,
    stop: Stop | None = None,
) -> bool:
    """Make a table of the lake another one, with its identity and its history.

    `copy_id` is what was published to the first one. Returns False if it is another
    copy by now, if the second one exists, or if its store or catalog cannot do it. A
    repetition finds that it is done. Raises LakeError, and ConnectionLost when a stop
    is requested while files are copied.
    """
    lake, target = open_table(settings, source), open_table(settings, table)
    if table.form == "iceberg":
        store = open_folder(settings.lake)
        folders = store.below(source.target), store.below(table.target)
        assert isinstance(lake, _MovableTable)  # as both have the format
        return lake.move(target, copy_id, folders, stop)
    if not target.exists():
        if not settings.lake.is_local or lake.applied(copy_id) == NOWHERE:
            return False
        if not open_folder(settings.lake).move_folder(source.target, table.target):
            return False
    return target.applied(copy_id) != NOWHERE


def _iceberg(
    path: str, table: MirrorTable, lake: LakeSettings, *, is_own: bool
) -> LakeTable:
    """Return an Iceberg table; `is_own`: only the mirror sees it, and no catalog."""
    module = _iceberg_module(table)
    store: dict[str, str] = {}
    if not lake.is_local:
        store = dict(store_of(lake.path, lake.storage_options).iceberg)
    catalog = store | lake.catalog if lake.catalog and not is_own else {}
    opened: LakeTable = module.IcebergLakeTable(path, table, catalog, store)
    return opened


def _iceberg_module(table: MirrorTable) -> Any:
    try:
        return importlib.import_module("canal_server.mirror.lake.iceberg.iceberg")
    except ModuleNotFoundError as error:
        raise LakeError(
            f"table {table.source}: format iceberg needs {error.name}, which is not "
            "installed: pip install 'canal-server[iceberg]'"
        ) from None


def other_format(settings: MirrorSettings, table: MirrorTable) -> str:
    """Return the problem if a table's folder has another format, else "".

    Readers of a log would read a table's files as part of it, and a vacuum would delete
    the files of another format. Raises LakeError.
    """
    for form, there in _THERE.items():
        own = "parquet" if table.is_log else table.form
        if form != own and _is_there(settings, replace(table, form=form)):
            return (
                f"{settings.lake.path}/{table.target} has {there}, but format is "
                f"{table.form} now: move the old one away, or choose another folder "
                "(`to` of its rule)"
            )
    return ""


def _is_there(settings: MirrorSettings, table: MirrorTable) -> bool:
    if table.form == "iceberg":  # found without pyiceberg, too
        names = open_folder(settings.lake, f"{table.target}/metadata").names()
        return any(name.endswith(".metadata.json") for name in names)
    return open_table(settings, table).exists()


_THERE: Final = {
    "delta": "a Delta table",
    "iceberg": "an Iceberg table",
    "parquet": "a log of changes",
}
