"""Copies of tables, also of those without a key, whose rows may be equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fix_lake import COPY, LakeRows, in_order, lake_rows, opened, write_copy

from canal_server.mirror.lake.keyless import row_hashes
from canal_server.mirror.state.lake_tables import lake_schema

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.mirror.state.lake_tables import Applied, LakeTable

Row = dict[str, Any]


class Keyless(LakeRows):
    """Rows of a table without a key; few different ones."""

    def __init__(self, table: MirrorTable, rng: random.Random) -> None:
        super().__init__(table, rng)
        self.few = [self.new_row() for _ in range(5)]
        self.live: list[Row] = []
        self.deleted: list[Row] = []

    def statements(self, count: int) -> list[Row]:
        """Make changes as a source would, and expect what comes of them."""
        return [change for _ in range(count) for change in self._one()]

    def _one(self) -> list[Row]:
        new = self.rng.choice(self.few)
        if not self.live or self.rng.random() < 0.45:
            self.live.append(new)
            return [self.change("insert", new)]
        old = self.live.pop(self.rng.randrange(len(self.live)))
        if self.rng.random() < 0.5:
            self.deleted.append(old)
            return [self.change("delete", old)]
        self.live.append(new)
        return [
            self.change("update_preimage", old),
            self.change("update_postimage", new),
        ]

    def expected(self) -> list[str]:
        """Return what is to be in the lake, but for the order of changes."""
        if self.table.deletes != "soft":
            return in_order(self.live)
        live = [row | {"_deleted": False} for row in self.live]
        return in_order([*live, *(row | {"_deleted": True} for row in self.deleted)])


def without_order(lake: LakeTable) -> list[str]:
    """Return the rows of the lake, but for the order of changes and the hash."""
    left_out = {"_seq", "_row", "_committed_at", "_row_hash"}
    rows = lake_rows(lake)
    return in_order({n: v for n, v in r.items() if n not in left_out} for r in rows)


def keyless_table(rows: Keyless) -> pa.Table:
    """Return the rows that are there as a copy has them, with their hashes."""
    schema = lake_schema(rows.table)
    changes = [
        row | {"_seq": rows.seq, "_row": 0, "_deleted": False} for row in rows.live
    ]
    table = pa.Table.from_pylist(changes, schema=schema)
    position = schema.get_field_index("_row_hash")
    return table.set_column(position, schema.field(position), row_hashes(table))


def keyless_copy(folder: Path, rows: Keyless) -> LakeTable:
    """Publish the rows that are there as a copy."""
    lake = opened(folder, rows.table)
    files = write_copy(folder, keyless_table(rows))
    lake.publish(COPY, lake_schema(rows.table), files, rows.seq + 1, {})
    rows.deleted.clear()
    return lake


def rows_of(
    table: MirrorTable, rng: random.Random, values: Iterable[Sequence[Any]]
) -> LakeRows:
    """Return rows whose columns have these values."""
    rows = LakeRows(table, rng) if table.key else Keyless(table, rng)
    set_rows(rows, values)
    return rows


def set_rows(rows: LakeRows, values: Iterable[Sequence[Any]]) -> None:
    """Let the source have these rows."""
    names = [column.target for column in rows.table.columns]
    found = [dict(zip(names, each, strict=True)) for each in values]
    if isinstance(rows, Keyless):
        rows.live = found
        return
    rows.rows.clear()
    for each in found:
        rows.put("insert", each)


def copy_again(
    folder: Path, lake: LakeTable, rows: LakeRows, copy: str, **options: Any
) -> Applied | None:
    """Publish the rows as a copy, and return what `publish` does."""
    if isinstance(rows, Keyless):
        table = keyless_table(rows)
    else:  # a copy has no row that was deleted
        live = [row for row in rows.rows.values() if not row.get("_deleted")]
        table = pa.Table.from_pylist(live, schema=lake_schema(rows.table))
    files = write_copy(folder, table, copy)
    at = rows.seq + 1
    return lake.publish(
        copy, lake_schema(rows.table), files, at, {"c": copy}, **options
    )
