"""Inserts that a copy contains already, which are not applied again.

A copy is read while rows are inserted, so it has some of those that the binlog has
after its position. They would be updates that change nothing: readers of a table with
nothing but new rows, such as streams without the change feed, would see commits that
replace rows. Leaves out all changes but inserts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.mirror.lake.conditions import Where, ranges_of
from canal_server.mirror.lake.keyless import row_hashes
from canal_server.mirror.lake.lake_table import ADDED, DELETED, STREAM_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.mirror.state.lake_tables import LakeTable

_OP: Final = "_change_type"
_INSERT: Final = "insert"
_HASH: Final = "hash of the row"
_NUMBER: Final = "number of the row"


def without_copied(changes: pa.Table, lake: LakeTable, key: Sequence[str]) -> pa.Table:
    """Return changes without the inserts of rows that the lake has as they are.

    `key` are the names of the key's columns in the lake. All changes are returned if
    there are others than inserts, or if no column of the key excludes files. Raises
    LakeError.
    """
    ranges = tuple(ranges_of(changes.select(key)))
    schema = lake.arrow_schema()
    if not ranges or schema is None or not _are_inserts(changes, key):
        return changes
    own = [n for n in changes.column_names if n not in {*ADDED, _OP, STREAM_TIME}]
    kinds = pa.schema([pa.field(name, schema.field(name).type) for name in own])
    arrived = _identified(changes.select(own).cast(kinds), key)
    arrived = arrived.append_column(_NUMBER, pa.array(range(len(arrived)), pa.int64()))
    known = [pa.array([], pa.int64())]
    where = Where(ranges, live=DELETED.name in schema.names)
    for batch in lake.scan(own, where):
        there = _identified(pa.table(batch).select(own).cast(kinds), key)
        hit = arrived.join(there, [*key, _HASH], join_type="left semi")
        known += hit[_NUMBER].chunks
    copied = pc.is_in(arrived[_NUMBER], pa.chunked_array(known))
    return changes.filter(pc.invert(copied))


def _are_inserts(changes: pa.Table, key: Sequence[str]) -> bool:
    """Check whether all changes are inserts of different rows."""
    if not pc.all(pc.equal(changes[_OP], _INSERT)).as_py():
        return False
    return len(changes.group_by(list(key)).aggregate([])) == len(changes)


def _identified(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the keys of rows, each with a hash of the whole row."""
    return rows.select(key).append_column(_HASH, row_hashes(rows))
