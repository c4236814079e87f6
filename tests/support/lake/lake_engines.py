"""The rows of a table of the lake, as each engine reads them from its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from duckdb_reader import duckdb_with
from fix_lake import in_order
from fix_mirror_process import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from fix_spark_values import SparkValues

Rows = list[dict[str, Any]]


def rows_by_engine(
    folder: Path,
    form: str,
    scratch: Path,
    columns: Sequence[str] = (),
    spark: SparkValues | None = None,
) -> dict[str, Rows]:
    """Return some columns of all rows, or all columns, by the name of each engine.

    `scratch` is a folder for what an engine needs. Skips the test if an engine is not
    installed.
    """
    read = _iceberg if form == "iceberg" else _delta
    found = dict(read(folder, scratch))
    if spark is not None:
        found["Spark"] = spark.read(folder, form).to_pylist()
    return {
        engine: [{name: plain(row[name]) for name in columns or row} for row in rows]
        for engine, rows in found.items()
    }


def comparable(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return rows in a form in which equal ones compare equal, however UTC is named."""
    return in_order({name: plain(row[name]) for name in row} for row in rows)


def _delta(folder: Path, scratch: Path) -> Iterator[tuple[str, Rows]]:
    from deltalake import DeltaTable  # noqa: PLC0415  # an extra

    yield "delta-rs", DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    polars = pytest.importorskip("polars", reason="polars is not installed")
    yield "Polars", polars.scan_delta(str(folder)).collect().to_dicts()
    with duckdb_with(scratch, "delta") as connection:
        connection.execute(f"SELECT * FROM delta_scan('{folder}')")
        yield "DuckDB", connection.to_arrow_table().to_pylist()


def _iceberg(folder: Path, scratch: Path) -> Iterator[tuple[str, Rows]]:
    from pyiceberg.table import StaticTable  # noqa: PLC0415  # an extra

    table = StaticTable.from_metadata(str(folder))
    yield "pyiceberg", table.scan().to_arrow().to_pylist()
    polars = pytest.importorskip("polars", reason="polars is not installed")
    with pytest.MonkeyPatch.context() as patch:
        # Its own planner is a package of its own.
        patch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
        yield "Polars", polars.scan_iceberg(table).collect().to_dicts()
    with duckdb_with(scratch, "avro", "iceberg") as connection:
        connection.execute(f"SELECT * FROM iceberg_scan('{folder}')")
        yield "DuckDB", connection.to_arrow_table().to_pylist()
