"""Folds changes: keeps the last change of each key, to apply only that.

Works by columns; leaves out where changes come from and how they are applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

DELETE: Final = "delete"
PREIMAGE: Final = "update_preimage"
_INDEX: Final = "index"


def newest(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last row of each key, in the order of the keys.

    `changes` are in the order in which they were made.
    """
    keys = [comparable(changes[name]) for name in key]
    names = [f"key{number}" for number in range(len(keys))]
    rows = pa.array(range(len(changes)), pa.int64())
    table = pa.table([*keys, rows], names=[*names, _INDEX])
    last = table.group_by(names).aggregate([(_INDEX, "max")])
    ordered = last.sort_by([(name, "ascending") for name in names])
    return changes.take(ordered[f"{_INDEX}_max"]).combine_chunks()


def comparable(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return a key column in which equal numbers have equal bits.

    For MySQL -0.0 and 0.0 are the same key.
    """
    if pa.types.is_floating(column.type):
        return pc.add(column, pa.scalar(0.0, column.type))
    return column
