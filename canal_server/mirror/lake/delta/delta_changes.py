"""Applies changes to a Delta table: merged by key, or counted without one.

Makes one commit of them. Leaves out which changes are applied already (`delta_log`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from canal_server.mirror.lake import fold
from canal_server.mirror.lake.conditions import Where
from canal_server.mirror.lake.delta.delta_log import commit_alone
from canal_server.mirror.lake.delta.delta_rows import WRITER, batches, complete
from canal_server.mirror.lake.file_bounds import bounds, literal, quoted
from canal_server.mirror.lake.keyless import difference
from canal_server.mirror.lake.lake_table import (
    ADDED,
    DELETED,
    HASH,
    META,
    ROW,
    SEQ,
    TIME,
    Applied,
    UnlikeError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import CommitProperties
    from deltalake.table import TableMerger

    from canal_server.mirror.lake.conditions import Among
    from canal_server.mirror.lake.delta.delta_layout import Layout

_OP: Final = "_change_type"
_INSERT: Final = "insert"
_LEAST, _GREATEST, _ROWS = "least", "greatest", "rows"


def merge(
    delta: DeltaTable,
    changes: pa.Table,
    key: Sequence[str],
    layout: Layout,
    commit: CommitProperties,
) -> Applied:
    """Apply changes of a table with a key: the last one of each key."""
    source = layout.whole(_source(delta, fold.newest(changes, key)))
    names = [name for name in source.column_names if name != _OP]
    values = {quoted(name): f"s.{quoted(name)}" for name in names}
    within, hit = _bounds(delta, source, key, "t.")
    if hit and layout.names:
        # A row may be in any partition, whatever its new values are.
        condition = " AND ".join(_bounds(delta, source, key)[0])
        partitions = layout.near(delta, source, key, condition)
        within, hit = [*within, *(partitions or [])], 0 if partitions is None else hit
    if hit == 0:
        if DELETED.name not in names:
            source = source.filter(pc.not_equal(source[_OP], fold.DELETE))
        return _append(delta, source.drop_columns([_OP]), commit)
    condition = " AND ".join([*(_same(source, n) for n in key), *within])
    merger = _merger(delta, source, condition, commit)
    kept = None
    if DELETED.name not in names:
        merger = merger.when_matched_delete(f"s.{quoted(_OP)} = '{fold.DELETE}'")
        kept = f"s.{quoted(_OP)} <> '{fold.DELETE}'"
    merger = merger.when_matched_update(values)
    done = merger.when_not_matched_insert(values, kept).execute()
    return Applied(
        done["num_target_rows_inserted"] + done["num_target_rows_updated"],
        done["num_target_rows_deleted"],
    )


def count(
    delta: DeltaTable, changes: pa.Table, layout: Layout, commit: CommitProperties
) -> Applied:
    """Apply changes of a table without a key."""
    lake = layout.rows(pa.schema(delta.schema().to_arrow()))
    own = [name for name in lake.names if name not in ADDED]
    if missing := [name for name in own if name not in changes.column_names]:
        raise UnlikeError(
            f"changes of the table lack column {missing[0]}, without which its rows "
            "cannot be distinguished"
        )
    source = _typed(changes, lake).select([*own, *META, _OP])

    def find(removed: pa.Int64Array) -> pa.Table:
        found = [batch.filter(pc.is_in(batch[HASH.name], removed)) for batch in rows]
        return pa.Table.from_batches(found, lake)

    soft = DELETED.name in lake.names
    rows = batches(delta, lake.names, Where(live=soft))
    made = difference(source, soft=soft, find=find)
    if len(made.removed) == 0:
        return _append(delta, layout.whole(made.added), commit)
    marks = pa.table({HASH.name: made.removed}).cast(pa.schema([HASH]))
    marks = marks.append_column(_OP, pa.repeat(pa.scalar(fold.DELETE), len(marks)))
    added = layout.whole(made.added).append_column(
        _OP, pa.repeat(pa.scalar(_INSERT), len(made.added))
    )
    both = pa.concat_tables([added, marks], promote_options="default")
    condition = f"t.{quoted(HASH.name)} = s.{quoted(HASH.name)}"
    condition += f" AND s.{quoted(_OP)} = '{fold.DELETE}'"
    if soft:
        condition += f" AND NOT t.{quoted(DELETED.name)}"
    names = [name for name in both.column_names if name != _OP]
    done = (
        _merger(delta, both, condition, commit)
        .when_matched_delete()
        .when_not_matched_insert(
            {quoted(name): f"s.{quoted(name)}" for name in names},
            f"s.{quoted(_OP)} = '{_INSERT}'",
        )
        .execute()
    )
    repeated = done["num_target_rows_deleted"] - made.counts[1]
    return Applied(made.counts[0] - repeated, made.counts[1])


def mark(
    delta: DeltaTable,
    where: Among | None,
    upto: int,
    at_ms: int,
    commit: CommitProperties,
) -> None:
    """Mark rows that fulfil a condition as deleted; None: all of them."""
    at = pa.scalar(at_ms * 1000, TIME.type).as_py()
    live = f"NOT {quoted(DELETED.name)}"
    delta.update(
        {
            quoted(DELETED.name): "true",
            quoted(SEQ.name): str(upto),
            quoted(ROW.name): "0",
            quoted(TIME.name): literal(at, TIME.type),
        },
        predicate=live if where is None else f"{live} AND {where.sql}",
        writer_properties=WRITER,
        commit_properties=commit,
    )


def _merger(
    delta: DeltaTable,
    source: pa.Table,
    condition: str,
    commit: CommitProperties,
) -> TableMerger:
    return delta.merge(
        source,
        condition,
        source_alias="s",
        target_alias="t",
        # Otherwise it would skip files by inexact statistics.
        streamed_exec=True,
        writer_properties=WRITER,
        commit_properties=commit,
    )


def _append(delta: DeltaTable, rows: pa.Table, commit: CommitProperties) -> Applied:
    """Add rows that are in no file."""
    if len(rows) == 0:
        commit_alone(delta, commit)
        return Applied()
    write_deltalake(
        delta,
        complete(rows, pa.schema(delta.schema().to_arrow())),
        mode="append",
        writer_properties=WRITER,
        commit_properties=commit,
    )
    return Applied(len(rows))


def _source(delta: DeltaTable, rows: pa.Table) -> pa.Table:
    """Return changes in the lake's types, with its extra columns."""
    schema = pa.schema(delta.schema().to_arrow())
    if DELETED.name in schema.names:
        deleted = pc.equal(rows[_OP], fold.DELETE)
        rows = rows.append_column(DELETED, deleted)
    return _typed(rows, schema)


def _bounds(
    delta: DeltaTable, source: pa.Table, key: Sequence[str], alias: str = ""
) -> tuple[list[str], int]:
    """Return conditions on the keys, and the number of rows in the matching files."""
    files = pa.table(delta.get_add_actions(flatten=True))
    parts = [
        bounds(source[name], f"{alias}{quoted(name)}", _ranges(files, name))
        for name in key
    ]
    found = [bound.condition for bound in parts if bound.condition]
    return found, min(bound.rows for bound in parts)


def _ranges(files: pa.Table, name: str) -> pa.Table:
    """Return a column's statistics in the Delta log: least, greatest, rows by file."""
    nothing = pa.nulls(len(files))
    own = f"partition.{name}"
    found = {
        _LEAST: own if own in files.column_names else f"min.{name}",
        _GREATEST: own if own in files.column_names else f"max.{name}",
        _ROWS: "num_records",
    }
    return pa.table(
        {
            ours: files[theirs] if theirs in files.column_names else nothing
            for ours, theirs in found.items()
        }
    )


def _same(source: pa.Table, name: str) -> str:
    """Return the condition that a column of the key is equal."""
    column = quoted(name)
    if pa.types.is_floating(source.schema.field(name).type):
        return f"t.{column} + 0.0 = s.{column} + 0.0"  # -0.0 is 0.0
    return f"t.{column} = s.{column}"


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return changes in the lake's types."""
    fields = []
    for name in rows.column_names:
        if name != _OP and name not in schema.names:
            raise UnlikeError(f"it lacks column {name} of the table's changes")
        fields.append(rows.schema.field(name) if name == _OP else schema.field(name))
    return rows.cast(pa.schema(fields))
