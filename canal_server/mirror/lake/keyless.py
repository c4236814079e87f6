"""Rows of tables without a key: identified by all of their values, and counted.

Rows are equal if all of their values have equal bits, that is, if two hashes of them
are equal. The lake stores one hash; the other is computed on demand. Leaves out how
rows are read and written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.mirror.lake import fold, hashes
from canal_server.mirror.lake.lake_table import ADDED, DELETED, HASH, UnlikeError

if TYPE_CHECKING:
    from collections.abc import Callable

_OP: Final = "_change_type"
_OTHER: Final = "other"  # the second hash
_SAME: Final = [HASH.name, _OTHER]
_REMOVED: Final = (fold.DELETE, fold.PREIMAGE)


class Difference(NamedTuple):
    """The effect of changes on a table."""

    removed: pa.Int64Array  # hashes whose rows are all removed
    added: pa.Table  # rows to add, some of which replace removed ones
    counts: tuple[int, int]  # of new and of deleted rows


def row_hashes(table: pa.Table) -> pa.Int64Array:
    """Return a hash of each row over the table's own columns.

    The columns are in the lake's order.
    """
    return _hashes(table, hashes.SEED)


def difference(
    changes: pa.Table, *, soft: bool, find: Callable[[pa.Int64Array], pa.Table]
) -> Difference:
    """Return the effect of changes on a table.

    `changes` have the lake's columns, in order, and _change_type. `find` returns the
    table's rows with given hashes, without those marked as deleted. Raises UnlikeError
    when a row to delete does not exist.
    """
    changes = _identified(changes)
    deleted = pc.is_in(changes[_OP], pa.array(_REMOVED))
    net = pc.if_else(deleted, -1, 1)
    number = pa.array(range(len(changes)), pa.int64())
    counted = (
        changes.select(_SAME)
        .append_column("net", net)
        .append_column("number", number)
        .group_by(_SAME)
        .aggregate([("net", "sum"), ("number", "max")])
    )
    more = counted.filter(pc.greater(counted["net_sum"], 0))
    fewer = counted.filter(pc.less(counted["net_sum"], 0))
    added = [changes.take(repeated(more["number_max"], more["net_sum"]))]
    if soft:
        added = [_marked(added[0], deleted=False)]
        # An update's old row is not marked as deleted: the new row replaces it.
        marks = changes.filter(pc.equal(changes[_OP], fold.DELETE))
        added.append(_marked(marks, deleted=True))
    removed = pc.unique(fewer[HASH.name])
    if len(removed):
        added.append(_remaining(_identified(find(removed)), fewer, added[0].schema))
    columns = [name for name in added[0].column_names if name not in (_OP, _OTHER)]
    rows = pa.concat_tables([part.select(columns) for part in added])
    fewer_rows = -(pc.sum(fewer["net_sum"]).as_py() or 0)
    return Difference(removed, rows, (len(rows), fewer_rows))


def _remaining(found: pa.Table, fewer: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the remaining rows among those with the hash of a removed row."""
    found = found.sort_by([(name, "ascending") for name in _SAME])
    found = found.append_column("index", pa.array(range(len(found)), pa.int64()))
    first = found.group_by(_SAME).aggregate([("index", "min"), ("index", "count")])
    known = fewer.join(first, _SAME, join_type="full outer")
    existing = pc.fill_null(known["index_count"], 0)
    remains = pc.add(existing, pc.fill_null(known["net_sum"], 0))
    if pc.min(remains).as_py() < 0:
        missing = pc.sum(pc.if_else(pc.less(remains, 0), pc.negate(remains), 0)).as_py()
        raise UnlikeError(
            f"{missing} changed or deleted rows are not in it: the copy is not "
            "equal to its source table"
        )
    known = known.append_column("remains", remains).select(
        [*_SAME, "index_min", "remains"]
    )
    # Joined by their hashes only: a join cannot have columns of lists.
    joined = found.select([*_SAME, "index"]).join(
        known.filter(pc.greater(remains, 0)), _SAME, join_type="inner"
    )
    rank = pc.subtract(joined["index"], joined["index_min"])
    kept = found.take(joined.filter(pc.less(rank, joined["remains"]))["index"])
    names = [name for name in schema.names if name != _OP]
    return kept.select(names).cast(pa.schema([schema.field(name) for name in names]))


def _identified(table: pa.Table) -> pa.Table:
    """Return rows with both of their hashes."""
    table = table.drop_columns([n for n in _SAME if n in table.column_names])
    return table.append_column(HASH, row_hashes(table)).append_column(
        pa.field(_OTHER, pa.int64()), _hashes(table, hashes.OTHER_SEED)
    )


def _hashes(table: pa.Table, seed: int) -> pa.Int64Array:
    own = [n for n in table.column_names if n not in ADDED and n not in (_OP, _OTHER)]
    columns = [as_array(table[name]) for name in own]
    return hashes.row_hashes(columns, len(table), seed)


def as_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as a single array."""
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if hasattr(whole, "chunks") else whole


def repeated(numbers: pa.ChunkedArray, times: pa.ChunkedArray) -> pa.Array:
    """Return each number, repeated by its count."""
    parts = [numbers]
    left = times
    while len(numbers := numbers.filter(again := pc.greater(left, 1))):
        left = pc.subtract(left.filter(again), 1)
        parts.append(numbers)
    return as_array(
        pa.chunked_array([c for part in parts for c in part.chunks], pa.int64())
    )


def _marked(rows: pa.Table, *, deleted: bool) -> pa.Table:
    """Return rows with the column that marks deleted rows."""
    return rows.append_column(DELETED, pa.repeat(pa.scalar(deleted), len(rows)))
