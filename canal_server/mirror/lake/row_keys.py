"""Keys of rows, by which a row is found again in the lake.

What the lake cannot tell of a key, it cannot find: such a table is not followed. Leaves
out how rows are merged (`delta_changes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.errors import CanalError

if TYPE_CHECKING:
    import pyarrow as pa

    from canal_server.mirror.settings.table_values import MirrorTable


class NullKeyError(CanalError):
    """A row's primary key has a value that is NULL in the lake."""


def check_keys(rows: pa.Table | pa.RecordBatch, table: MirrorTable) -> None:
    """Raise NullKeyError for rows, as the lake has them, that could not be found again.

    In a log of changes nothing is looked for.
    """
    if table.form != "delta":
        return
    targets = {column.name: column.target for column in table.columns}
    for name in table.key:
        if rows.column(targets[name]).null_count:
            raise NullKeyError(
                f"table {table.source}: column {name} of its primary key has a date "
                "that there is not, such as 0000-00-00, which is NULL in the lake, "
                "where rows are told apart by their keys: give the rows another date, "
                "or have the table in format parquet or json"
            )
