"""Tables without a key in the lake: as many of each row as in their source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from fix_lake import (
    COPY,
    kept,
    lake_rows,
    lake_table,
    opened,
    random_keyless_table,
)
from fix_random import longer
from lake_copies import Keyless, Row, keyless_copy, without_order

from canal_server.errors import LakeError
from canal_server.mirror.copy.copy_files import CopyTask, copy_schema, write_files
from canal_server.mirror.lake import copy_difference, hashes
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.lake.steps import AddColumn, DropColumn
from canal_server.mirror.rows.chunk_read import chunk_schema
from canal_server.mirror.rows.chunks import Chunk
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.state.lake_tables import Applied
from canal_server.mysql.source_settings import Access, Address, Credentials

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.lake.steps import Step

PLAIN = lake_table([("n", "int"), ("s", "varchar(20)")])


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("round_", range(longer(4)))
def test_random_changes(
    tmp_path: Path,
    rng: random.Random,
    deletes: str,
    round_: int,
    form: str,
) -> None:
    """Rows that are there several times stay there as often, whatever comes again."""
    rows = Keyless(kept(random_keyless_table(rng, deletes), form), rng)
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
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
) -> None:
    """Rows that share their hash in the lake are still distinguished."""
    other = hashes.row_hashes

    def same(columns: list[pa.Array], rows: int, seed: int) -> pa.Int64Array:
        if seed == hashes.SEED:
            return pa.array([7] * rows, pa.int64())
        return other(columns, rows, seed)

    monkeypatch.setattr(hashes, "row_hashes", same)
    rows = Keyless(kept(PLAIN, form), rng)
    rows.statements(40)
    lake = keyless_copy(tmp_path, rows)
    for _ in range(3):
        changes = rows.as_changes(rows.statements(20))
        lake.apply(COPY, changes, rows.seq + 1, {})
        assert without_order(lake) == rows.expected()


def test_counts(tmp_path: Path, rng: random.Random, form: str) -> None:
    """The result counts added and removed rows."""
    rows = Keyless(kept(PLAIN, form), rng)
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


def test_rows_that_are_not_there(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A row that is deleted more often than it exists is an error without effect."""
    rows = Keyless(kept(PLAIN, form), rng)
    rows.live = [{"n": 1, "s": "a"}] * 2
    lake = keyless_copy(tmp_path, rows)
    changes = [rows.change("delete", {"n": 1, "s": "a"}) for _ in range(3)]
    changes.append(rows.change("insert", {"n": 2, "s": "a"}))
    with pytest.raises(LakeError, match="1 changed or deleted rows are not"):
        lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    assert [row["n"] for row in lake_rows(lake)] == [1, 1]


def test_columns_change(tmp_path: Path, rng: random.Random, form: str) -> None:
    """Rows are found by their columns of now after these have changed."""
    rows = Keyless(kept(PLAIN, form), rng)
    rows.live = [{"n": 1, "s": "a"}, {"n": 1, "s": "b"}]
    lake = keyless_copy(tmp_path, rows)
    steps: list[Step] = [AddColumn("x", "int", ""), DropColumn("s")]
    lake.evolve(COPY, steps, rows.seq + 5, {})
    rows = Keyless(kept(lake_table([("n", "int"), ("x", "int")]), form), rng)
    rows.seq += 100
    new_rows = [rows.change("delete", {"n": 1, "x": None})]
    lake.apply(COPY, rows.as_changes(new_rows), rows.seq + 1, {})
    assert [(row["n"], row["x"]) for row in lake_rows(lake)] == [(1, None)]
    changes = rows.as_changes([rows.change("delete", {"n": 1})]).drop_columns(["x"])
    with pytest.raises(LakeError, match="changes of the table lack column x"):
        lake.apply(COPY, changes, rows.seq + 1, {})


def test_columns_change_places(tmp_path: Path, rng: random.Random, form: str) -> None:
    """Rows are found after a column of the same name and type is a later one."""
    rows = Keyless(kept(PLAIN, form), rng)
    rows.live = [{"n": 1, "s": "a"}, {"n": 1, "s": "b"}]
    lake = keyless_copy(tmp_path, rows)
    steps: list[Step] = [DropColumn("n"), AddColumn("n", "int", "")]
    lake.evolve(COPY, steps, rows.seq + 5, {})
    rows.seq += 100
    changes = rows.as_changes([rows.change("delete", {"n": None, "s": "a"})])
    lake.apply(COPY, changes, rows.seq + 1, {})
    assert [(row["n"], row["s"]) for row in lake_rows(lake)] == [(None, "b")]


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_copy_whose_columns_moved(
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    *,
    is_replaced: bool,
) -> None:
    """Rows are found after a copy of a table whose columns have another order."""
    monkeypatch.setattr(copy_difference, "ROWS_MAX", 0 if is_replaced else 1000)
    rows = Keyless(kept(PLAIN, form), rng)
    rows.live = [{"n": 1, "s": "a"}, {"n": 1, "s": "b"}]
    keyless_copy(tmp_path, rows)

    moved = kept(lake_table([("s", "varchar(20)"), ("n", "int")]), form)
    lake = opened(tmp_path, moved)
    folder = open_folder(LakeSettings(path=str(tmp_path)))
    task = CopyTask(
        access=Access(address=Address("127.0.0.1", 1), credentials=Credentials("", "")),
        table=moved,
        copy_id="copy-2",
        seq=rows.seq,
        folder=folder,
        manifests=folder,
        file_schema=lake.file_schema(copy_schema(moved)),
    )
    batch = pa.RecordBatch.from_pylist(
        [{"s": s, "n": 2} for s in "abc"], schema=chunk_schema(moved)
    )
    files = write_files(task, Chunk(0), [batch])
    lake.publish("copy-2", copy_schema(moved), files, rows.seq + 1, {})

    rows = Keyless(moved, rng)
    rows.seq += 100
    changes = rows.as_changes([rows.change("delete", {"s": s, "n": 2}) for s in "ac"])
    lake.apply("copy-2", changes, rows.seq + 1, {})
    assert [(row["n"], row["s"]) for row in lake_rows(lake)] == [(2, "b")]
