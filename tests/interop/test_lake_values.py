"""All engines see the same values in tables of all types; Spark by its connectors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from fix_interop import SWITCH
from fix_lake import COPY, LakeRows, lake_rows, published, random_table
from fix_random import longer
from lake_engines import comparable, rows_by_engine
from mirror_scene import MirrorScene
from mirror_writes import MirrorLoad

from canal_server.mirror.lake.steps import AddColumn

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from fix_spark_values import SparkValues

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(0),
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"{SWITCH}=1 runs it"),
]

DDL_SHARE = 0.02  # of the first writer's transactions


def test_random_tables(
    form: str, spark_values: SparkValues, tmp_path: Path, rng: random.Random
) -> None:
    """Spark reads a table that was copied, changed, and got a column."""
    for number in range(longer(3)):
        folder = tmp_path / f"table{number}"
        deletes = rng.choice(("hard", "soft")) if number else "soft"
        rows = LakeRows(random_table(rng, deletes, form), rng)
        print([(c.target, c.mysql_type, c.is_key) for c in rows.table.columns])
        rows.random_changes(60)
        lake = published(folder, rows)
        for _ in range(2):
            changes = rows.as_changes(rows.random_changes(30))
            lake.apply(COPY, changes, rows.seq + 1, {})
        lake.evolve(COPY, [AddColumn("n8", "tinyint", "", "5")], rows.seq + 2, {})
        found = spark_values.read(folder, form).to_pylist()
        names = lake.readers_names()
        shown = (dict(zip(names, r.values(), strict=True)) for r in lake_rows(lake))
        assert comparable(found) == comparable(shown)


def test_random_schema(
    mirror: Any,
    form: str,
    spark_values: SparkValues,
    tmp_path: Path,
    rng: random.Random,
) -> None:
    """Each engine reads each table of a mirror, and `verify` finds the source's rows.

    The tables have all types, with a key and without, and change during the load.
    """
    mirror.settings["lake"] |= {"format": form}
    schema = mirror.pipeline.schema
    load = MirrorLoad(mirror.source, schema, rng, statements=DDL_SHARE)
    load.write(100)
    scene = MirrorScene(mirror, load, rng)
    mirror.start()
    with load:
        enough = load.commits + longer(200)
        mirror.wait_for(lambda: load.commits >= enough or not load.is_well, "writing")
    tables = scene.settle()
    scene.verify(tables)
    mirror.stop()
    for table in sorted(tables):
        folder = mirror.path / schema / table
        found = rows_by_engine(folder, form, tmp_path, spark=spark_values)
        engines = {engine: comparable(rows) for engine, rows in found.items()}
        first = next(iter(engines.values()))
        print(f"{table}: {len(first)} rows, {len(found)} engines")
        for engine, rows in engines.items():
            assert rows == first, f"{engine} of {table}"
