"""Two writers of an Iceberg table, and two tables of one name in a catalog."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

from fix_lake import (
    COPY,
    LakeRows,
    copied_rows,
    in_order,
    lake_rows,
    lake_table,
    opened,
    published,
    write_copy,
)
from pyiceberg.exceptions import CommitFailedException

from canal_server.mirror.lake.iceberg.iceberg_commit import (
    Change,
    Commit,
    Manifests,
    record,
)
from canal_server.mirror.lake.steps import AddColumn
from canal_server.mirror.state.lake_tables import (
    Applied,
    LakeTable,
    UnusableTableError,
    lake_schema,
)

if TYPE_CHECKING:
    import random
    from pathlib import Path

COLUMNS = [("id", "int"), ("n", "smallint"), ("v", "varchar(40)")]
PLAIN = lake_table(COLUMNS, ("id",), form="iceberg")
WEEKS_S = 30 * 86_400


def series(rng: random.Random, count: int) -> LakeRows:
    """Return rows with the ids from 0 on."""
    rows = LakeRows(PLAIN, rng)
    for number in range(count):
        rows.put("insert", {"id": number, "n": 1, "v": f"v{number}"})
    return rows


def in_catalog(folder: Path, catalog: Path) -> Any:
    """Open the table of a folder, in a catalog that several lakes may use."""
    options = {"type": "sql", "uri": f"sqlite:///{catalog}"}
    return opened(folder, PLAIN, catalog=options)


def publish(lake: LakeTable, folder: Path, rows: LakeRows) -> None:
    """Publish rows as a copy, in a folder."""
    files = write_copy(folder, copied_rows(rows))
    lake.publish(COPY, lake_schema(PLAIN), files, rows.seq + 1, {})


def test_a_path_that_is_spelled_in_another_way(
    tmp_path: Path, rng: random.Random
) -> None:
    """Files have the path in their names: nothing is deleted, and nothing written."""
    folder, rows = tmp_path / "lake", series(rng, 20)
    publish(in_catalog(folder, tmp_path / "c.db"), folder, rows)
    (tmp_path / "link").symlink_to(folder)
    for path in folder.rglob("*"):
        os.utime(path, (path.stat().st_mtime - WEEKS_S,) * 2)
    other = in_catalog(tmp_path / "link", tmp_path / "c.db")
    with pytest.raises(UnusableTableError, match=r"write lake\.path as it was"):
        other.vacuum(1)
    with pytest.raises(UnusableTableError, match="choose another folder"):
        other.apply(COPY, rows.as_changes([]), rows.seq + 9, {})
    lake = in_catalog(folder, tmp_path / "c.db")
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def test_another_lake_with_the_name(tmp_path: Path, rng: random.Random) -> None:
    """Its rows are not replaced by a copy of this one."""
    first, rows = tmp_path / "first", series(rng, 20)
    publish(in_catalog(first, tmp_path / "c.db"), first, rows)
    second = in_catalog(tmp_path / "second", tmp_path / "c.db")
    with pytest.raises(UnusableTableError, match="if another lake has this name"):
        publish(second, tmp_path / "second", series(rng, 3))
    lake = in_catalog(first, tmp_path / "c.db")
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def test_a_writer_that_was_away_for_long(tmp_path: Path, rng: random.Random) -> None:
    """The number of its version is free again, but is not used again."""
    rows = series(rng, 20)
    lake = published(tmp_path, rows)
    late: Any = opened(tmp_path, PLAIN)
    table = late.versions.catalog.load_table(("shop", "orders"))
    for number in range(40):  # more than there are old versions
        lake.apply(COPY, rows.as_changes([]), rows.seq + 10 + number, {})
    number = int(table.metadata_location.rpartition("/v")[2].split(".")[0])
    following = tmp_path / "metadata" / f"v{number + 1}.metadata.json"
    assert not following.exists()
    with pytest.raises(CommitFailedException, match="has a newer version"):
        table.catalog.commit_table(table, (), ())
    assert not following.exists()
    assert opened(tmp_path, PLAIN).applied(COPY) == rows.seq + 49


def test_a_position_after_a_newer_one(tmp_path: Path, rng: random.Random) -> None:
    """A catalog compares snapshots, and a position has none of its own."""
    folder, rows = tmp_path / "lake", series(rng, 20)
    lake = in_catalog(folder, tmp_path / "c.db")
    publish(lake, folder, rows)
    late = in_catalog(folder, tmp_path / "c.db")
    table = late.versions.catalog.load_table(late.versions.name)
    lake.apply(COPY, rows.as_changes([]), 90_000, {})
    with pytest.raises(CommitFailedException, match="has changed"):
        Commit(table, Manifests()).run(Change(), record(COPY, 1_500, {}))
    assert lake.applied(COPY) == 90_000


def test_each_version_has_its_columns(tmp_path: Path, rng: random.Random) -> None:
    """Also one that only has other columns: a comparison reads it by its number."""
    rows = series(rng, 20)
    lake = published(tmp_path, rows)
    before = lake.version()
    lake.evolve(COPY, [AddColumn("more", "int", "")], rows.seq + 9, {})
    after = lake.version()
    assert "more" not in lake.version_files(before).schema.names
    assert "more" in lake.version_files(after).schema.names
    assert len(list(lake.scan(["id", "more"], version=after))) > 0


def test_a_text_without_a_greater_one(tmp_path: Path, rng: random.Random) -> None:
    """Bounds of texts are cut; where there is no bound, a file just has none."""
    rows = series(rng, 5)
    lake = published(tmp_path, rows)
    text = "x" * 15 + "\ud7ff" + "y" * 5
    changes = [rows.put("insert", {"id": 50, "n": 1, "v": text})]
    assert lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {}) == Applied(1, 0)
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
