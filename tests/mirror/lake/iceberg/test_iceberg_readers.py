"""What other engines read of Iceberg tables: the values that the mirror has."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

from duckdb_reader import duckdb_with
from fix_lake import (
    COPY,
    LakeRows,
    in_order,
    lake_rows,
    lake_table,
    published,
    random_table,
)
from fix_random import longer
from pyiceberg.table import StaticTable

from canal_server.mirror.lake.steps import AddColumn, RenameColumn

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.state.lake_tables import LakeTable


def changed(folder: Path, rng: random.Random, deletes: str) -> LakeTable:
    """Return a random table that was copied, altered and changed."""
    rows = LakeRows(random_table(rng, deletes, "iceberg"), rng)
    print([(c.target, c.mysql_type, c.is_key) for c in rows.table.columns])
    rows.random_changes(60)
    lake = published(folder, rows)
    for _ in range(2):
        changes = rows.as_changes(rows.random_changes(30))
        lake.apply(COPY, changes, rows.seq + 1, {})
    other = next(c.target for c in rows.table.columns if not c.is_key)
    steps: list[Step] = [
        RenameColumn(other, "renamed"),
        AddColumn("n8", "tinyint", "", "5"),
    ]
    lake.evolve(COPY, [*steps, AddColumn(other, "int", "")], rows.seq + 2, {})
    return lake


def shown(lake: LakeTable) -> list[dict[str, Any]]:
    """Return the rows of a table with the names of readers."""
    names = lake.readers_names()
    return [dict(zip(names, row.values(), strict=True)) for row in lake_rows(lake)]


def same(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows such that engines that name a zone differently agree."""
    return in_order(
        {
            name: value.replace(tzinfo=None) if isinstance(value, datetime) else value
            for name, value in row.items()
        }
        for row in rows
    )


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("round_", range(longer(3)))
def test_pyiceberg(
    tmp_path: Path, rng: random.Random, deletes: str, round_: int
) -> None:
    """Of all types, from a table that is opened by its folder."""
    lake = changed(tmp_path, rng, deletes)
    rows = StaticTable.from_metadata(str(tmp_path)).scan().to_arrow().to_pylist()
    assert same(rows) == same(shown(lake))


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("round_", range(longer(3)))
def test_polars(
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    deletes: str,
    round_: int,
) -> None:
    """The same, by polars' own reader of Parquet files."""
    polars = pytest.importorskip("polars", reason="polars is not installed")
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    lake = changed(tmp_path, rng, deletes)
    frame = polars.scan_iceberg(StaticTable.from_metadata(str(tmp_path)))
    assert same(frame.collect().to_dicts()) == same(shown(lake))


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("round_", range(longer(3)))
def test_duckdb(tmp_path: Path, rng: random.Random, deletes: str, round_: int) -> None:
    """The same, by DuckDB's extension, from the folder alone."""
    table = tmp_path / "table"
    lake = changed(table, rng, deletes)
    with duckdb_with(tmp_path, "avro", "iceberg") as connection:
        connection.execute(f"SELECT * FROM iceberg_scan('{table}')")
        rows = connection.to_arrow_table().to_pylist()
    assert same(rows) == same(shown(lake))


def test_rows_that_are_marked_as_deleted(tmp_path: Path, rng: random.Random) -> None:
    """Readers filter by `_is_deleted`, as Iceberg reserves the name `_deleted`."""
    rows = LakeRows(lake_table([("id", "int")], ("id",), "soft", "iceberg"), rng)
    for number in range(4):
        rows.put("insert", {"id": number})
    table = tmp_path / "table"
    lake = published(table, rows)
    changes = rows.as_changes([rows.change("delete", {"id": 2})])
    lake.apply(COPY, changes, rows.seq + 1, {})
    whole = StaticTable.from_metadata(str(table))
    for condition, ids in (("true", [2]), ("false", [0, 1, 3])):
        found = whole.scan(row_filter=f"_is_deleted = {condition}").to_arrow()
        assert sorted(found["id"].to_pylist()) == ids
    with duckdb_with(tmp_path, "avro", "iceberg") as connection:
        query = f"SELECT id FROM iceberg_scan('{table}') WHERE NOT _is_deleted"
        live = connection.execute(f"{query} ORDER BY id").fetchall()
    assert live == [(0,), (1,), (3,)]
