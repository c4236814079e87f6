"""Key values that changed in parents, and the rows of the lake that refer to them.

Leaves out the source, and what happens to the rows (`reread`).
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.mirror.lake import fold
from canal_server.mirror.lake.conditions import Where, ranges_of
from canal_server.mirror.lake.lake_table import DELETED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from canal_server.mirror.follow.follower import Follower
    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.mysql.silent_foreign_keys import ForeignKey

_NOT_EXACT: Final = ("float", "double", "bits")  # not exact as SQL literals
_OP: Final = "_change_type"
_SEQ: Final = "_seq"
_FOLDED: Final = "folded "  # prefix of a column name


class KeyValues:
    """The changes of one parent's keys in a batch."""

    def __init__(self) -> None:
        self._runs: list[pa.Table] = []

    def clear(self) -> None:
        """Discard the batch."""
        self._runs.clear()

    def add(self, data: pa.Table, names: Iterable[str]) -> None:
        """Add a run of rows; keeps only the columns of keys."""
        needed = {name.lower() for name in names}
        kept = [
            field.name
            for field in data.schema
            if field.name in (_OP, _SEQ)
            or field.name.lower() in needed
            or (field.metadata or {}).get(b"key") == b"1"
        ]
        self._runs.append(data.select(kept))

    @property
    def is_empty(self) -> bool:
        """Whether the batch has no rows of the parent."""
        return not self._runs

    def tables(self) -> list[pa.Table]:
        """Return the rows, in runs of equal columns."""
        return self._runs

    def has_all(self, names: Sequence[str]) -> bool:
        """Check whether the rows have all former values of columns, as a key's do."""
        return all(_in_key(run, _own_names(run, names)) for run in self._runs)


def changed_values(
    changes: KeyValues, key: ForeignKey, parent: Follower | None
) -> tuple[pa.Table, pa.Table]:
    """Return the values that a parent lost, and those that replaced them.

    They have the names of the child's columns; some values may be unchanged.
    """
    old, new = [], []
    for run in changes.tables():
        names = _own_names(run, key.referenced)
        removed = pc.is_in(run[_OP], pa.array([fold.DELETE, fold.PREIMAGE]))
        old.append(run.filter(removed).select(names))
        with_removed = pc.is_in(run[_SEQ], pc.unique(run.filter(removed)[_SEQ]))
        new.append(run.filter(pc.and_(with_removed, pc.invert(removed))).select(names))
        if not _in_key(run, names):
            # Rows keep their primary keys, and only the lake has their old values.
            values = _other_values(run, names, _primary(run), parent)
            old.append(values)
            new.append(values)
    return _joined(old, key.columns), _joined(new, key.columns)


def _primary(run: pa.Table) -> list[str]:
    """Return the columns of a run that are the primary key."""
    return [
        each.name for each in run.schema if (each.metadata or {}).get(b"key") == b"1"
    ]


def _in_key(run: pa.Table, names: Sequence[str]) -> bool:
    """Check whether changes include the former values of columns, as a key's do."""
    primary = _primary(run)
    return not primary or set(names) <= set(primary)


def _joined(parts: list[pa.Table], names: Sequence[str]) -> pa.Table:
    """Return the distinct values of runs, under other names."""
    values = [_named(_without_null(part), names) for part in parts]
    return distinct(pa.concat_tables(values, promote_options="permissive"))


def _other_values(
    run: pa.Table, names: list[str], primary: list[str], parent: Follower | None
) -> pa.Table:
    """Return the values of rows that had several, before or in the batch."""
    images = run.select([*primary, *(n for n in names if n not in primary)])
    both = images
    if parent is not None:
        targets = {c.name.lower(): c.target for c in parent.table.columns}
        needed = [targets[name.lower()] for name in images.column_names]
        keys = images.select(primary).rename_columns(
            [targets[name.lower()] for name in primary]
        )
        there = matching(parent, needed, distinct(keys)).select(needed)
        there = there.rename_columns(images.column_names)
        both = pa.concat_tables([images, there.cast(images.schema)])
    both = distinct(both)
    counts = both.group_by(primary).aggregate([([], "count_all")])
    many = counts.filter(pc.greater(counts["count_all"], 1)).select(primary)
    return (
        both.join(many, primary, join_type="left semi")
        .select(names)
        .cast(run.select(names).schema)
    )


def _own_names(run: pa.Table, names: Sequence[str]) -> list[str]:
    """Return names in the case of a run's columns, as they are case-insensitive."""
    known = {name.lower(): name for name in run.column_names}
    return [known[name.lower()] for name in names]


def _named(values: pa.Table, names: Sequence[str]) -> pa.Table:
    return values.rename_columns(list(names)).replace_schema_metadata(None)


def _without_null(values: pa.Table) -> pa.Table:
    for name in values.column_names:
        values = values.filter(pc.is_valid(values[name]))
    return values


def values_of(
    rows: pa.Table, table: MirrorTable, names: Sequence[str], renamed: Sequence[str]
) -> pa.Table:
    """Return columns of rows of the lake, under other names."""
    targets = {c.name.lower(): c.target for c in table.columns}
    found = rows.select([targets[name.lower()] for name in names])
    return _named(distinct(_without_null(found)), renamed)


def distinct(rows: pa.Table) -> pa.Table:
    """Return the distinct rows."""
    if not rows.column_names:
        return rows
    found = rows.group_by(rows.column_names).aggregate([])
    return found.select(rows.column_names).cast(_plain(rows.schema))


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(each.name, each.type) for each in schema])


def matching(
    follower: Follower, columns: Collection[str] | None, values: pa.Table
) -> pa.Table:
    """Return the rows of the lake and of the current batch that have such values.

    Names are those of the lake; `columns`: the columns to return, all if empty. Texts
    are compared without case, accents and trailing blanks, as most collations do: so
    some rows may be found that differ.
    """
    schema = follower.lake.arrow_schema()
    if schema is None or not values.num_rows:
        needed = schema.names if schema and columns is None else list(columns or ())
        kinds = {} if schema is None else {f.name: f.type for f in schema}
        return pa.table({name: pa.array([], kinds.get(name)) for name in needed})
    names = values.column_names
    values = values.cast(pa.schema([schema.field(name) for name in names]))
    needed = schema.names if columns is None else [*dict.fromkeys([*columns, *names])]
    where = Where(tuple(ranges_of(values)), live=DELETED.name in schema.names)
    kept = pa.schema([schema.field(name) for name in needed])
    folded = _folded(values, names)
    on = [_FOLDED + name for name in names]
    marks = distinct(folded.select(on))
    found = [kept.empty_table()]
    batches: Any = follower.lake.scan(needed, where)
    if columns is not None:
        gathered = [each.select(needed).cast(kept) for each in follower.gathered]
        parts = [*(pa.table(each) for each in batches), *gathered]
    else:
        parts = [pa.table(each) for each in batches]
    for part in parts:
        marked = _folded(part.cast(kept), names)
        indexes = pa.array(range(marked.num_rows), pa.int64())
        hit = marked.select(on).append_column("index", indexes)
        hit = hit.join(marks, on, join_type="left semi")
        found.append(part.cast(kept).take(hit["index"].sort()))
    rows = pa.concat_tables(found)
    return rows if columns is None else rows.select(list(dict.fromkeys(columns)))


def _folded(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Add columns in which values that a collation may treat as equal are equal."""
    for name in names:
        column = rows[name]
        if pa.types.is_string(column.type):
            encoded = column.combine_chunks().dictionary_encode()
            texts = [_fold(text) for text in encoded.dictionary.to_pylist()]
            column = pa.array(texts, pa.string()).take(encoded.indices)
        rows = rows.append_column(_FOLDED + name, column)
    return rows


def _fold(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).casefold().rstrip()
    return "".join(char for char in plain if not unicodedata.combining(char))


def has_values(table: MirrorTable, name: str) -> bool:
    """Check whether a column's values can be searched in lake and source."""
    columns = {column.name.lower(): column for column in table.columns}
    column = columns.get(name.lower())
    return (
        column is not None
        and column.mask is None
        and column.requested.kind not in _NOT_EXACT
    )
