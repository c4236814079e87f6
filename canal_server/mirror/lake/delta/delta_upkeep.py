"""Upkeep of a Delta table: merges small files and deletes old ones.

Neither changes a row, and both repeat the record of the last change. Leaves out when
this is done (`upkeep`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from canal_server.mirror.lake.delta import delta_order
from canal_server.mirror.lake.delta.delta_log import commit_of_upkeep
from canal_server.mirror.lake.delta.delta_properties import FILE_SIZE, retention
from canal_server.mirror.lake.delta.delta_rows import WRITER
from canal_server.mirror.lake.file_groups import SMALL
from canal_server.mirror.lake.lake_table import Compacted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable
    from deltalake.fs import DeltaStorageHandler

    from canal_server.mirror.lake.delta.delta_layout import Layout

# Files that no log names belong to a running copy, or are left over.
UNKNOWN_HOURS: Final = 7 * 24

_CHANGES: Final = "_change_data/"


def compact(
    delta: DeltaTable, store: DeltaStorageHandler, key: Sequence[str], layout: Layout
) -> Compacted:
    """Merge small files, in the key's order if the table has a key."""
    if key:
        commit = commit_of_upkeep(delta)
        done = delta_order.compact(delta, store, key, layout, commit)
        if done is not None:
            return done
    size = delta.metadata().configuration.get(FILE_SIZE)
    result = delta.optimize.compact(
        target_size=int(size) // SMALL if size else None,
        writer_properties=WRITER,
        commit_properties=commit_of_upkeep(delta),
    )
    return Compacted(result["numFilesRemoved"], result["numFilesAdded"])


def vacuum(delta: DeltaTable, store: DeltaStorageHandler, hours: float) -> int:
    """Delete files that no version of the last hours needs, and the older log."""
    whole = math.ceil(hours)
    kept = retention(whole)
    if kept.items() - delta.metadata().configuration.items():
        delta.alter.set_table_properties(
            kept, commit_properties=commit_of_upkeep(delta)
        )
    removed = _vacuumed(delta, whole, full=False)
    result = delta.vacuum(whole, enforce_retention_duration=False, full=True)
    for name in result:
        if name.startswith(_CHANGES):  # no log records their removal
            store.delete_file(name)
            removed += 1
    removed += _vacuumed(delta, max(whole, UNKNOWN_HOURS), full=True)
    delta.create_checkpoint()
    delta.cleanup_metadata()
    return removed


def _vacuumed(delta: DeltaTable, hours: int, *, full: bool) -> int:
    removed = delta.vacuum(
        hours,
        dry_run=False,
        enforce_retention_duration=False,
        full=full,
        commit_properties=commit_of_upkeep(delta),
    )
    return len(removed)
