"""Tables of the lake with partitions, from the first copy to another rule.

CANAL_INTEROP=1 also reads Delta tables by Spark's own connector.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from duckdb_reader import duckdb_with
from fix_interop import SWITCH
from fix_mirror_process import by_key, plain
from schema_changes import cut_over, gh_ost, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fix_mirror_process import MirrorProcess

    Rows = dict[tuple[object, ...], dict[str, Any]]

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(0)]

COLUMNS = "id, tenant, region, made"
TABLE = (
    "CREATE TABLE {} (id INT {}, tenant INT, region VARCHAR(20), made DATETIME NULL)"
)
FILL = (
    f"INSERT INTO {{}} ({COLUMNS}) WITH RECURSIVE i AS (SELECT 1 i UNION ALL SELECT "
    "i + 1 FROM i WHERE i < 400) SELECT i, NULLIF(i % 4, 3), ELT(1 + i % 4, 'EU', "
    "'São Paulo/1', '', NULL), '2026-01-01' + INTERVAL i % 90 DAY FROM i"
)
BY = {"orders": ["tenant", "month(made)"], "bag": ["region"]}
KEYS: dict[str, tuple[str, ...]] = {"orders": ("id",), "bag": ()}
# Rows that move to other partitions, to those of NULL, and to new ones.
CHANGES = (
    "UPDATE {} SET tenant = 9, made = made + INTERVAL 1 MONTH WHERE id % 5 = 1",
    "UPDATE {} SET region = 'US', tenant = NULL WHERE id % 7 = 2",
    "UPDATE {} SET made = NULL WHERE id % 11 = 3",
    "DELETE FROM {} WHERE id % 10 = 4",
    f"INSERT INTO {{}} ({COLUMNS}) VALUES (1001, 77, '~/%', '2030-12-31 23:59:59')",
    f"INSERT INTO {{}} ({COLUMNS}) VALUES (-5, NULL, NULL, NULL)",
)


class Lake:
    """The lake of a mirror, read by every engine that there is."""

    def __init__(self, mirror: MirrorProcess, form: str, spark: Any) -> None:
        self.mirror = mirror
        self.form = form
        self._spark = spark
        self._reads = 0

    def folder(self, table: str) -> Path:
        """Return the folder of a table."""
        return self.mirror.path / self.mirror.pipeline.schema / table

    def rows(self, table: str) -> Rows:
        """Return the rows that the mirror's own library reads."""
        reader = self._iceberg if self.form == "iceberg" else self._delta
        if not self.folder(table).exists():
            return {}
        return own(reader(table), KEYS[table])

    def agree(self) -> None:
        """Wait until the tables are in the lake as they are in the database."""
        for table, key in KEYS.items():
            self.mirror.wait_for(
                lambda t=table, k=key: self.rows(t) == self.mirror.truth(t, *k), table
            )

    def check_engines(self, folder: Path) -> None:
        """Compare what engines read with the database, while nothing changes."""
        for table, key in KEYS.items():
            truth = self.mirror.truth(table, *key)
            for name, read in self._engines():
                assert own(read(table, folder), key) == truth, (name, table)

    def _engines(self) -> Iterator[tuple[str, Callable[[str, Path], Any]]]:
        yield "DuckDB", self._duckdb
        yield "polars", self._polars
        if self._spark is not None and self.form == "delta":
            yield "Spark", self._by_spark

    def _delta(self, table: str) -> list[dict[str, Any]]:
        from deltalake import DeltaTable  # noqa: PLC0415  # an extra
        from deltalake.exceptions import TableNotFoundError  # noqa: PLC0415

        try:
            found = DeltaTable(str(self.folder(table)))
        except TableNotFoundError:
            return []
        return list(found.to_pyarrow_table().to_pylist())

    def _iceberg(self, table: str) -> list[dict[str, Any]]:
        from pyiceberg.table import StaticTable  # noqa: PLC0415  # an extra

        if not (self.folder(table) / "metadata" / "version-hint.text").exists():
            return []
        found = StaticTable.from_metadata(str(self.folder(table))).scan().to_arrow()
        return list(found.to_pylist())

    def _duckdb(self, table: str, folder: Path) -> list[dict[str, Any]]:
        extensions = ("delta",) if self.form == "delta" else ("avro", "iceberg")
        with duckdb_with(folder, *extensions) as connection:
            path = self.folder(table)
            connection.execute(f"SELECT * FROM {self.form}_scan('{path}')")
            return list(connection.to_arrow_table().to_pylist())

    def _polars(self, table: str, _folder: Path) -> list[dict[str, Any]]:
        polars = pytest.importorskip("polars", reason="polars is not installed")
        if self.form == "delta":
            frame = polars.scan_delta(str(self.folder(table)))
        else:
            from pyiceberg.table import StaticTable  # noqa: PLC0415  # an extra

            frame = polars.scan_iceberg(
                StaticTable.from_metadata(str(self.folder(table)))
            )
        return list(frame.collect().to_dicts())

    def _by_spark(self, table: str, _folder: Path) -> list[dict[str, Any]]:
        self._reads += 1
        path, name = self.folder(table), f"{table}-{self._reads}"
        # A stream with a new checkpoint begins with the whole table.
        answer = self._spark.read(path, name, feed=False)
        assert not answer.get("error"), answer
        rows: list[dict[str, Any]] = answer["rows"]
        for row in rows:
            row["made"] = row["made"] and datetime.fromisoformat(row["made"])
        return rows


def own(rows: list[dict[str, Any]], key: tuple[str, ...]) -> Rows:
    """Return the columns of the database of rows."""
    names = COLUMNS.split(", ")
    return by_key([{name: plain(row[name]) for name in names} for row in rows], key)


def partitions(lake: Lake, table: str) -> list[str]:
    """Return the partition columns of a Delta table."""
    from deltalake import DeltaTable  # noqa: PLC0415  # an extra

    return list(DeltaTable(str(lake.folder(table))).metadata().partition_columns)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_partitioned_tables(
    mirror: MirrorProcess,
    form: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every engine reads the rows of the database, whatever happened to the tables.

    Rows move between partitions, tables are copied again, exchanged by gh-ost, and get
    other partitions, which keep a Delta table's identity.
    """
    if form == "iceberg":
        pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    spark = SWITCH in os.environ and form == "delta"
    streams = request.getfixturevalue("delta_streams") if spark else None
    lake = Lake(mirror, form, streams)
    schema = mirror.pipeline.schema
    rules = [
        {"match": rf"{schema}\.{table}", "partition_by": by} for table, by in BY.items()
    ]
    mirror.settings["lake"] |= {"format": form}
    mirror.settings["tables"] = rules
    for table, key in KEYS.items():
        run(mirror, TABLE.format(table, "PRIMARY KEY" if key else ""))
        run(mirror, FILL.format(table))
    mirror.start()
    lake.agree()
    for table in KEYS:
        run(mirror, *(each.format(table) for each in CHANGES))
    lake.agree()
    lake.check_engines(tmp_path)

    names = [f"{schema}.{table}" for table in KEYS]
    assert mirror.command("copy", *names).returncode == 0
    mirror.wait_for(
        lambda: all(mirror.state(table)["copies"] == 2 for table in KEYS), "copies"
    )
    lake.agree()
    mirror.kill()
    run(mirror, *(each.format("orders") for each in CHANGES[:4]))
    mirror.start()
    if form == "delta":
        for statement in gh_ost(mirror, "ADD INDEX (tenant)", COLUMNS):
            run(mirror, statement)
        run(mirror, "UPDATE orders SET tenant = tenant + 1 WHERE id % 3 = 1")
        cut_over(mirror, COLUMNS)
        run(mirror, "DROP TABLE IF EXISTS _orders_del")
        run(mirror, "UPDATE orders SET made = '2031-01-01' WHERE id % 9 = 1")
    lake.agree()
    assert mirror.process is not None
    log = "".join(mirror.process.log)
    assert "copied again" not in log
    swapped = f"{schema}.orders: got the rows of {schema}._orders_gho"
    assert (swapped in log) == (form == "delta")
    lake.check_engines(tmp_path)

    copies = mirror.state("orders")["copies"]
    mirror.stop()
    rules[0]["partition_by"] = ["bucket(4, id)"]
    mirror.start()
    mirror.wait_for(lambda: mirror.state("orders")["copies"] > copies, "another copy")
    lake.agree()
    if form == "delta":
        assert partitions(lake, "orders") == ["id_bucket"]
    done = mirror.command("verify", *names)
    assert done.returncode == 0, done.stdout + done.stderr
    lake.check_engines(tmp_path)
    run(mirror, "ALTER TABLE bag DROP region")
    mirror.wait_for(lambda: mirror.phase_of("bag")[0] == "stopped", "the stop")
    print(mirror.phase_of("bag"))
    assert "region" in mirror.phase_of("bag")[1]
    mirror.stop()
