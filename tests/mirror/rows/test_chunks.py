"""Chunks of tables: each row is in exactly one, whatever the key is."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fix_mirror import table_on
from fix_source_access import access_of

from canal_server.errors import SourceError
from canal_server.mysql.control_connection import ControlConnection

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from canal_server.mirror.rows.chunk_read import read_chunk
from canal_server.mirror.rows.chunks import Chunk, cut, table_in_sql

if TYPE_CHECKING:
    from servers import Server

    from canal_server.mirror.settings.table_values import MirrorTable

# Kinds of keys, and the rows as an expression of n from 1 on.
KEYS = {
    "INT": "n * n * n",  # uneven
    "BIGINT UNSIGNED": "18446744073709551615 - n * n",
    "TINYINT": "n % 127 - 60",
    "DECIMAL(30,10)": "n * 1.0000000001 - 50",
    "FLOAT": "n / 3 - 20",
    "DOUBLE": "EXP(n - 50)",
    "DATE": "'2024-02-20' + INTERVAL n DAY",
    "DATETIME(3)": "'2024-02-20 23:00:00' + INTERVAL n * 777 MICROSECOND * 1000",
    "TIMESTAMP(6)": "'2024-03-10 06:00:00' + INTERVAL n * 61 SECOND",
    "TIME(2)": "SEC_TO_TIME(n * 1000 - 50000)",
    "YEAR": "1901 + n",
    "BINARY(3)": "UNHEX(LPAD(HEX(n * 300), 6, '0'))",
    "VARBINARY(9)": "UNHEX(REPEAT('00', n % 9))",
    "CHAR(9) CHARACTER SET latin1": "CONCAT('ü', CHAR(n + 32 USING latin1), 'é')",
    "VARCHAR(9) CHARACTER SET utf8mb4": "CHAR(n * 7 + 0x4E00 USING ucs2)",
    "VARCHAR(9) CHARACTER SET ucs2": "CHAR(n * 7 + 0x400 USING ucs2)",
    "VARCHAR(9) CHARACTER SET sjis": "CHAR(n * 3 + 0x8340 USING sjis)",
    "ENUM('z','y','x','w','v','u')": "n % 6 + 1",
    "SET('a','b','c','d','e','f','g')": "n",
    "BIT(40)": "n * 1000003",
}  # fmt: skip
ONLY = {
    "mysql": {},
    "mariadb": {
        "UUID": "CONCAT('123e4567-e89b-12d3-a456-4266141740', LPAD(HEX(n), 2, '0'))",
        "INET6": "CONCAT('::', HEX(n * 77))",
    },
}
ROWS = 100
SERIES = " UNION ALL ".join(f"SELECT {n} AS n" for n in range(1, ROWS + 1))


def chunks_of(server: Server, table: MirrorTable, rows: int) -> list[Chunk]:
    """Return the chunks of a table."""
    with ControlConnection(access_of(server)) as connection:
        return cut(connection, table, rows)


def rows_of(server: Server, table: MirrorTable, chunk: Chunk) -> list[tuple[Any, ...]]:
    """Return the rows of a chunk."""
    return [
        tuple(row.values())
        for batch in read_chunk(access_of(server), table, chunk)
        for row in batch.to_pylist()
    ]


def check(server: Server, table: MirrorTable, chunks: list[Chunk]) -> list[int]:
    """Fail unless each row is in one chunk; return how many there are in each."""
    found = [rows_of(server, table, Chunk.from_json(c.to_json())) for c in chunks]
    expected = Counter(rows_of(server, table, Chunk(0)))
    assert Counter(row for part in found for row in part) == expected
    assert [chunk.number for chunk in chunks] == [*range(len(chunks))]
    assert pickle.loads(pickle.dumps(chunks)) == chunks
    return [len(part) for part in found]


def test_every_kind_of_key(source_server: Server, database: str) -> None:
    """By a key of any type each row is in one chunk, and chunks are about alike."""
    kinds = KEYS | ONLY[source_server.flavour]
    statements = []
    for number, (kind, value) in enumerate(kinds.items()):
        name = f"{database}.t{number}"
        statements += [
            f"CREATE TABLE {name} (k {kind} PRIMARY KEY, v INT)",
            f"INSERT IGNORE INTO {name} SELECT {value}, n FROM ({SERIES}) AS series",
            f"ANALYZE TABLE {name}",
        ]
    source_server.execute("SET SESSION sql_mode = ''", *statements)
    for number, kind in enumerate(kinds):
        table = table_on(source_server, database, f"t{number}")
        chunks = chunks_of(source_server, table, 10)
        sizes = check(source_server, table, chunks)
        print(kind, sizes, chunks[1:2])
        assert max(sizes) <= 20, kind
        assert len(sizes) <= 25, kind


COMPOSITE = {
    "text and integer": ("a VARCHAR(9) COLLATE utf8mb4_general_ci, b INT", "a, b",
                         "IF(n % 2, 'a', 'B'), n"),
    "three columns": ("a INT, b DATE, c BINARY(2)", "b, a, c",
                      "n % 3, '2024-01-01' + INTERVAL n % 2 DAY, CHAR(n)"),
    "in another order": ("a INT, b INT", "a DESC, b", "n % 4, n"),
    "odd names": ("`a``b` INT, `größe %s` INT", "`a``b`, `größe %s`", "1, n"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPOSITE)
def test_composite_keys(source_server: Server, database: str, name: str) -> None:
    """Keys of several columns are cut within equal first ones, too."""
    columns, key, values = COMPOSITE[name]
    source_server.execute(
        f"CREATE TABLE {database}.t ({columns}, PRIMARY KEY ({key}))",
        f"INSERT INTO {database}.t SELECT {values} FROM ({SERIES}) AS series",
    )
    table = table_on(source_server, database, "t")
    sizes = check(source_server, table, chunks_of(source_server, table, 10))
    assert sizes == [10] * 10 + [0]


def test_zero_dates_as_bounds(source_server: Server, database: str) -> None:
    """Bounds within equal zero dates, on a server whose mode refuses such a value."""
    source_server.execute(
        "SET SESSION sql_mode = ''",
        f"CREATE TABLE {database}.t (d DATE, t DATETIME, n INT, PRIMARY KEY (d, t, n))",
        f"INSERT INTO {database}.t SELECT 0, 0, n FROM ({SERIES}) AS series",
        f"INSERT INTO {database}.t VALUES ('2024-00-10', '2024-02-29', 1)",
    )
    table = table_on(source_server, database, "t")
    sizes = check(source_server, table, chunks_of(source_server, table, 10))
    assert sizes == [10] * 10 + [1]


def test_chunks_read_ranges(source_server: Server, database: str) -> None:
    """A chunk in the middle is read as a range of the key, not by a look at all."""
    source_server.execute(
        f"CREATE TABLE {database}.t (a INT, b INT, c INT, PRIMARY KEY (a, b, c))",
        f"INSERT INTO {database}.t SELECT n % 5, n % 7, n FROM ({SERIES}) AS series",
        f"ANALYZE TABLE {database}.t",
    )
    table = table_on(source_server, database, "t")
    chunk = chunks_of(source_server, table, 10)[5]
    with ControlConnection(access_of(source_server)) as connection:
        (plan,) = connection.query_named(
            "EXPLAIN FORMAT=TRADITIONAL SELECT * FROM "
            + table_in_sql(table.source) + chunk.clauses
        )  # fmt: skip
    assert plan["type"] == "range"
    assert int(str(plan["rows"])) < 30


def test_rows_that_come_later(source_server: Server, database: str) -> None:
    """Rows below the first and above the last bound are in the outer chunks."""
    source_server.execute(
        f"CREATE TABLE {database}.t (k INT PRIMARY KEY)",
        f"INSERT INTO {database}.t SELECT n FROM ({SERIES}) AS series",
        f"ANALYZE TABLE {database}.t",
    )
    table = table_on(source_server, database, "t")
    chunks = chunks_of(source_server, table, 10)
    assert len(chunks) > 5
    source_server.execute(f"INSERT INTO {database}.t VALUES (-1000), (1000)")
    sizes = check(source_server, table, chunks)
    assert rows_of(source_server, table, chunks[0])[0] == (-1000,)
    assert rows_of(source_server, table, chunks[-1])[-1] == (1000,)
    assert sum(sizes) == ROWS + 2


WHOLE = {
    "no key": "k INT",
    "a unique key alone": "k INT NOT NULL UNIQUE",
    "an empty table": "k INT PRIMARY KEY",
    "part of a column": "k BLOB, PRIMARY KEY (k(4))",
}


@pytest.mark.parametrize("name", WHOLE)
def test_one_chunk(source_server: Server, database: str, name: str) -> None:
    """A table that is empty, or has no key of whole columns, is one chunk."""
    source_server.execute(f"CREATE TABLE {database}.t ({WHOLE[name]})")
    if "empty" not in name:
        source_server.execute(
            f"INSERT INTO {database}.t SELECT n + 1000 FROM ({SERIES}) AS series"
        )
    table = table_on(source_server, database, "t")
    chunks = chunks_of(source_server, table, 10)
    assert len(chunks) == 1
    check(source_server, table, chunks)


def test_other_key(source_server: Server, database: str) -> None:
    """If the primary key has a prefix of a column, a unique key is used."""
    source_server.execute(
        f"CREATE TABLE {database}.t (k VARBINARY(9), n INT UNIQUE, u INT NOT NULL,"
        " PRIMARY KEY (k(4)), UNIQUE KEY `the u` (u))",
        f"INSERT INTO {database}.t SELECT n + 1000, n, n FROM ({SERIES}) AS series",
        f"ANALYZE TABLE {database}.t",
    )
    table = table_on(source_server, database, "t")
    chunks = chunks_of(source_server, table, 10)
    assert {chunk.index for chunk in chunks} == {"the u"}
    assert max(check(source_server, table, chunks)) <= 20


def test_many_rows(source_server: Server, database: str) -> None:
    """With gaps of all sizes between integer keys, chunks are still about alike."""
    source_server.execute(
        f"CREATE TABLE {database}.t (k BIGINT PRIMARY KEY, v CHAR(200) DEFAULT '')",
        f"INSERT INTO {database}.t (k) WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL "
        "SELECT n + 1 FROM r WHERE n < 1000) "
        "SELECT a.n * 7 + b.n * b.n * b.n * 1000000 FROM r AS a JOIN r AS b "
        "WHERE b.n <= 20",
        f"ANALYZE TABLE {database}.t",
    )
    table = table_on(source_server, database, "t")
    sizes = check(source_server, table, chunks_of(source_server, table, 1000))
    print(sizes)
    assert max(sizes) <= 4000
    assert len(sizes) <= 60


def test_no_such_table(source_server: Server, database: str) -> None:
    """The error for a missing table has its name."""
    source_server.execute(f"CREATE TABLE {database}.t (k INT PRIMARY KEY)")
    table = table_on(source_server, database, "t")
    source_server.execute(f"DROP TABLE {database}.t")
    with pytest.raises(SourceError, match=rf"{database}\.t"):
        chunks_of(source_server, table, 10)
