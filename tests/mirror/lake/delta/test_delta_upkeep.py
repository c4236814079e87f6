"""Upkeep of Delta tables: fewer files, less history, the same rows and positions."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from fix_lake import COPY, LakeRows, filled, in_order, lake_rows, lake_table, published

from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.state.lake_tables import Applied, Compacted

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.state.lake_tables import LakeTable


PLAIN = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",))
DAY_S = 86_400
AGES = (
    ("remove", "deletionTimestamp"),
    ("add", "modificationTime"),
    ("commitInfo", "timestamp"),
)
NOTE = {"from": "stream", "batch": "7"}


def files(path: Path) -> pa.Table:
    """Return the files of the newest version, with their log entries."""
    return pa.table(DeltaTable(str(path)).get_add_actions(flatten=True))


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


@pytest.mark.parametrize("key", [("id",), ()])
def test_compact(tmp_path: Path, rng: random.Random, key: tuple[str, ...]) -> None:
    """Small files are merged; rows, position and note stay, and changes continue."""
    rows = LakeRows(lake_table([("id", "int"), ("v", "varchar(20)")], key), rng)
    lake = published(tmp_path, rows)
    in_small_batches(lake, rows)
    before = in_order(lake_rows(lake))
    position = lake.position()
    assert position == (rows.seq + 1, NOTE)
    done = lake.compact()
    assert done.files == 8
    assert len(files(tmp_path)) == done.made == 1
    assert in_order(lake_rows(lake)) == before
    assert lake.position() == position
    assert lake.applied(COPY) == position[0]
    assert lake.compact() == Compacted()
    new_rows = [rows.change("insert", {"id": 5_000, "v": "b"})]
    changes = rows.as_changes(new_rows)
    assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied(1, 0)
    assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied()


def test_compact_is_no_change(tmp_path: Path, rng: random.Random) -> None:
    """Readers of changes see nothing of files that are put together."""
    rows = LakeRows(PLAIN, rng)
    lake = published(tmp_path, rows)
    in_small_batches(lake, rows, 3)
    version = DeltaTable(str(tmp_path)).version()
    lake.compact()
    delta = DeltaTable(str(tmp_path))
    assert delta.version() == version + 1
    feed = pa.table(delta.load_cdf(starting_version=version + 1).read_all())
    assert len(feed) == 0


def test_vacuum(tmp_path: Path, rng: random.Random) -> None:
    """Old files and their log are deleted; current rows, position and note stay."""
    rows = filled(PLAIN, rng)
    lake = published(tmp_path, rows)
    for _ in range(4):
        changes = rows.as_changes(rows.random_changes(30))
        lake.apply(COPY, changes, rows.seq + 1, NOTE)
    position = lake.position()
    assert lake.vacuum(24) == 0
    make_older(tmp_path, 2 * DAY_S)
    parts = len(list(tmp_path.rglob("*.parquet")))
    assert lake.vacuum(0) > 0
    assert len(list(tmp_path.rglob("*.parquet"))) < parts
    assert not list((tmp_path / "_change_data").iterdir())
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
    for _ in range(2):
        assert lake.position() == position
        assert lake.applied(COPY) == position[0]
        lake.vacuum(0)


def test_vacuum_of_the_log(tmp_path: Path, rng: random.Random) -> None:
    """The log covers the readable versions, and still has the position."""
    rows = filled(PLAIN, rng)
    lake = published(tmp_path, rows)
    in_small_batches(lake, rows, 5)
    position = lake.position()
    before = in_order(lake_rows(lake))
    log = tmp_path / "_delta_log"
    make_older(log, 2 * DAY_S)
    lake.vacuum(24)
    assert not (log / f"{0:020}.json").exists()
    assert lake.position() == position
    assert in_order(lake_rows(lake)) == before
    changes = rows.as_changes(rows.random_changes(5))
    assert lake.apply(COPY, changes, rows.seq + 1, {}) != Applied()


def age_of_log(path: Path, seconds: float) -> None:
    """Have all that was done look as if it had been done so long before."""
    for file in (path / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            for kind, field in AGES:
                if kind in action:
                    action[kind][field] -= int(seconds * 1000)
        file.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    make_older(path / "_delta_log", seconds)


@pytest.mark.parametrize("count", [0, 60])
def test_versions_can_be_read_for_as_long_as_is_said(
    tmp_path: Path, rng: random.Random, count: int
) -> None:
    """Also if that is longer than Delta remembers removed files, and without rows."""
    rows = filled(PLAIN, rng, count)
    lake = published(tmp_path, rows, kept_hours=30 * 24)
    version = DeltaTable(str(tmp_path)).version()
    before = in_order(lake_rows(lake))
    for _ in range(3):
        changes = rows.as_changes(rows.random_changes(60))
        lake.apply(COPY, changes, rows.seq + 1, NOTE)
    make_older(tmp_path, 50 * DAY_S)  # as old are the files that went
    age_of_log(tmp_path, 8 * DAY_S)
    lake = DeltaLakeTable(str(tmp_path), PLAIN)
    for _ in range(2):  # the second run sees the checkpoint of the first
        lake.vacuum(30 * 24)
    assert in_order(lake_rows(lake, version=version)) == before


def test_another_time_for_versions(tmp_path: Path, rng: random.Random) -> None:
    """It counts from the next vacuum on."""
    lake = published(tmp_path, filled(PLAIN, rng))
    lake.vacuum(30 * 24)
    lake.vacuum(0.5)
    shown = DeltaTable(str(tmp_path)).metadata().configuration
    assert shown["delta.logRetentionDuration"] == "interval 1 hours"
    assert shown["delta.deletedFileRetentionDuration"] == "interval 1 hours"


def test_vacuum_keeps_a_copy_under_way(tmp_path: Path, rng: random.Random) -> None:
    """Files that no log names yet stay for a week, whatever is kept else."""
    lake = published(tmp_path, filled(PLAIN, rng))
    copied = tmp_path / "copy-2.parquet"
    copied.write_bytes(b"rows")
    make_older(tmp_path, 6 * DAY_S)
    lake.vacuum(0)
    assert copied.exists()
    make_older(tmp_path, 8 * DAY_S)
    assert lake.vacuum(0) == 1
    assert not copied.exists()
