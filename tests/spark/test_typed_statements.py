"""Statements that change the table of a typed stream while it is read.

Without Spark's JVM: what its driver and tasks do is done here.
"""

from __future__ import annotations

from typing import Any

import pytest
from fix_pipeline import DESTINATION

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("pyspark", reason="pyspark is not installed")

from canal_server.errors import TableMetaError
from canal_server.spark.data_source import CanalDataSource


class Goods:
    """A table of a running server, and typed reads of it."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline
        self.is_mariadb = pipeline.source.flavour == "mariadb"
        self.execute("CREATE TABLE {s}.goods (id INT PRIMARY KEY, a INT)")

    def execute(self, *statements: str) -> None:
        """Change something, in one session; {s} is the schema."""
        schema = self.pipeline.schema
        self.pipeline.source.execute(*(each.format(s=schema) for each in statements))

    def reader(self, **more: str) -> Any:
        """Return a reader from here on, with the current columns of the table."""
        file, offset = self.pipeline.source.binlog_position()
        options = {
            "servers": f"127.0.0.1:{self.pipeline.server_port}",
            "destination": DESTINATION,
            "table": f"{self.pipeline.schema}.goods",
            "startingPosition": f"file:{file}:{offset}",
        }
        source = CanalDataSource(options | more)
        return source.reader(source.schema())


def rows(reader: Any) -> list[tuple[Any, ...]]:
    """Return the rows received so far: the first two columns of each."""
    return [
        tuple(row.values())[:2]
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


@pytest.fixture
def goods(make_pipeline: Any, source_server: Any, database: str) -> Goods:
    """Give a table of a server of each kind."""
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    return Goods(pipeline)


def test_another_table_instead(goods: Goods) -> None:
    """As tools for online DDL put it there: with other columns the stream ends."""
    whole, some = goods.reader(), goods.reader(columns="id,a")
    goods.execute(
        "CREATE TABLE {s}._goods_gho (id INT PRIMARY KEY, a INT, b INT)",
        "RENAME TABLE {s}.goods TO {s}._goods_del, {s}._goods_gho TO {s}.goods",
        "INSERT INTO {s}.goods VALUES (2, 2, 2)",
    )
    with pytest.raises(TableMetaError, match=r"different columns since .*RENAME.*: b;"):
        rows(whole)
    assert rows(some) == [(2, 2)]


def test_no_table_instead(goods: Goods) -> None:
    """Whether it was renamed or dropped, before others or after them."""
    shown, untold = goods.reader(), goods.reader(schemaChange="ignore")
    goods.execute(
        "RENAME TABLE {s}.goods TO {s}.other", "INSERT INTO {s}.other VALUES (3, 3)"
    )
    with pytest.raises(TableMetaError, match=r"goods was renamed at .* TO .*other"):
        rows(shown)
    assert rows(untold) == []
    goods.execute("RENAME TABLE {s}.other TO {s}.goods")
    assert rows(shown) == []
    reader = goods.reader()
    goods.execute("CREATE TABLE {s}.first (id INT)", "DROP TABLE {s}.first, {s}.goods")
    with pytest.raises(TableMetaError, match=r"goods was emptied at .*DROP"):
        rows(reader)


def test_rows_that_no_row_describes(goods: Goods) -> None:
    """They end the stream with what to do; with `truncates = ignore` they do not."""
    goods.execute(
        "ALTER TABLE {s}.goods PARTITION BY RANGE (id)"
        " (PARTITION p1 VALUES LESS THAN (10), PARTITION p2 VALUES LESS THAN (20))",
        "CREATE TABLE {s}.goodsx LIKE {s}.goods",
    )
    causes = {
        "drops a partition with its rows.*do the same in the target": (
            "ALTER TABLE {s}.goods DROP PARTITION p1"
        ),
        "changed by a statement at .*set binlog_format = ROW": (
            "INSERT INTO {s}.goods VALUES (1, 1)"
        ),
        r"changed by a statement at .*DELETE": (
            "DELETE g, x FROM {s}.goods AS g, {s}.goodsx AS x"
        ),
    }
    if goods.is_mariadb:
        causes["created again at"] = "CREATE OR REPLACE TABLE {s}.goods (id INT, a INT)"
    for shown, sql in causes.items():
        reader, ignoring = goods.reader(), goods.reader(truncates="ignore")
        goods.execute("USE {s}", "SET SESSION binlog_format = 'STATEMENT'", sql)
        with pytest.raises(TableMetaError, match=shown):
            rows(reader)
        assert rows(ignoring) == []
    reader = goods.reader()
    goods.execute(
        "SET SESSION binlog_format = 'STATEMENT'",
        "INSERT INTO {s}.goodsx VALUES (1, 1)",
    )
    assert rows(reader) == []


def test_a_column_that_was_dropped_and_added(goods: Goods) -> None:
    """Rows in between have NULL; the stream continues by itself."""
    reader = goods.reader()
    goods.execute(
        "INSERT INTO {s}.goods VALUES (1, 1)",
        "ALTER TABLE {s}.goods DROP COLUMN a",
        "INSERT INTO {s}.goods VALUES (2)",
        "ALTER TABLE {s}.goods ADD COLUMN a INT FIRST",
        "INSERT INTO {s}.goods VALUES (3, 3)",
    )
    assert rows(reader) == [(1, 1), (2, None), (3, 3)]


def test_names_in_any_case(make_pipeline: Any, own_server: Any) -> None:
    """If the server ignores case, so may statements."""
    server = own_server("mariadb", ["--lower-case-table-names=1"])
    server.execute("CREATE DATABASE shop")
    pipeline = make_pipeline(server, "shop")
    pipeline.start()
    goods = Goods(pipeline)
    for sql, shown in {
        "ALTER TABLE {s}.Goods ADD x INT": "different columns since .*: x;",
        "TRUNCATE TABLE SHOP.Goods": "was emptied at",
        "RENAME TABLE {s}.GOODS TO {s}.Other": "was renamed at",
    }.items():
        reader = goods.reader()
        goods.execute(sql)
        with pytest.raises(TableMetaError, match=shown):
            rows(reader)


def test_another_table_but_for_the_case(goods: Goods) -> None:
    """Changes of that table do not matter."""
    goods.execute("CREATE TABLE {s}.Goods (id INT)")
    reader = goods.reader()
    goods.execute("TRUNCATE TABLE {s}.Goods", "DROP TABLE {s}.Goods")
    goods.execute("INSERT INTO {s}.goods VALUES (1, 1)")
    assert rows(reader) == [(1, 1)]
