"""Packed reads of live servers: folded by key they equal the tables, whatever happened.

Without Spark's JVM: what its tasks do is done here.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from fix_pipeline import DESTINATION
from fix_random import longer

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("pyspark", reason="pyspark is not installed")

from canal_server.spark.batch_reader import CanalBatchReader  # noqa: E402
from canal_server.spark.columns.spark_schema import packed_schema  # noqa: E402
from canal_server.spark.options.source_options import read_options  # noqa: E402
from canal_server.spark.packed.packed_rows import unpack  # noqa: E402

PARTS = 3
TYPES = """
    big BIGINT UNSIGNED, price DECIMAL(12,3), ratio DOUBLE, few FLOAT, day DATE,
    at DATETIME(6), seen TIMESTAMP(3) NULL, kind ENUM('red','green'),
    flags SET('a','b','c'), body TEXT, raw VARBINARY(20), doc JSON, bits BIT(12),
    fixed CHAR(4) CHARACTER SET latin1, bin CHAR(4) CHARACTER SET binary, y YEAR
"""
NAMES = (
    "big", "price", "ratio", "few", "day", "at", "seen", "kind", "flags", "body",
    "raw", "doc", "bits", "fixed", "bin", "y",
)  # fmt: skip


class Source:
    """A canal-server, its source, and the rows read from it."""

    def __init__(self, pipeline) -> None:
        self.pipeline = pipeline
        self.schema = pipeline.schema
        self.begin = self.position()

    def position(self) -> str:
        """Return where the binlog ends."""
        file, offset = self.pipeline.source.binlog_position()
        return f"file:{file}:{offset}"

    def execute(self, *statements: str) -> None:
        """Change something; {s} is the schema."""
        self.pipeline.source.execute(
            *(each.replace("{s}", self.schema) for each in statements)
        )

    def read(self, tables: str = ".*", **more: str) -> list[Any]:
        """Return what a batch read gives; its parts are read at the same time."""
        options = read_options(
            {
                "servers": f"127.0.0.1:{self.pipeline.server_port}",
                "destination": DESTINATION,
                "payload": "arrow",
                "filter": rf"{self.schema}\.{tables}",
                "startingPosition": self.begin,
                "minPartitionRows": "1",
            }
            | more,
            streaming=False,
        )
        reader = CanalBatchReader(options, packed_schema())
        self.parts = list(reader.partitions())
        found: list[Any] = []
        for part in self.parts:
            found += reader.read(part)
        return unpack(pa.Table.from_batches(found))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return a table as it is, in Python's types."""
        with self.pipeline.source.connect() as connection:
            cursor = connection.cursor()
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(f"SELECT * FROM {self.schema}.{table}")
            names = [each[0] for each in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]


@pytest.fixture
def source(make_pipeline, source_server, database):
    """Give a server of each kind."""
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    return Source(pipeline)


def changes_of(found, table):
    """Return the changes of a table, and its statements, in their order."""
    changes: list[Any] = []
    for each in found:
        if each.table.table != table:
            continue
        assert each.kind != "problem", each.sql
        changes += each.data.to_pylist() if each.data is not None else [each]
    return changes


def test_all_types_with_and_without_a_key(source, rng) -> None:
    """Folded by key, or else counted, the received rows equal the tables."""
    source.execute(
        f"CREATE TABLE {{s}}.plain (id INT, part SMALLINT, {TYPES})",
        "CREATE TABLE {s}.keyed LIKE {s}.plain",
        "ALTER TABLE {s}.keyed ADD PRIMARY KEY (id, part)",
    )
    write(source, rng, longer(150))
    for wire in ("binlog", "entry"):
        found = source.read("(keyed|plain)", wire=wire)
        assert Counter(each.kind for each in found)["statement"] == 3
        compare(source, found)


def compare(source, found) -> None:
    """Compare two tables with their received rows."""
    keyed: dict[Any, Any] = {}
    for row in changes_of(found, "keyed")[2:]:
        if row["_change_type"] == "delete":
            del keyed[row["id"], row["part"]]
        else:
            keyed[row["id"], row["part"]] = image_of(row)
    expected = [image_of(row) for row in source.rows("keyed")]
    assert sorted(map(repr, keyed.values())) == sorted(map(repr, expected))
    plain: Counter[str] = Counter()
    for row in changes_of(found, "plain")[1:]:
        deleted = row["_change_type"] in ("delete", "update_preimage")
        plain[repr(image_of(row))] += -1 if deleted else 1
    assert +plain == Counter(repr(image_of(row)) for row in source.rows("plain"))
    assert min(plain.values(), default=0) >= 0


def image_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of the table, in forms that compare."""
    image = {name: row[name] for name in ("id", "part", *NAMES)}
    if isinstance(image["bits"], bytes):
        image["bits"] = int.from_bytes(image["bits"], "big")
    if isinstance(image["big"], int):
        image["big"] = type(row["price"] or 0)(image["big"])
    for name in ("seen", "at"):
        image[name] = image[name] and image[name].replace(tzinfo=None)
    return {name: str(value) for name, value in image.items()}


def write(source, rng, count) -> None:
    """Do random changes to both tables."""
    statements = []
    for number in range(count):
        key = f"id = {rng.randrange(20)}"
        values = [
            rng.choice(("0", "18446744073709551615", "NULL")),
            rng.choice(("-1.5", "99999999.999", "NULL")),
            rng.choice(("0.1", "-1e300", "3")),
            rng.choice(("0.5", "-1024", "NULL")),
            rng.choice(("'2026-02-28'", "'1000-01-01'", "NULL")),
            rng.choice(("'2026-10-25 02:30:00.123456'", "NULL")),
            rng.choice(("'2026-01-01 00:00:00.5'", "NULL")),
            rng.choice(("'red'", "2", "NULL")),
            rng.choice(("'a,c'", "''", "NULL")),
            rng.choice(("'ß中😀'", "''", "NULL")),
            rng.choice(("x'00ff80'", "x''", "NULL")),
            rng.choice(("'[1, null]'", "NULL")),
            rng.choice(("b'101'", "NULL")),
            rng.choice(("'äö'", "''", "NULL")),
            rng.choice(("x'00ff8001'", "NULL")),
            rng.choice(("2026", "1970", "NULL")),
        ]
        sets = ", ".join(map(" = ".join, zip(NAMES, values, strict=True)))
        table = f"{{s}}.{rng.choice(('keyed', 'plain'))}"
        statements.append(
            rng.choice(
                (
                    f"REPLACE INTO {table} SET {key}, part = {number % 3}, {sets}",
                    f"UPDATE {table} SET {sets} WHERE {key}",
                    f"UPDATE IGNORE {table} SET id = id + 7 WHERE {key}",
                    f"DELETE FROM {table} WHERE {key} LIMIT 1",
                )
            )
        )
    source.execute(*statements)


def shape_of(found, *tables):
    """Return (table, kind, rows or the event type, columns) of received rows."""
    return [
        (each.table.table, each.kind, each.count or each.event_type,
         " ".join(column.name for column in each.columns))
        for each in found if each.table.table in tables
    ]  # fmt: skip


def test_ddl_in_the_middle(source) -> None:
    """Runs have the columns at their position, statements those after them."""
    source.execute(
        "CREATE TABLE {s}.t (id INT PRIMARY KEY, a INT)",
        "INSERT INTO {s}.t VALUES (1, 1), (2, 2)",
        "ALTER TABLE {s}.t ADD b VARCHAR(9) FIRST",
        "INSERT INTO {s}.t VALUES ('b', 3, 3)",
        "ALTER TABLE {s}.t DROP a",
        "UPDATE {s}.t SET b = 'c' WHERE id = 3",
        "TRUNCATE TABLE {s}.t",
        "INSERT INTO {s}.t VALUES ('d', 4)",
        "RENAME TABLE {s}.t TO {s}.u",
        "INSERT INTO {s}.u VALUES ('e', 5)",
        "DROP TABLE {s}.u",
        "CREATE TABLE {s}.u (x TEXT)",
        "INSERT INTO {s}.u VALUES ('f')",
    )
    for parts in ("1", "8"):
        found = source.read(maxPartitions=parts)
        assert shape_of(found, "t", "u") == [
            ("t", "statement", "CREATE", "id a"),
            ("t", "rows", 2, "id a"),
            ("t", "statement", "ALTER", "b id a"),
            ("t", "rows", 1, "b id a"),
            ("t", "statement", "ALTER", "b id"),
            ("t", "rows", 1, "b id"),
            ("t", "statement", "TRUNCATE", "b id"),
            ("t", "rows", 1, "b id"),
            ("u", "statement", "RENAME", "b id"),
            ("t", "statement", "RENAME", ""),
            ("u", "rows", 1, "b id"),
            ("u", "statement", "ERASE", ""),
            ("u", "statement", "CREATE", "x"),
            ("u", "rows", 1, "x"),
        ]
    assert found[-1].data is not None
    assert found[-1].data.schema.metadata[b"updates"] == b"both"


def test_parts_of_one_transaction(source) -> None:
    """Each part has its ends; all rows are there once, with their only commit."""
    digits = " UNION ALL ".join(f"SELECT {n} AS d" for n in range(10))
    tables = ", ".join(f"({digits}) AS t{n}" for n in range(5))
    number = " + ".join(f"t{n}.d * {10**n}" for n in range(5))
    numbers = f"SELECT {number} FROM {tables} LIMIT 35000"
    source.execute(
        "CREATE TABLE {s}.a (n INT PRIMARY KEY)", "CREATE TABLE {s}.b (n INT)",
        "BEGIN", f"INSERT INTO {{s}}.a {numbers}", f"INSERT INTO {{s}}.b {numbers}",
        "COMMIT",
    )  # fmt: skip
    for wire in ("binlog", "entry"):
        found = source.read(maxPartitions="3", minPartitionRows="15000", wire=wire)
        parts = [each for each in found if each.kind == "part"]
        assert len(parts) == len(source.parts) == PARTS
        for before, after in itertools.pairwise(parts):
            assert before.end == after.start
        (start,) = parts[0].start.values()
        assert f"file:{start.journal}:{start.position}" == source.begin
        runs = [each for each in found if each.kind == "rows"]
        assert len({each.version for each in runs}) == 1
        for table in ("a", "b"):
            numbers_found = [
                number
                for run in runs
                if run.table.table == table
                for number in run.data["n"].to_pylist()
            ]
            expected = [row["n"] for row in source.rows(table)]
            assert sorted(numbers_found) == sorted(expected)


def test_a_batch_without_rows_has_its_position(source) -> None:
    """A part without changes, or without matching ones, is still delivered."""
    here = {"startingPosition": source.position(), "endingPosition": source.position()}
    (part,) = source.read(**here)
    assert part.kind == "part"
    assert part.start == part.end
    source.execute("CREATE TABLE {s}.other (id INT)")
    (part,) = source.read("none")
    assert part.kind == "part"
    assert part.start != part.end


def test_generated_and_invisible_columns(source) -> None:
    """They come as the table has them."""
    invisible = "INVISIBLE"
    source.execute(
        f"""CREATE TABLE {{s}}.t (
            id INT PRIMARY KEY, a INT, v INT GENERATED ALWAYS AS (a + 1) VIRTUAL,
            s INT GENERATED ALWAYS AS (a * 2) STORED, hidden INT DEFAULT 7 {invisible})
        """,
        "INSERT INTO {s}.t (id, a) VALUES (1, 10), (2, NULL)",
        "UPDATE {s}.t SET a = 20 WHERE id = 1",
    )
    rows = changes_of(source.read(), "t")[1:]
    expected = [(1, 10, 11, 20, 7), (2, None, None, None, 7), (1, 20, 21, 40, 7)]
    assert [tuple(row[n] for n in ("id", "a", "v", "s", "hidden")) for row in rows] == (
        expected
    )


def test_tables_whose_names_differ_by_their_case(source) -> None:
    """If the server distinguishes the names, so do we."""
    source.execute(
        "CREATE TABLE {s}.t (id INT PRIMARY KEY)",
        "CREATE TABLE {s}.T (other TEXT)",
        "INSERT INTO {s}.t VALUES (1)",
        "INSERT INTO {s}.T VALUES ('x')",
        "ALTER TABLE {s}.T ADD more INT",
        "INSERT INTO {s}.t VALUES (2)",
        "INSERT INTO {s}.T VALUES ('y', 1)",
    )
    found = source.read()
    assert shape_of(found, "T")[1:] == [
        ("T", "rows", 1, "other"),
        ("T", "statement", "ALTER", "other more"),
        ("T", "rows", 1, "other more"),
    ]
    assert [row["id"] for row in changes_of(found, "t")[1:]] == [1, 2]


def test_a_schema_that_is_dropped(source) -> None:
    """The statement has the schema; tables of the same name are separate."""
    other = f"{source.schema}_x"
    source.execute(
        f"CREATE DATABASE {other}",
        f"CREATE TABLE {other}.t (id INT PRIMARY KEY)",
        f"INSERT INTO {other}.t VALUES (1)",
        f"DROP DATABASE `{other}`",
        f"CREATE DATABASE {other}",
        f"CREATE TABLE {other}.t (name TEXT)",
        f"INSERT INTO {other}.t VALUES ('x')",
        f"DROP DATABASE `{other}`",
    )
    found = source.read(filter=rf"{other}\.t")
    kinds = [
        (each.kind, each.count, "DROP" in each.sql)
        for each in found
        if each.table.schema == other
    ]
    assert kinds.count(("rows", 1, False)) == 2
    drops = [n for n, kind in enumerate(kinds) if kind[2]]
    assert kinds[drops[0] - 1][0] == "rows"
    assert len(drops) == 2


def test_many_tables(source) -> None:
    """Alternating rows of many tables are one run of each."""
    tables = [f"t{number}" for number in range(longer(20))]
    source.execute(
        *(f"CREATE TABLE {{s}}.{name} (id INT PRIMARY KEY, v TEXT)" for name in tables)
    )
    begin = source.position()
    for turn in range(3):
        source.execute(
            *(f"INSERT INTO {{s}}.{name} VALUES ({turn}, 'x')" for name in tables)
        )
    found = source.read(startingPosition=begin, maxPartitions="1")
    runs = {each.table.table: each for each in found if each.kind == "rows"}
    assert sorted(runs) == sorted(tables)
    assert {each.count for each in runs.values()} == {3}


def test_partial_rows_stop_their_table_alone(source) -> None:
    """A table without full row images is reported; others continue."""
    source.execute(
        "CREATE TABLE {s}.t (id INT PRIMARY KEY, a INT, b INT)",
        "CREATE TABLE {s}.u (id INT PRIMARY KEY)",
        "INSERT INTO {s}.t VALUES (1, 1, 1)",
        "SET SESSION binlog_row_image = 'MINIMAL'",
        "UPDATE {s}.t SET a = 2",
        "SET SESSION binlog_row_image = 'FULL'",
        "INSERT INTO {s}.u VALUES (1)",
    )
    found = source.read(maxPartitions="1")
    assert shape_of(found, "u")[-1] == ("u", "rows", 1, "id")
    (problem,) = [each for each in found if each.kind == "problem"]
    assert problem.table.table == "t"
    assert "binlog_row_image = FULL" in problem.sql
