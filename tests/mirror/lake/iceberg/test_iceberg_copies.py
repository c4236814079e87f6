"""Rows of another Iceberg table, whose columns have other ids, become a table's."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

from fix_lake import (
    COPY,
    LakeRows,
    copied_rows,
    data_files,
    identity,
    in_order,
    lake_rows,
    lake_table,
    opened,
    published,
    write_copy,
)
from pyiceberg.table import StaticTable

from canal_server.errors import LakeError
from canal_server.mirror.lake import copy_difference
from canal_server.mirror.lake.iceberg.iceberg import IcebergLakeTable
from canal_server.mirror.lake.keyless import row_hashes
from canal_server.mirror.lake.lake_table import HASH, lake_schema
from canal_server.mirror.lake.steps import (
    AddColumn,
    DropColumn,
    RenameColumn,
    WidenColumn,
)
from canal_server.mirror.settings.table_values import LakePartition

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from canal_server.mirror.lake.lake_table import LakeTable
    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.settings.table_values import CopiedFile, MirrorTable

COLUMNS = [("id", "int"), ("v", "varchar(20)"), ("n", "bigint")]
PLAIN = lake_table(COLUMNS, ("id",), form="iceberg")
KEYLESS = lake_table(COLUMNS, (), form="iceberg")
SCHEMA_CHANGE: list[Step] = [
    DropColumn("gone"),
    RenameColumn("w", "v"),
    AddColumn("n", "bigint", "", "7"),
]


def rows_of(table: MirrorTable, rng: random.Random, count: int) -> LakeRows:
    """Return rows with the ids from 0 on."""
    rows = LakeRows(table, rng)
    for number in range(count):
        row = {c.target: 5 if c.mysql_type != "varchar(20)" else f"v{number}"
               for c in table.columns}  # fmt: skip
        rows.put("insert", row | {"id": number})
        if table.is_keyless:
            rows.rows[number] = rows.rows.pop(())
    return rows


def hashed(folder: Path, rows: LakeRows) -> LakeTable:
    """Publish rows as a copy; those without a key have hashes."""
    table = copied_rows(rows)
    if rows.table.is_keyless:
        values = table.select([c.target for c in rows.table.columns])
        index = table.schema.get_field_index(HASH.name)
        table = table.set_column(index, HASH, row_hashes(values))
    lake, files = opened(folder, rows.table), write_copy(folder, table)
    lake.publish(COPY, lake_schema(rows.table), files, rows.seq + 1, {})
    return lake


def other_table(folder: Path, rng: random.Random, table: MirrorTable) -> LakeTable:
    """Return one that has come to the same columns in another way."""
    before = [("id", "int"), ("gone", "int"), ("w", "varchar(20)")]
    made = lake_table(before, table.key, form="iceberg")
    lake = hashed(folder, rows_of(made, rng, 40))
    lake.evolve(COPY, SCHEMA_CHANGE, 90_000, {})
    rows = LakeRows(replace(table, partitions=()), rng, 90_001)
    new = rows.put("insert", {"id": 100, "n": 8, "v": "new"})
    lake.use_definition(rows.table)
    lake.apply(COPY, rows.as_changes([new]), rows.seq + 1, {})
    return lake


def taken(source: Path, lake: LakeTable, target: Path) -> list[CopiedFile]:
    """Have the files of one table in the folder of another."""
    assert isinstance(lake, IcebergLakeTable)
    found = []
    for number, file in enumerate(lake.files()):
        path = f"copy-{number}.zstd.parquet"
        os.link(source / file.path, target / path)
        found.append(replace(file, path=path))
    return found


def own(lake: LakeTable, names: Sequence[str] = ("id", "n", "v")) -> list[str]:
    """Return the values of some columns."""
    return in_order({name: row[name] for name in names} for row in lake_rows(lake))


@pytest.mark.parametrize("differing", [0, 1000])
@pytest.mark.parametrize("table", [PLAIN, KEYLESS], ids=["key", "keyless"])
@pytest.mark.parametrize("partitioned", [False, True])
def test_rows_of_another_table(  # noqa: PLR0917  # what pytest gives
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    differing: int,
    table: MirrorTable,
    partitioned: bool,
) -> None:
    """Columns are found by their names there, whatever their ids and names in files.

    Whether only the difference is written or all files, and in partitions, too.
    """
    monkeypatch.setattr(copy_difference, "ROWS_MAX", differing)
    other = other_table(tmp_path / "other", rng, table)
    if partitioned:
        parts = (LakePartition("bucket", "id", 3),)
        table = replace(table, partitions=parts)
    folder = tmp_path / "table"
    lake = hashed(folder, rows_of(table, rng, 30))
    before = identity(folder, "iceberg")
    schema = other.arrow_schema()
    assert schema is not None
    files = taken(tmp_path / "other", other, folder)
    done = lake.publish("copy-2", schema, files, 95_000, {})
    assert own(lake) == own(other)
    static = StaticTable.from_metadata(str(folder)).scan().to_arrow()
    assert in_order(static.select(["id", "n", "v"]).to_pylist()) == own(other)
    assert identity(folder, "iceberg") == before
    assert (done is None) == (differing == 0)
    assert not list(folder.glob("copy-*.parquet"))  # they had other ids


def test_files_with_the_same_ids(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not written again; those with a dropped column are.

    Its id is that of the next column of the table that gets the rows.
    """
    monkeypatch.setattr(copy_difference, "ROWS_MAX", 0)
    folder = tmp_path / "table"
    lake = published(folder, rows_of(PLAIN, rng, 3))
    plain = published(tmp_path / "plain", rows_of(PLAIN, rng, 60))
    schema = plain.arrow_schema()
    assert schema is not None
    files = taken(tmp_path / "plain", plain, folder)
    lake.publish("copy-2", schema, files, 95_000, {})
    assert data_files(folder, "iceberg") == {each.path for each in files}
    plain.evolve(COPY, [AddColumn("x", "int", "")], 90_000, {})
    wide = LakeRows(lake_table([*COLUMNS, ("x", "int")], ("id",), form="iceberg"), rng)
    wide.seq = 90_001
    new = wide.put("insert", {"id": 70, "n": 1, "v": "a", "x": 5})
    plain.use_definition(wide.table)
    plain.apply(COPY, wide.as_changes([new]), wide.seq + 1, {})
    plain.evolve(COPY, [DropColumn("x")], 99_000, {})
    for each in folder.glob("copy-*.parquet"):
        each.rename(each.with_suffix(".old"))
    files = taken(tmp_path / "plain", plain, folder)
    lake.publish("copy-3", schema, files, 99_001, {})
    assert len(data_files(folder, "iceberg") - {each.path for each in files}) == 1
    lake.evolve("copy-3", [AddColumn("y", "int", "")], 99_002, {})
    assert {row["y"] for row in lake_rows(lake)} == {None}
    assert own(lake) == own(plain)


def test_a_wider_type(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files with the narrower one are read as they are in their own table."""
    monkeypatch.setattr(copy_difference, "ROWS_MAX", 0)
    narrow = lake_table([("id", "int"), ("n", "smallint")], ("id",), form="iceberg")
    wide = lake_table([("id", "int"), ("n", "bigint")], ("id",), form="iceberg")
    other = published(tmp_path / "other", rows_of(narrow, rng, 20))
    other.evolve(COPY, [WidenColumn("n", "bigint", "")], 90_000, {})
    lake = published(tmp_path / "table", rows_of(wide, rng, 5))
    schema = other.arrow_schema()
    assert schema is not None
    files = taken(tmp_path / "other", other, tmp_path / "table")
    lake.publish("copy-2", schema, files, 95_000, {})
    assert own(lake, ["id", "n"]) == own(other, ["id", "n"])


def test_a_file_of_another_folder(tmp_path: Path, rng: random.Random) -> None:
    """The error names the file, which another writer has added."""
    lake = published(tmp_path / "table", rows_of(PLAIN, rng, 20))
    assert isinstance(lake, IcebergLakeTable)
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), foreign)
    lake.versions.existing().add_files([str(foreign)])
    with pytest.raises(LakeError, match=r"foreign\.parquet is in another folder"):
        lake.files()
