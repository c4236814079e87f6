"""Tables without a key in the lake: as many of each row as in their source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fix_lake import (
    COPY,
    LakeRows,
    in_order,
    lake_rows,
    lake_table,
    random_keyless_table,
    write_copy,
)
from fix_random import longer

from canal_server.errors import LakeError
from canal_server.mirror.lake import hashes
from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.lake.keyless import row_hashes
from canal_server.mirror.lake.steps import AddColumn, DropColumn
from canal_server.mirror.state.lake_tables import Applied, lake_schema

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.settings.table_values import MirrorTable

PLAIN = lake_table([("n", "int"), ("s", "varchar(20)")])
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


def without_order(lake: DeltaLakeTable) -> list[str]:
    """Return the rows of the lake, but for the order of changes and the hash."""
    left_out = {"_seq", "_row", "_committed_at", "_row_hash"}
    rows = lake_rows(lake)
    return in_order({n: v for n, v in r.items() if n not in left_out} for r in rows)


def keyless_copy(folder: Path, rows: Keyless) -> DeltaLakeTable:
    """Publish the rows that are there as a copy, with their hashes."""
    schema = lake_schema(rows.table)
    changes = [
        row | {"_seq": rows.seq, "_row": 0, "_deleted": False} for row in rows.live
    ]
    table = pa.Table.from_pylist(changes, schema=schema)
    position = schema.get_field_index("_row_hash")
    table = table.set_column(position, schema.field(position), row_hashes(table))
    lake = DeltaLakeTable(str(folder), rows.table)
    files = write_copy(folder, table)
    lake.publish(COPY, schema, files, rows.seq + 1, {})
    rows.deleted.clear()
    return lake


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("round_", range(longer(4)))
def test_random_changes(
    tmp_path: Path, rng: random.Random, deletes: str, round_: int
) -> None:
    """Rows that are there several times stay there as often, whatever comes again."""
    rows = Keyless(random_keyless_table(rng, deletes), rng)
    print([(c.target, c.mysql_type) for c in rows.table.columns])
    rows.statements(40)
    lake = keyless_copy(tmp_path, rows)
    assert without_order(lake) == rows.expected()
    done: list[Row] = []
    for _ in range(rng.randrange(2, 5)):
        new = rows.statements(rng.choice([1, 10, 40]))
        overlap = done[rng.randrange(len(done) + 1) :]
        changes = rows.as_changes([*overlap, *new])
        lake.apply(COPY, changes, rows.seq + 1, {})
        assert without_order(lake) == rows.expected()
        assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied()
        done += new
    assert without_order(lake) == rows.expected()


def test_rows_with_the_hash_of_one_that_goes(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that share their hash in the lake are still distinguished."""
    other = hashes.row_hashes

    def same(columns: list[pa.Array], rows: int, seed: int) -> pa.Int64Array:
        if seed == hashes.SEED:
            return pa.array([7] * rows, pa.int64())
        return other(columns, rows, seed)

    monkeypatch.setattr(hashes, "row_hashes", same)
    rows = Keyless(PLAIN, rng)
    rows.statements(40)
    lake = keyless_copy(tmp_path, rows)
    for _ in range(3):
        changes = rows.as_changes(rows.statements(20))
        lake.apply(COPY, changes, rows.seq + 1, {})
        assert without_order(lake) == rows.expected()


def test_counts(tmp_path: Path, rng: random.Random) -> None:
    """The result counts added and removed rows."""
    rows = Keyless(PLAIN, rng)
    lake = keyless_copy(tmp_path, rows)
    row = {"n": 1, "s": "a"}
    changes = rows.as_changes([rows.change("insert", row) for _ in range(5)])
    assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied(5, 0)
    changes = rows.as_changes([rows.change("delete", row) for _ in range(2)])
    assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied(0, 2)
    changes = rows.as_changes(
        [
            rows.change("update_preimage", row),
            rows.change("update_postimage", {"n": 2, "s": "a"}),
        ]
    )
    assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied(1, 1)
    assert sorted(row["n"] for row in lake_rows(lake)) == [1, 1, 2]


def test_rows_that_are_not_there(tmp_path: Path, rng: random.Random) -> None:
    """A row that is deleted more often than it exists is an error without effect."""
    rows = Keyless(PLAIN, rng)
    rows.live = [{"n": 1, "s": "a"}] * 2
    lake = keyless_copy(tmp_path, rows)
    changes = [rows.change("delete", {"n": 1, "s": "a"}) for _ in range(3)]
    changes.append(rows.change("insert", {"n": 2, "s": "a"}))
    with pytest.raises(LakeError, match="1 changed or deleted rows are not"):
        lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    assert [row["n"] for row in lake_rows(lake)] == [1, 1]


def test_columns_change(tmp_path: Path, rng: random.Random) -> None:
    """Rows are found by their columns of now after these have changed."""
    rows = Keyless(PLAIN, rng)
    rows.live = [{"n": 1, "s": "a"}, {"n": 1, "s": "b"}]
    lake = keyless_copy(tmp_path, rows)
    steps: list[Step] = [AddColumn("x", "int", ""), DropColumn("s")]
    lake.evolve(COPY, steps, rows.seq + 5, {})
    rows = Keyless(lake_table([("n", "int"), ("x", "int")]), rng)
    rows.seq += 100
    new_rows = [rows.change("delete", {"n": 1, "x": None})]
    lake.apply(COPY, rows.as_changes(new_rows), rows.seq + 1, {})
    assert [(row["n"], row["x"]) for row in lake_rows(lake)] == [(1, None)]
    changes = rows.as_changes([rows.change("delete", {"n": 1})]).drop_columns(["x"])
    with pytest.raises(LakeError, match="changes of the table lack column x"):
        lake.apply(COPY, changes, rows.seq + 1, {})
