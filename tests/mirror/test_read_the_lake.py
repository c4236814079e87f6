"""The examples of the page on reading the lake work as they are written."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")
pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

from duckdb_reader import duckdb_with
from fix_lake import COPY, LakeRows, lake_table, published
from pyiceberg.table import StaticTable
from support_paths import TESTS

from canal_server.mirror.lake.steps import AddColumn

if TYPE_CHECKING:
    import random
    from pathlib import Path

PAGE = (TESTS.parent / "docs/howto/read-the-lake.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SQL = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
CHANGES = 30


@pytest.fixture
def lake(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder that has the lake of the page."""
    monkeypatch.chdir(tmp_path)
    columns = [("id", "int"), ("status", "varchar(20)")]
    rows = LakeRows(lake_table(columns, ("id",), "hard"), rng)
    rows.random_changes(CHANGES)
    table = published(tmp_path / "lake/shop/orders", rows)
    table.apply(COPY, rows.as_changes(rows.random_changes(CHANGES)), rows.seq + 1, {})


def iceberg_items(folder: Path, rng: random.Random) -> tuple[StaticTable, list[int]]:
    """Make the Iceberg table of the page; returns how many rows each version has."""
    columns = [("id", "int"), ("status", "varchar(20)")]
    rows = LakeRows(lake_table(columns, ("id",), "hard", "iceberg"), rng)
    rows.random_changes(CHANGES)
    table = published(folder / "lake/shop/items", rows)
    counts = [len(rows.rows)]
    changes = rows.random_changes(CHANGES)
    table.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    counts.append(len(rows.rows))
    return StaticTable.from_metadata(str(folder / "lake/shop/items")), counts


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_python(
    code: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    rng: random.Random,
) -> None:
    """Each example reads the table and prints what it has."""
    if "polars" in code:
        pytest.importorskip("polars", reason="polars is not installed")
    if "pyiceberg" in code:
        iceberg_items(tmp_path, rng)
    exec(compile(code, "page", "exec"), {})
    assert capsys.readouterr().out


def test_the_changes_give_the_rows(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Applied as on the page, the change feed gives the rows, also after a DDL.

    That writes all rows again: all deletes and inserts are in one commit.
    """
    monkeypatch.chdir(tmp_path)
    columns = [("id", "int"), ("status", "varchar(20)")]
    rows = LakeRows(lake_table(columns, ("id",), "hard"), rng)
    rows.random_changes(CHANGES)
    rows.put("insert", {"id": 1000, "status": "new"})
    table = published(tmp_path / "lake/shop/orders", rows)
    table.apply(COPY, rows.as_changes(rows.random_changes(CHANGES)), rows.seq + 1, {})
    added = AddColumn("note", "varchar(9)", "utf8mb4", "none")
    table.evolve(COPY, [added], rows.seq + 2, {})
    (code,) = (code for code in PYTHON if "load_cdf" in code)
    found: dict[str, Any] = {}
    exec(compile(code, "page", "exec"), found)
    assert len({each["_commit_version"] for each in found["changes"]}) > 1
    assert found["copy"] == {key[0]: row["status"] for key, row in rows.rows.items()}


def test_earlier_snapshots(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines find the snapshots of an Iceberg table by id and time, as on the page."""
    items, counts = iceberg_items(tmp_path, rng)
    first, last = items.history()
    assert [len(items.scan(snapshot_id=each.snapshot_id).to_arrow())
            for each in (first, last)] == counts  # fmt: skip
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.scan_iceberg(items, snapshot_id=first.snapshot_id)
    assert frame.collect().height == counts[0]
    at = datetime.fromtimestamp((first.timestamp_ms + 1) / 1000, UTC).isoformat(" ")
    path = f"'{tmp_path}/lake/shop/items'"
    with duckdb_with(tmp_path, "avro", "iceberg") as connection:

        def count(table: str) -> int:
            found = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
            return int(found[0][0])

        assert count(f"iceberg_snapshots({path})") == 2
        by_id = f"snapshot_from_id => {first.snapshot_id}"
        assert count(f"iceberg_scan({path}, {by_id})") == counts[0]
        by_time = f"snapshot_from_timestamp => TIMESTAMP '{at[:23]}'"
        assert count(f"iceberg_scan({path}, {by_time})") == counts[0]


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("code", SQL, ids=range(len(SQL)))
def test_duckdb(code: str, tmp_path: Path) -> None:
    """Each example of DuckDB has rows."""
    with duckdb_with(tmp_path, "delta") as connection:
        statements = [part for part in code.split(";") if part.strip()]
        for statement in statements:
            if "INSTALL" not in statement:
                connection.execute(statement)
        assert connection.fetchall()
