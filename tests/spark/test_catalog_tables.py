"""Typed streams and batch reads in Spark: what they say equals the table."""

from __future__ import annotations

import pytest
from fix_pipeline import DESTINATION, UNIT_S
from fix_spark import finish

PATIENCE_S = 9 * UNIT_S
COLUMNS = """
    id INT NOT NULL, part SMALLINT UNSIGNED NOT NULL, big BIGINT UNSIGNED,
    price DECIMAL(12,3), ratio DOUBLE, day DATE, at DATETIME(6), seen TIMESTAMP(3) NULL,
    kind ENUM('red','green'), flags SET('a','b','c'), body TEXT, raw VARBINARY(20),
    doc JSON, PRIMARY KEY (id, part)
"""
# Those that are written at random
NAMES = (
    "big", "price", "ratio", "day", "at", "seen", "kind", "flags", "body", "raw", "doc",
)  # fmt: skip


@pytest.fixture
def table(spark, make_pipeline, mysql_server, database):
    """Give a table with columns of many types, on a running server."""
    made = Table(spark, make_pipeline(mysql_server, database))
    made.pipeline.start()
    return made


@pytest.fixture
def mariadb_table(spark, make_pipeline, mariadb_server, database):
    """Give the same of a MariaDB."""
    made = Table(spark, make_pipeline(mariadb_server, database))
    made.pipeline.start()
    return made


class Table:
    """A table, and reads of what happened to it."""

    def __init__(self, spark, pipeline) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.name = f"{pipeline.schema}.goods"
        pipeline.source.execute(f"CREATE TABLE {self.name} ({COLUMNS})")
        file, offset = pipeline.source.binlog_position()
        self.begin = f"file:{file}:{offset}"

    def options(self, **more):
        """Return the options of a typed read."""
        return {
            "servers": f"127.0.0.1:{self.pipeline.server_port}",
            "destination": DESTINATION,
            "table": self.name,
            "startingPosition": self.begin,
            "minPartitionRows": "1",
        } | more

    def changes(self, **more):
        """Return all changes up to now, by a batch read."""
        return self.spark.read.format("canal").options(**self.options(**more)).load()

    def execute(self, *statements) -> None:
        """Change the table."""
        self.pipeline.source.execute(*(each.format(self.name) for each in statements))

    def write(self, rng, count) -> None:
        """Do so many random changes, those of keys too."""
        for number in range(count):
            key = f"id = {rng.randrange(20)}"
            values = [
                rng.choice(("0", "18446744073709551615", "NULL")),
                rng.choice(("-1.5", "99999999.999", "NULL")),
                rng.choice(("0.1", "-1e300", "3")),
                rng.choice(("'2026-02-28'", "'1000-01-01'", "NULL")),
                rng.choice(("'2026-10-25 02:30:00.123456'", "NULL")),
                rng.choice(("'2026-01-01 00:00:00.5'", "NULL")),
                rng.choice(("'red'", "2", "NULL")),
                rng.choice(("'a,c'", "''", "NULL")),
                rng.choice(("'ß中😀'", "''", "NULL")),
                rng.choice(("x'00ff80'", "x''", "NULL")),
                rng.choice(("'{{\"a\": [1, null]}}'", "NULL")),
            ]
            names = NAMES
            sets = ", ".join(map(" = ".join, zip(names, values, strict=True)))
            self.execute(
                rng.choice(
                    (
                        f"REPLACE INTO {{}} SET {key}, part = {number % 3}, {sets}",
                        f"UPDATE {{}} SET {sets} WHERE {key}",
                        f"UPDATE IGNORE {{}} SET id = id + 7 WHERE {key}",
                        f"DELETE FROM {{}} WHERE {key} LIMIT 1",
                    )
                )
            )

    def rows(self):
        """Return the table as it is, in Python's types and by key."""
        with self.pipeline.source.connect() as connection:
            cursor = connection.cursor()
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(f"SELECT * FROM {self.name}")
            names = [each[0] for each in cursor.description]
            found = [dict(zip(names, row, strict=True)) for row in cursor]
        return {(row["id"], row["part"]): row for row in found}


def folded(frame):
    """Return the last image of each key that was not deleted."""
    rows: dict[tuple[int, int], dict[str, object]] = {}
    order = sorted(frame.collect(), key=lambda row: (row["_seq"], row["_row"]))
    for row in order:
        key = row["id"], row["part"]
        if row["_change_type"] == "delete":
            rows.pop(key, None)
        else:
            rows[key] = {
                name: bytes(value) if isinstance(value, bytearray) else value
                for name, value in row.asDict().items()
                if not name.startswith("_")
            }
    return rows


def test_changes_folded_by_key_equal_the_table(table, rng) -> None:
    """All types, updates of keys as delete and insert, and a second read alike."""
    table.write(rng, 120)
    frame = table.changes().cache()
    assert folded(frame) == table.rows()
    again = table.changes(minPartitionRows="20000").collect()
    assert sorted(map(str, again)) == sorted(map(str, frame.collect()))
    frame.unpersist()


def test_tasks_with_keys_of_their_own(table, rng) -> None:
    """All rows of a key come to one task, in order; a single one may have them all."""
    from pyspark.sql.functions import spark_partition_id  # noqa: PLC0415

    table.write(rng, 60)
    dealt = table.changes(partitionBy="keyhash", maxPartitions="3")
    frame = dealt.withColumn("task", spark_partition_id()).cache()
    assert folded(frame.drop("task")) == table.rows()
    assert sorted(map(str, frame.drop("task").collect())) == sorted(
        map(str, table.changes().collect())
    )
    tasks: dict[tuple[int, int], int] = {}
    for row in frame.collect():
        assert tasks.setdefault((row["id"], row["part"]), row["task"]) == row["task"]
    assert set(tasks.values()) == {0, 1, 2}
    one = {"minPartitionRows": "20000"}
    assert table.changes(partitionBy="keyhash", **one).rdd.getNumPartitions() == 1
    assert table.changes(partitionBy="destination").rdd.getNumPartitions() == 1


def test_changes_of_mariadb_equal_the_table(mariadb_table, rng) -> None:
    """Folded by key they do, too; JSON is a text there."""
    mariadb_table.write(rng, 60)
    assert folded(mariadb_table.changes()) == mariadb_table.rows()


def test_images_of_updates(table) -> None:
    """As one row, as two, or as an envelope; columns as they are chosen."""
    table.execute(
        "INSERT INTO {} (id, part, body) VALUES (1, 0, 'x')",
        "UPDATE {} SET body = 'y' WHERE id = 1",
        "UPDATE {} SET id = 2 WHERE id = 1",
        "DELETE FROM {}",
    )
    columns = {"columns": "BODY,id"}

    def expected(frame):
        rows = sorted(frame.collect(), key=lambda row: (row["_seq"], row["_row"]))
        return [(row["_change_type"], row["body"], row["id"]) for row in rows]

    assert expected(table.changes(**columns)) == [
        ("insert", "x", 1),
        ("update_postimage", "y", 1),
        ("delete", "y", 1),
        ("insert", "y", 2),
        ("delete", "y", 2),
    ]
    assert expected(table.changes(updates="both", **columns)) == [
        ("insert", "x", 1),
        ("update_preimage", "x", 1),
        ("update_postimage", "y", 1),
        ("update_preimage", "y", 1),
        ("update_postimage", "y", 2),
        ("delete", "y", 2),
    ]
    rows = table.changes(updates="envelope", **columns).collect()
    assert sorted(
        (
            row["op"],
            row["before"] and row["before"]["id"],
            row["after"] and row["after"]["id"],
        )
        for row in rows
    ) == [("c", None, 1), ("d", 2, None), ("u", 1, 1), ("u", 1, 2)]
    assert len({row["_commit_version"] for row in rows}) == 4


def test_a_batch_read_ends_where_it_is_set(table) -> None:
    """Also between two positions, of several destinations or none."""
    table.execute("INSERT INTO {} (id, part) VALUES (1, 0)")
    file, offset = table.pipeline.source.binlog_position()
    table.execute("INSERT INTO {} (id, part) VALUES (2, 0)")
    middle = f"file:{file}:{offset}"
    assert [r["id"] for r in table.changes(endingPosition=middle).collect()] == [1]
    assert [r["id"] for r in table.changes(startingPosition=middle).collect()] == [2]
    assert table.changes(startingPosition="latest").count() == 0


def test_ddl_within_a_range(table) -> None:
    """Rows before and after a new column; what the stream lacks is reported."""
    from pyspark.errors import PySparkException  # noqa: PLC0415

    table.execute("INSERT INTO {} (id, part) VALUES (1, 0)")
    old = table.changes()
    table.execute(
        "ALTER TABLE {} ADD COLUMN extra INT, DROP COLUMN doc",
        "INSERT INTO {} (id, part, extra) VALUES (2, 0, 5)",
    )
    with pytest.raises(PySparkException, match=r"different columns since.*doc, extra"):
        old.collect()
    assert {r["id"]: r["extra"] for r in table.changes().collect()} == {1: None, 2: 5}
    ignoring = table.changes(schemaChange="ignore", columns="id,part").collect()
    assert len(ignoring) == 2
    table.execute("TRUNCATE {}")
    with pytest.raises(PySparkException, match="was emptied at"):
        table.changes().collect()
    assert table.changes(truncates="ignore").count() == 2
    schema = table.pipeline.schema
    later = table.changes(
        startingPosition="file:{}:{}".format(*table.pipeline.source.binlog_position())
    )
    table.execute(f"DROP DATABASE {schema}", f"CREATE DATABASE {schema}")
    with pytest.raises(PySparkException, match=r"was emptied at.*DROP DATABASE"):
        later.collect()


def test_columns_that_come_and_go(table, rng) -> None:
    """Rows before a new column have NULL; current ones equal the table."""
    kinds: dict[str, str] = {}
    for number in range(80):
        kind = rng.choice(("ADD", "DROP", "MODIFY", "ROW", "ROW", "ROW", "ROW"))
        where = rng.choice(("FIRST", "AFTER part", ""))
        if kind == "ADD" and len(kinds) < 6:
            kinds[f"n{number}"] = "INT"
            table.execute(f"ALTER TABLE {{}} ADD COLUMN n{number} INT {where}")
        elif kind != "ROW" and kinds:
            name = rng.choice(list(kinds))
            if kind == "DROP":
                del kinds[name]
                table.execute(f"ALTER TABLE {{}} DROP COLUMN {name}")
            else:
                kinds[name] = rng.choice(("BIGINT", "DECIMAL(12,1)"))
                change = f"MODIFY COLUMN {name} {kinds[name]} {where}"
                table.execute(f"ALTER TABLE {{}} {change}")
        else:
            sets = [f"{name} = {rng.randrange(1 << 30)}" for name in kinds]
            sets += [f"id = {rng.randrange(9)}", "part = 0", f"body = '{number}'"]
            table.execute(
                f"REPLACE INTO {{}} SET {', '.join(sets)}",
                f"DELETE FROM {{}} WHERE id = {rng.randrange(9)}",
            )
    assert folded(table.changes()) == table.rows()


def test_a_stream_of_one_table(table, rng, tmp_path) -> None:
    """The same as a stream, in micro-batches, from the checkpoint on."""
    received = []

    def apply(frame, _):
        received.extend(frame.collect())

    options = table.options(subscription="typed", maxRowsPerTrigger="10")
    for _ in range(2):
        table.write(rng, 20)
        finish(
            table.spark.readStream.format("canal")
            .options(**options)
            .load()
            .writeStream.foreachBatch(apply)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True),
            PATIENCE_S,
        )
    expected = table.changes().collect()
    assert sorted(map(str, received)) == sorted(map(str, expected))


def test_a_table_that_is_not_there(table) -> None:
    """It is named before anything runs."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    with pytest.raises(AnalysisException, match="has no table"):
        table.changes(table=f"{table.pipeline.schema}.none")
