"""Files of a table with a key: which are put together, and in what order."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from fix_lake import COPY, LakeRows, in_order, lake_rows, lake_table, published

from canal_server.mirror.lake.conditions import Where, Within
from canal_server.mirror.lake.delta import delta_order
from canal_server.mirror.lake.file_groups import KeyedFile, groups

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.state.lake_tables import LakeTable

PLAIN = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",))
SIZE = 100


def file(least: int, greatest: int, size: int = SIZE, rows: int = 10) -> KeyedFile:
    """Return a file of keys between two."""
    return KeyedFile(least, greatest, f"{least}-{greatest}", size, rows)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        # In order, and large enough.
        ([(1, 3), (4, 6), (7, 9)], []),
        # A common value is not an overlap: the next column of the key separates them.
        ([(1, 5), (5, 5), (5, 5), (5, 9)], []),
        # Overlapping files, also through a third one; neighbours stay.
        ([(1, 3), (4, 9), (5, 6), (8, 12), (13, 20)], [["4-9", "5-6", "8-12"]]),
        (
            [(1, 4), (2, 6), (7, 8), (9, 12), (10, 11)],
            [["9-12", "10-11"], ["1-4", "2-6"]],
        ),
        # Small files with their neighbours, but not across a large one.
        ([(1, 2, 9), (3, 4, 9), (5, 6), (7, 8, 9)], [["3-4", "1-2"]]),
        ([(1, 2, 9), (3, 6), (4, 7)], [["3-6", "4-7", "1-2"]]),
        # Too many: of those that overlap only the small ones.
        (
            [(1, 5, SIZE, 600_000), (2, 6, SIZE, 600_000), (3, 4, 9), (3, 3, 9)],
            [["3-3", "3-4"]],
        ),
        # The newest first; older ones have to wait.
        (
            [(n, n + 1, SIZE, 300_000) for n in range(1, 9, 4)]
            + [(n, n + 2, SIZE, 300_000) for n in range(1, 9, 4)],
            [["5-6", "5-7"]],
        ),
    ],
)  # fmt: skip
def test_what_is_put_together(files, expected) -> None:
    """Files that overlap, or are small, within what is written at once."""
    found = groups([file(*each) for each in files], SIZE)
    assert [[each.path for each in group] for group in found] == expected


def ranges(path: Path) -> list[tuple[int, int]]:
    """Return the least and the greatest key of each file."""
    shown = pa.table(DeltaTable(str(path)).get_add_actions(flatten=True))
    return sorted(
        zip(shown["min.id"].to_pylist(), shown["max.id"].to_pylist(), strict=True)
    )


def changes(ids: list[int], value: str, seq: int) -> pa.Table:
    """Return updates of rows, or what makes them."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    count = len(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "v": pa.array([value] * count),
            "_change_type": pa.array(["update_postimage"] * count),
            "_seq": pa.array([seq] * count, pa.int64()),
            "_row": pa.array(range(count), pa.int32()),
            "_commit_timestamp": pa.array([at] * count, pa.timestamp("us", "UTC")),
        }
    )


def all_rows(lake: LakeTable) -> pa.Table:
    """Return the rows in the order of their keys."""
    return pa.Table.from_batches(lake.scan()).sort_by("id").combine_chunks()


def mixed(path: Path, rng: random.Random) -> LakeTable:
    """Return a table of several files, of which merges have mixed the newest."""
    rows = LakeRows(PLAIN, rng)
    lake = published(path, rows)
    seq = rows.seq + 10
    for first in range(0, 48_000, 12_000):
        ids = list(range(first, first + 12_000))
        lake.apply(COPY, changes(ids, "a", seq), seq + 1, {})
        seq += 10
    size = pa.table(DeltaTable(str(path)).get_add_actions(flatten=True))["size_bytes"]
    DeltaTable(str(path)).alter.set_table_properties(
        {"delta.targetFileSize": str(min(size.to_pylist()))}
    )
    for _ in range(3):
        ids = sorted(rng.sample(range(24_000, 48_000), 50))
        lake.apply(COPY, changes(ids, "b", seq), seq + 1, {"n": str(seq)})
        seq += 10
    return lake


def test_keys_are_sorted_out(tmp_path: Path, rng: random.Random) -> None:
    """Merges of the newest keys touch few files again; all rows are what they were."""
    lake = mixed(tmp_path, rng)
    before, position = all_rows(lake), lake.position()
    version = DeltaTable(str(tmp_path)).version()
    done = lake.compact()
    assert done.files
    found = ranges(tmp_path)
    assert found[:2] == [(0, 11_999), (12_000, 23_999)]
    assert found[-1][1] == 47_999
    for left, right in pairwise(found):
        assert left[1] < right[0]
    assert all_rows(lake) == before
    assert lake.position() == position
    delta = DeltaTable(str(tmp_path))
    assert delta.version() == version + 1
    feed = delta.load_cdf(starting_version=version + 1).read_all()
    assert len(pa.table(feed)) == 0
    assert lake.compact().files == 0

    rewritten = {each for each in ranges(tmp_path) if each[0] >= 24_000}
    lake.apply(COPY, changes([47_999], "c", 9_000), 9_001, {})
    assert len(rewritten - set(ranges(tmp_path))) <= 1
    assert len(all_rows(lake)) == 48_000


def test_what_takes_too_much_memory(
    tmp_path: Path, rng: random.Random, monkeypatch
) -> None:
    """Small files are put together all the same, in the order in which they are."""
    lake = mixed(tmp_path, rng)
    before = all_rows(lake)
    DeltaTable(str(tmp_path)).alter.set_table_properties(
        {"delta.targetFileSize": str(1 << 20)}
    )
    monkeypatch.setattr(delta_order, "HELD_BYTES_MAX", 1)
    assert lake.compact().made == 1
    assert all_rows(lake) == before


def test_statistics_are_true(tmp_path: Path, rng: random.Random) -> None:
    """Whatever the types are, a condition finds the rows that are there."""
    columns = [("id", "bigint unsigned"), ("k", "varchar(20)"), ("d", "decimal(38,10)"),
               ("t", "datetime(6)")]  # fmt: skip
    rows = LakeRows(lake_table(columns, ("k", "id")), rng)
    lake = published(tmp_path, rows)
    for number in range(60):
        new_rows = [
            rows.put("insert", rows.new_row() | {"k": f"{number % 7} {number}"})
        ]
        lake.apply(COPY, rows.as_changes(new_rows), rows.seq + 1, {})
    assert lake.compact().files
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
    for row in list(rows.rows.values())[:20]:
        where = Where((Within("k", row["k"], row["k"]),))
        found = lake_rows(lake, where=where)
        assert row["id"] in [each["id"] for each in found]
