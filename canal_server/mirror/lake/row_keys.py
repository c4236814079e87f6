"""Keys of rows, by which the lake finds a row.

A table whose keys the lake cannot distinguish is not followed. Leaves out how rows are
merged (`delta_changes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.errors import CanalError

if TYPE_CHECKING:
    import pyarrow as pa

    from canal_server.mirror.settings.table_values import MirrorTable


class UnfitRowsError(CanalError):
    """A table of the lake cannot have the rows: someone has to decide."""


class NullKeyError(UnfitRowsError):
    """A row's primary key has a value that is NULL in the lake."""


class ManyPartitionsError(UnfitRowsError):
    """The rows would be in too many files, because of the table's partitions."""


def check_keys(rows: pa.Table | pa.RecordBatch, table: MirrorTable) -> None:
    """Raise NullKeyError for rows of the lake whose key has a NULL.

    In a log of changes no row is looked up, so NULL is allowed.
    """
    if table.is_log:
        return
    targets = {column.name: column.target for column in table.columns}
    for name in table.key:
        if rows.column(targets[name]).null_count:
            raise NullKeyError(
                f"table {table.source}: column {name} of its primary key has an "
                "invalid date, such as 0000-00-00, which becomes NULL in the lake and "
                "cannot identify a row: give the rows another date, or use format "
                "parquet or json for the table"
            )
