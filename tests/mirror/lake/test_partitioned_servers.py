"""Partitioned tables of the lake with generated columns, from real servers.

Each engine reads the rows of the source, with the same values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")
pytest.importorskip("polars", reason="polars is not installed")

from fix_random import longer
from followed_tables import FollowedTables
from lake_engines import rows_by_engine

from canal_server.mirror.settings.lake_partitions import expressions_of
from canal_server.mirror.settings.mirror_settings import TableRule

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from fix_pipeline import Pipeline
    from servers import Server

TABLE = """CREATE TABLE orders (
  id INT PRIMARY KEY, tenant INT, region VARCHAR(20), made DATETIME(3),
  price DECIMAL(9,2), n INT,
  total DECIMAL(20,2) GENERATED ALWAYS AS (price * n) STORED,
  label VARCHAR(60) GENERATED ALWAYS AS (CONCAT(region, '/', n)) VIRTUAL
)"""
BY = "tenant, region, day(made), bucket(2, id)"
FILL = """INSERT INTO orders (id, tenant, region, made, price, n) WITH RECURSIVE s AS
  (SELECT {0} i UNION ALL SELECT i + 1 FROM s WHERE i < {0} + 39) SELECT i, i % 2,
  ELT(1 + i % 4, 'São Paulo', '', 'a/b=c', NULL),
  '2026-11-28 22:00:00.125' + INTERVAL i % 48 HOUR, i / 8, i % 11 FROM s"""


def changes(number: int) -> list[str]:
    """Insert, update and delete rows; some get into another partition."""
    first = 100 * number
    return [
        FILL.format(first),
        f"UPDATE orders SET tenant = 1 - tenant WHERE id % 9 = {number % 9}",
        f"UPDATE orders SET region = 'Nord', made = NULL WHERE id % 17 = {number}",
        f"UPDATE orders SET price = price + {number}, n = n + 1 WHERE id % 5 = 0",
        f"UPDATE orders SET id = id + 50 WHERE id = {first + 7}",
        f"DELETE FROM orders WHERE id % 13 = {number}",
    ]


@pytest.mark.timeout(0)
def test_partitioned(  # noqa: PLR0917  # fixtures
    source_server: Server,
    database: str,
    make_pipeline: Callable[..., Pipeline],
    tmp_path: Path,
    rng: random.Random,
    form: str,
) -> None:
    """Changes move rows between partitions, also if a process is killed meanwhile."""
    source_server.execute(f"USE {database}", TABLE)
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    rule = TableRule(match=".*", form=form, partition_by=expressions_of(BY))
    tables = FollowedTables(pipeline, tmp_path, ("orders",), rule)
    for number in range(1, 1 + longer(3)):
        source_server.execute(f"USE {database}", *changes(number))
        killed, done = rng.choice(("", "orders")), rng.random() < 0.5
        tables.follow(killed=killed, done=done)
        tables.check()
    truth = tables.truth("orders")
    columns = list(next(iter(truth.values())))
    found = rows_by_engine(tables.path("orders"), form, tmp_path, columns)
    for engine, rows in found.items():
        assert len(rows) == len(truth), engine
        assert {(row["id"],): row for row in rows} == truth, engine
    tables.close()
