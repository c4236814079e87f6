"""Partitioned tables with generated columns: copied, followed, killed, swapped.

In the end each engine reads the rows of the source, with the same values.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from fix_interop import SWITCH
from lake_engines import rows_by_engine
from schema_changes import cut_over, gh_ost, run

if TYPE_CHECKING:
    from pathlib import Path

    from fix_mirror_process import MirrorProcess
    from fix_spark_values import SparkValues

pytest.importorskip("polars", reason="polars is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(0)]

TABLE = """CREATE TABLE {} (
  id INT PRIMARY KEY, tenant INT, region VARCHAR(20), made DATETIME(3),
  price DECIMAL(9,2), n INT,
  total DECIMAL(20,2) GENERATED ALWAYS AS (price * n) STORED,
  label VARCHAR(60) GENERATED ALWAYS AS (CONCAT(region, '/', n)) VIRTUAL
)"""
COLUMNS = ("id", "tenant", "region", "made", "price", "n")
FILL = f"""INSERT INTO {{}} ({", ".join(COLUMNS)}) WITH RECURSIVE s AS
  (SELECT {{}} i UNION ALL SELECT i + 1 FROM s WHERE i < {{}}) SELECT i, i % 3,
  ELT(1 + i % 4, 'São Paulo', '', 'a/b=c', NULL),
  '2026-11-28 22:00:00.125' + INTERVAL i % 90 HOUR, i / 7, i % 11 FROM s"""
BY = ["tenant", "region", "day(made)", "bucket(2, id)"]
DERIVED = ("region_part", "made_day", "id_bucket")  # columns of a Delta table only


def changes(mirror: MirrorProcess, number: int) -> None:
    """Insert, update and delete rows; some get into another partition."""
    first = 1000 * number
    run(
        mirror,
        FILL.format("orders", first, first + 40),
        f"UPDATE orders SET tenant = tenant + 1 WHERE id % 9 = {number % 9}",
        f"UPDATE orders SET region = 'Nord', made = NULL WHERE id % 17 = {number}",
        f"UPDATE orders SET price = price + {number}, n = n + 1 WHERE id % 5 = 0",
        f"UPDATE orders SET id = id + 500 WHERE id = {first + 7}",
        f"DELETE FROM orders WHERE id % 13 = {number}",
    )


def follows(mirror: MirrorProcess) -> bool:
    """Check whether the table follows the stream."""
    return mirror.phase_of("orders")[0] == "following"


def agree(mirror: MirrorProcess) -> None:
    """Wait until the lake has the rows of the source."""

    def agrees() -> bool:
        found = mirror.lake("orders", "id")
        for row in found.values():
            for name in DERIVED:
                row.pop(name, None)
        return found == mirror.truth("orders", "id")

    mirror.wait_for(agrees, "the rows of the source")


def check_engines(
    mirror: MirrorProcess, form: str, scratch: Path, spark: SparkValues | None
) -> None:
    """Compare what each engine reads with the source."""
    truth = mirror.truth("orders", "id")
    columns = list(next(iter(truth.values())))
    folder = mirror.path / mirror.pipeline.schema / "orders"
    for engine, rows in rows_by_engine(folder, form, scratch, columns, spark).items():
        assert len(rows) == len(truth), engine
        assert {(row["id"],): row for row in rows} == truth, engine


def test_partitioned(
    mirror: Any, form: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Changes while it runs and after kills, another copy, and a swap as gh-ost's."""
    spark = None
    if SWITCH in os.environ:
        spark = request.getfixturevalue("spark_values")
    (rule,) = mirror.settings["tables"]
    rule |= {"partition_by": BY, "format": form}
    run(mirror, TABLE.format("orders"), FILL.format("orders", 1, 300))
    mirror.start()
    mirror.wait_for(lambda: follows(mirror), "the table")
    changes(mirror, 1)
    agree(mirror)
    changes(mirror, 2)
    mirror.kill()
    changes(mirror, 3)
    mirror.start(wait=False)
    agree(mirror)
    done = mirror.command("copy", f"{mirror.pipeline.schema}.orders")
    assert done.returncode == 0, done.stderr
    changes(mirror, 4)
    mirror.wait_for(
        lambda: mirror.state("orders")["copies"] == 2 and follows(mirror), "the copy"
    )
    agree(mirror)
    alter, columns = "add column more int not null default 5", ", ".join(COLUMNS)
    for statement in gh_ost(mirror, alter, columns):
        run(mirror, statement)
    changes(mirror, 5)
    cut_over(mirror, columns)
    changes(mirror, 6)
    agree(mirror)
    if form == "delta":
        assert mirror.state("orders")["copies"] == 3  # of them one by the swap
    found = mirror.command("verify")
    assert found.returncode == 0, found.stdout + found.stderr
    mirror.stop()
    check_engines(mirror, form, tmp_path, spark)
