"""What other engines read of Delta tables: the values that the mirror has."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from duckdb_reader import duckdb_with
from fix_lake import COPY, LakeRows, in_order, lake_rows, published, random_table
from fix_random import longer

from canal_server.mirror.lake.steps import AddColumn

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.state.lake_tables import LakeTable


def changed(folder: Path, rng: random.Random) -> LakeTable:
    """Return a random table that was copied, changed, and got a column."""
    rows = LakeRows(random_table(rng, "hard", "delta"), rng)
    print([(c.target, c.mysql_type, c.is_key) for c in rows.table.columns])
    rows.random_changes(60)
    lake = published(folder, rows)
    for _ in range(2):
        changes = rows.as_changes(rows.random_changes(30))
        lake.apply(COPY, changes, rows.seq + 1, {})
    lake.evolve(COPY, [AddColumn("n8", "tinyint", "", "5")], rows.seq + 2, {})
    return lake


def same(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows such that engines that name a zone differently agree."""
    return in_order(
        {
            name: value.replace(tzinfo=None) if isinstance(value, datetime) else value
            for name, value in row.items()
        }
        for row in rows
    )


@pytest.mark.parametrize("round_", range(longer(3)))
def test_duckdb(tmp_path: Path, rng: random.Random, round_: int) -> None:
    """Of all types, by DuckDB's extension."""
    table = tmp_path / "table"
    lake = changed(table, rng)
    with duckdb_with(tmp_path, "delta") as connection:
        connection.execute(f"SELECT * FROM delta_scan('{table}')")
        rows = connection.to_arrow_table().to_pylist()
    assert same(rows) == same(lake_rows(lake))


@pytest.mark.parametrize("round_", range(longer(3)))
def test_polars(tmp_path: Path, rng: random.Random, round_: int) -> None:
    """The same, by polars."""
    polars = pytest.importorskip("polars", reason="polars is not installed")
    lake = changed(tmp_path, rng)
    frame = polars.scan_delta(str(tmp_path))
    assert same(frame.collect().to_dicts()) == same(lake_rows(lake))
