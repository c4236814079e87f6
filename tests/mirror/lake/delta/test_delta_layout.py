"""Partitions of Delta tables: which files changes read, and which they write."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from fix_lake import COPY, LakeRows, lake_rows
from parted_lake import (
    check,
    copied,
    filled_rows,
    listed_files,
    parted,
    row_of,
)

from canal_server.mirror.lake.steps import AddColumn, WidenColumn

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.state.lake_tables import LakeTable


def in_own_partition(folder: Path, lake: LakeTable) -> None:
    """Check that each row is in the partition that its values give."""
    for row in lake_rows(lake):
        if "at_month" in row:
            expected = row["at"] and row["at"].date().replace(day=1)
            assert row["at_month"] == expected
        if "id_bucket" in row:
            assert row["id_bucket"] == row["id"] % 4
        if "region_part" in row:
            names = {"EU": "EU", "São Paulo/1": "S~C3~A3o~20Paulo~2F1", "": None,
                     "~": "~7E", "%41": "~2541", "US": "US", None: None}  # fmt: skip
            assert row["region_part"] == names[row["region"]]
    columns = DeltaTable(str(folder)).metadata().partition_columns
    assert all(list(each.values) == columns for each in listed_files(folder))


def test_columns_of_the_log(tmp_path: Path, rng: random.Random) -> None:
    """Numbers and dates are partitions themselves; other columns have one beside."""
    by = "tenant, region, month(at), bucket(4, id)"
    rows = filled_rows(parted(by, "delta"), rng, 30)
    lake, _ = copied(tmp_path, rows)
    delta = DeltaTable(str(tmp_path))
    names = ["tenant", "region_part", "at_month", "id_bucket"]
    assert delta.metadata().partition_columns == names
    check(lake, rows)
    in_own_partition(tmp_path, lake)
    configuration = delta.metadata().configuration
    chosen = configuration["delta.dataSkippingStatsColumns"]
    assert chosen is not None
    assert "`region`" in chosen
    assert "`at`" in chosen
    assert "`tenant`" not in chosen  # Spark refuses that


def test_a_row_moves(tmp_path: Path, rng: random.Random) -> None:
    """An update of the partition's column moves a row, which the change feed shows."""
    rows = LakeRows(parted("tenant", "delta"), rng)
    for number in range(20):
        rows.put("insert", row_of(rng, number) | {"tenant": number % 4})
    lake, _ = copied(tmp_path, rows)
    before = {each.path for each in listed_files(tmp_path)}
    moved = rows.put("update_postimage", rows.rows[(5,)] | {"tenant": 3, "v": "new"})
    lake.apply(COPY, rows.as_changes([moved]), rows.seq + 1, {})
    check(lake, rows)
    after = {each.path for each in listed_files(tmp_path)}
    assert len(before & after) == 3  # the other partitions
    delta = DeltaTable(str(tmp_path))
    feed = pa.table(delta.load_cdf(starting_version=delta.version()).read_all())
    found = {(r["_change_type"], r["id"], int(r["tenant"])) for r in feed.to_pylist()}
    assert found == {("update_preimage", 5, 1), ("update_postimage", 5, 3)}
    gone = rows.change(
        "delete", {n: rows.rows[(5,)][n] for n in rows.data_schema.names}
    )
    del rows.rows[(5,)]
    lake.apply(COPY, rows.as_changes([gone]), rows.seq + 1, {})
    check(lake, rows)


def scanned(folder: Path) -> int:
    """Return how many files the last merge has read."""
    newest = DeltaTable(str(folder)).history(1)[0]
    assert newest["operation"] == "MERGE"
    return int(newest["operationMetrics"]["num_target_files_scanned"])


def test_what_a_merge_reads(tmp_path: Path, rng: random.Random) -> None:
    """Only partitions that have a changed row, although all have such keys."""
    rows = LakeRows(parted("tenant, month(at)", "delta"), rng)
    for number in range(60):
        rows.put("insert", row_of(rng, number) | {"tenant": number % 10, "at": None})
    lake, _ = copied(tmp_path, rows)
    assert len(listed_files(tmp_path)) == 10
    changes = [
        rows.put("update_postimage", rows.rows[(number,)] | {"v": "c"})
        for number in (13, 23)
    ]
    lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    assert scanned(tmp_path) == 1
    check(lake, rows)


def test_new_keys_between_others(tmp_path: Path, rng: random.Random) -> None:
    """Rows that no partition has are added, without a merge."""
    rows = LakeRows(parted("tenant", "delta"), rng)
    for number in range(0, 40, 2):
        rows.put("insert", row_of(rng, number) | {"tenant": number % 4})
    lake, _ = copied(tmp_path, rows)
    new = [rows.put("insert", row_of(rng, 7) | {"tenant": 2})]
    new.append(rows.change("delete", row_of(rng, 9)))
    lake.apply(COPY, rows.as_changes(new), rows.seq + 1, {})
    assert DeltaTable(str(tmp_path)).history(1)[0]["operation"] == "WRITE"
    check(lake, rows)


@pytest.mark.parametrize("key", [("tenant", "id"), ("id", "tenant"), ("tenant",)])
def test_partitions_by_the_key(
    tmp_path: Path, rng: random.Random, key: tuple[str, ...]
) -> None:
    """A column of the key as the partition: rows are found, and files put together."""
    columns = [("tenant", "int"), ("id", "int"), ("v", "varchar(20)")]
    rows = LakeRows(parted("tenant", "delta", key=key, columns=columns), rng)
    rows.random_changes(80)
    lake, _ = copied(tmp_path, rows)
    for _ in range(3):
        changes = rows.as_changes(rows.random_changes(30))
        lake.apply(COPY, changes, rows.seq + 1, {})
        check(lake, rows)
    done = lake.compact()
    if key == ("tenant",):  # each partition has one row
        assert done.files == 0
    check(lake, rows)


def test_files_stay_in_their_partition(tmp_path: Path, rng: random.Random) -> None:
    """Small files are put together by partition; no row changes."""
    rows = filled_rows(parted("bucket(4, id)", "delta"), rng, 20)
    lake, _ = copied(tmp_path, rows)
    for number in range(20, 32):
        new = [rows.put("insert", row_of(rng, number))]
        lake.apply(COPY, rows.as_changes(new), rows.seq + 1, {"n": str(number)})
    before = len(listed_files(tmp_path))
    done = lake.compact()
    assert done.files > done.made > 0
    after = listed_files(tmp_path)
    assert len(after) == before - done.files + done.made
    assert len({tuple(each.values.values()) for each in after}) == len(after)
    check(lake, rows)
    in_own_partition(tmp_path, lake)
    delta = DeltaTable(str(tmp_path))
    feed = delta.load_cdf(starting_version=delta.version()).read_all()
    assert len(pa.table(feed)) == 0
    assert lake.compact().files == 0
    assert lake.position()[1] == {"n": "31"}
    lake.vacuum(0.0)
    check(lake, rows)


def test_columns_change(tmp_path: Path, rng: random.Random) -> None:
    """Columns are added, and that of a partition is widened, with all rows in place."""
    columns = [("id", "int"), ("tenant", "int"), ("at", "datetime(6)")]
    table = parted("tenant, day(at)", "delta", columns=columns)
    rows = LakeRows(table, rng)
    for number in range(30):
        row = row_of(rng, number)
        rows.put("insert", {"id": number, "tenant": number % 3, "at": row["at"]})
    lake, _ = copied(tmp_path, rows)
    steps: list[Any] = [
        AddColumn("n", "int", "", None),
        WidenColumn("tenant", "bigint", ""),
    ]
    lake.evolve(COPY, steps[:1], rows.seq + 5, {})
    check(lake, rows)
    lake.evolve(COPY, steps[1:], rows.seq + 6, {})
    check(lake, rows)
    lake.evolve(COPY, [AddColumn("m", "int", "", "5")], rows.seq + 7, {})
    found = lake_rows(lake)
    assert {row["m"] for row in found} == {5}
    assert {row["at_day"] for row in found} >= {date(2026, 1, 1)}
    delta = DeltaTable(str(tmp_path))
    assert delta.metadata().partition_columns == ["tenant", "at_day"]
    assert "`tenant`" not in delta.metadata().configuration[
        "delta.dataSkippingStatsColumns"
    ]  # fmt: skip
