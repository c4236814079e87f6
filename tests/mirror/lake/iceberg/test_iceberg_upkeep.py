"""Upkeep of Iceberg tables: fewer files, fewer versions, the same rows."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

from fix_lake import (
    COPY,
    LakeRows,
    data_files,
    filled,
    iceberg_metadata,
    in_order,
    lake_rows,
    lake_table,
    opened,
    published,
)

from canal_server.mirror.lake.iceberg import iceberg_upkeep
from canal_server.mirror.state.lake_tables import Applied, Compacted

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.state.lake_tables import LakeTable

COLUMNS = [("id", "int"), ("v", "varchar(20)")]
PLAIN = lake_table(COLUMNS, ("id",), form="iceberg")
DAY_S = 86_400
NOTE = {"from": "stream", "batch": "7"}


def in_small_batches(lake: LakeTable, rows: LakeRows, count: int = 8) -> None:
    """Apply a few rows that are new, again and again."""
    for number in range(count):
        first = 1_000 + 10 * number
        ids = range(first, first + 10)
        changes = [rows.change("insert", {"id": n, "v": "a"}) for n in ids]
        lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, NOTE)


def make_older(path: Path, seconds: float) -> None:
    """Have all files look as if they had been written so long before."""
    at = time.time() - seconds
    for file in path.rglob("*"):
        if file.is_file():
            os.utime(file, (at, at))


def parquet(path: Path) -> set[str]:
    """Return all Parquet files of a table's folder."""
    return {each.name for each in path.rglob("*.parquet")}


@pytest.mark.parametrize("key", [("id",), ()])
def test_compact(tmp_path: Path, rng: random.Random, key: tuple[str, ...]) -> None:
    """Small files are merged; rows, position and note stay, and changes continue."""
    rows = LakeRows(lake_table(COLUMNS, key, form="iceberg"), rng)
    lake = published(tmp_path, rows)
    in_small_batches(lake, rows)
    before = in_order(lake_rows(lake))
    position = lake.position()
    assert lake.compact() == Compacted(8, 1)
    assert len(data_files(tmp_path, "iceberg")) == 1
    newest = iceberg_metadata(tmp_path)["snapshots"][-1]
    assert newest["summary"]["operation"] == "replace"  # readers of changes skip it
    assert in_order(lake_rows(lake)) == before
    assert lake.position() == position == (rows.seq + 1, NOTE)
    assert lake.compact() == Compacted()
    changes = rows.as_changes([rows.change("insert", {"id": 5_000, "v": "b"})])
    assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied(1, 0)
    assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied()


def test_vacuum(tmp_path: Path, rng: random.Random) -> None:
    """Files of old versions are deleted; rows, position and note stay."""
    rows = filled(PLAIN, rng)
    lake = published(tmp_path, rows)
    for _ in range(4):
        changes = rows.as_changes(rows.random_changes(30))
        lake.apply(COPY, changes, rows.seq + 1, NOTE)
    version, position = lake.version(), lake.position()
    assert lake.vacuum(24) == 0
    assert len(iceberg_metadata(tmp_path)["snapshots"]) == 5
    assert lake.vacuum(0) > 0
    assert [s["snapshot-id"] for s in iceberg_metadata(tmp_path)["snapshots"]] == [
        version
    ]
    left = {path.name for path in (tmp_path / "data").iterdir()}
    assert left == data_files(tmp_path, "iceberg")
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
    assert lake.position() == position
    assert lake.vacuum(0) == 0
    changes = rows.as_changes(rows.random_changes(5))
    lake.apply(COPY, changes, rows.seq + 1, {})
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def test_vacuum_keeps_a_copy_under_way(tmp_path: Path, rng: random.Random) -> None:
    """Files that no snapshot names stay for a week, whatever is kept else."""
    rows = filled(PLAIN, rng)
    lake = published(tmp_path, rows)
    copied = tmp_path / "copy-2.parquet"
    copied.write_bytes(b"rows")
    make_older(tmp_path, 6 * DAY_S)
    lake.vacuum(0)
    assert copied.exists()
    make_older(tmp_path, 8 * DAY_S)
    assert lake.vacuum(0) >= 1
    assert not copied.exists()
    assert parquet(tmp_path) == data_files(tmp_path, "iceberg")
    again = opened(tmp_path, PLAIN)
    assert in_order(lake_rows(again)) == in_order(rows.rows.values())


def test_snapshots_stay_few(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit writes them all, so some are forgotten: but not the oldest."""
    monkeypatch.setattr(iceberg_upkeep, "SNAPSHOTS_MAX", 8)
    monkeypatch.setattr(iceberg_upkeep, "NEWEST", 2)
    rows = filled(PLAIN, rng)
    lake = published(tmp_path, rows)
    first, before = lake.version(), in_order(lake_rows(lake))
    seen: list[Any] = []
    for _ in range(30):
        changes = [rows.put("insert", rows.new_row() | {"id": 500 + len(seen)})]
        lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
        seen.append(len(iceberg_metadata(tmp_path)["snapshots"]))
    assert max(seen) == 8
    assert min(seen[8:]) == 6
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
    make_older(tmp_path, 2 * DAY_S)
    lake.vacuum(24)
    assert in_order(lake_rows(lake, version=first)) == before


def test_too_much_for_the_memory(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such files are left as they are."""
    monkeypatch.setattr(iceberg_upkeep, "HELD_BYTES_MAX", 1)
    rows = filled(PLAIN, rng)
    lake = published(tmp_path, rows)
    in_small_batches(lake, rows, 3)
    assert lake.compact() == Compacted()
