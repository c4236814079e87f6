"""Tables and views of Spark's catalog that are read from a canal-server."""

from __future__ import annotations

import pytest
from fix_pipeline import DESTINATION, UNIT_S
from fix_spark import finish

PATIENCE_S = 9 * UNIT_S


class Catalog:
    """Tables in Spark's catalog of changes to one table of MySQL."""

    def __init__(self, spark, pipeline) -> None:
        from canal_server.spark.data_source import CanalDataSource  # noqa: PLC0415

        spark.dataSource.register(CanalDataSource)
        self.spark = spark
        self.source = pipeline.source
        self.table = f"{pipeline.schema}.goods"
        self.source.execute(f"CREATE TABLE {self.table} (id INT PRIMARY KEY, b TEXT)")
        file, offset = self.source.binlog_position()
        self.begin = f"file:{file}:{offset}"
        self.options = {
            "servers": f"127.0.0.1:{pipeline.server_port}",
            "destination": DESTINATION,
            "startingPosition": self.begin,
        }

    def text(self, **more) -> str:
        """Return options as SQL has them."""
        found = self.options | more
        return ", ".join(f"{name} '{text}'" for name, text in found.items())

    def insert(self, *ids) -> None:
        """Write rows, each in a transaction."""
        for each in ids:
            self.source.execute(f"INSERT INTO {self.table} VALUES ({each}, 'x')")

    def ids(self, query) -> list[int]:
        """Return the keys that a query finds."""
        return sorted(int(row[0]) for row in self.spark.sql(query).collect())


@pytest.fixture
def catalog(spark, make_pipeline, mysql_server, database):
    """Give a catalog; its tables and views are dropped in the end."""
    pipeline = make_pipeline(mysql_server, database)
    pipeline.start()
    made = Catalog(spark, pipeline)
    yield made
    for table in ("goods", "changes", "given"):
        spark.sql(f"DROP TABLE IF EXISTS {table}")
    spark.sql("DROP VIEW IF EXISTS goods_view")


def test_a_table(catalog, tmp_path) -> None:
    """It is created, described, read with its own or other options, and dropped."""
    spark = catalog.spark
    spark.sql(
        f"CREATE TABLE goods USING canal OPTIONS ({catalog.text(table=catalog.table)})"
        " COMMENT 'what changes' TBLPROPERTIES ('team' = 'shop', 'maxRows' = '1')"
    )
    catalog.insert(1, 2, 3)
    query = "SELECT id FROM goods"
    assert catalog.ids(query) == [1, 2, 3]
    described = {row[0]: row[1] for row in spark.sql("DESCRIBE goods").collect()}
    assert described["id"] == "int"
    assert described["_seq"] == "bigint"

    spark.sql("ALTER TABLE goods SET TBLPROPERTIES ('team' = 'sales')")
    file, offset = catalog.source.binlog_position()
    end = f"file:{file}:{offset}"
    catalog.insert(4)
    assert catalog.ids(query) == [1, 2, 3, 4]
    assert catalog.ids(f"{query} WITH (endingPosition = '{end}')") == [1, 2, 3]
    reader = spark.read.option("startingPosition", end)
    assert [row.id for row in reader.table("goods").collect()] == [4]
    with pytest.raises(Exception, match="unknown option endingpositon; did you mean"):
        catalog.ids(f"{query} WITH (endingPositon = '{end}')")

    stream = spark.readStream.option("subscription", "goods").table("goods")
    writer = stream.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    finish(writer.option("path", str(tmp_path / "rows")), PATIENCE_S)
    found = spark.read.parquet(str(tmp_path / "rows")).select("id").collect()
    assert sorted(row.id for row in found) == [1, 2, 3, 4]

    spark.sql("DROP TABLE goods")
    assert not spark.catalog.tableExists("goods")


def test_a_table_of_all_tables(catalog) -> None:
    """Its schema is the generic one, and a location changes nothing."""
    catalog.spark.sql(
        f"CREATE TABLE changes USING canal OPTIONS ({catalog.text(payload='json')})"
        " LOCATION '/nowhere'"
    )
    catalog.insert(5)
    found = catalog.spark.sql(
        f"SELECT get_json_object(after, '$.id') FROM changes"
        f" WHERE upper(op) = 'INSERT' AND db = '{catalog.table.partition('.')[0]}'"
    )
    assert [row[0] for row in found.collect()] == ["5"]


def test_a_view(catalog) -> None:
    """A temporary view has its options as they were written."""
    catalog.spark.sql(
        "CREATE TEMPORARY VIEW goods_view USING canal"
        f" OPTIONS ({catalog.text(table=catalog.table)})"
    )
    catalog.insert(6)
    assert catalog.ids("SELECT id FROM goods_view") == [6]


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("", {"maxPartition": "3"}, "unknown option maxpartition; did you mean"),
        ("", {"payload": "xml"}, "option payload = 'xml'"),
        ("(a INT)", {}, "option destination is missing"),
    ],
)
def test_a_table_that_cannot_be(catalog, columns, options, expected) -> None:
    """A typo is reported by name; user columns leave no room for options."""
    made = f"CREATE TABLE given {columns} USING canal OPTIONS"

    def use() -> None:
        catalog.spark.sql(f"{made} ({catalog.text(**options)})")
        catalog.spark.sql("SELECT * FROM given").collect()

    with pytest.raises(Exception, match=expected):
        use()


def test_a_password_is_not_kept(catalog) -> None:
    """Each read gives it; what the catalog has of the table does not show it."""
    spark = catalog.spark
    spark.sql(
        "CREATE TABLE goods USING canal OPTIONS"
        f" ({catalog.text(table=catalog.table, username='u', password='geheim')})"
    )
    catalog.insert(7)
    frame = spark.table("goods")
    assert "geheim" not in frame.schema.json()
    with pytest.raises(Exception, match="option password is not stored"):
        frame.collect()
    query = "SELECT id FROM goods WITH (password = 'geheim')"
    assert catalog.ids(query) == [7]


def test_positions_inside_of_a_transaction(catalog) -> None:
    """Such a position means the start of the transaction: both reads are complete."""
    catalog.insert(1)
    file, before = catalog.source.binlog_position()
    values = ", ".join(f"({each}, 'x')" for each in (2, 3))
    catalog.source.execute(
        "BEGIN",
        f"INSERT INTO {catalog.table} VALUES {values}",
        f"INSERT INTO {catalog.table} VALUES (4, 'x')",
        "COMMIT",
    )
    _, after = catalog.source.binlog_position()
    catalog.insert(5)

    def read(**positions) -> list[int]:
        options = catalog.options | {"table": catalog.table} | positions
        rows = catalog.spark.read.format("canal").options(**options).load()
        return sorted(row.id for row in rows.collect())

    for offset in range(before + 1, after, (after - before) // 3):
        inside = f"file:{file}:{offset}"
        assert read(endingPosition=inside) == [1]
        assert read(startingPosition=inside) == [2, 3, 4, 5]
        assert read(startingPosition=inside, endingPosition=inside) == []


def test_an_end_before_the_start(catalog) -> None:
    """However the two are named, that is an error and not an empty read."""
    gtids = catalog.source.execute("SELECT @@global.gtid_executed")[0][0]
    catalog.insert(1, 2)
    file, offset = catalog.source.binlog_position()
    later = f"file:{file}:{offset}"
    executed = catalog.source.execute("SELECT @@global.gtid_executed")[0][0]
    pairs = [
        (later, catalog.begin),
        (later, "earliest"),
        ("latest", catalog.begin),
        ("latest", "earliest"),
        ("time:2026-01-02T00:00:00+00:00", "time:2026-01-01T00:00:00+00:00"),
    ]
    if gtids:
        one_line = ["".join(each.split()) for each in (executed, gtids)]
        pairs.append((f"gtid:{one_line[0]}", f"gtid:{one_line[1]}"))
        pairs.append((later, f"gtid:{one_line[1]}"))
    for start, end in pairs:
        options = catalog.options | {"startingPosition": start, "endingPosition": end}
        frame = catalog.spark.read.format("canal").options(**options).load()
        with pytest.raises(Exception, match=r"is\s+before"):
            frame.collect()
