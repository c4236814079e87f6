"""Tables as values: what row events carry, and the text that gives them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.model.table_schema import column, quoted
from canal_server.tablemeta.tables.memory_tables import MemoryTableMeta

if TYPE_CHECKING:
    from random import Random

    from canal_server.tablemeta.model.table_schema import Table


def table_of(sql: str, *, mariadb: bool = False) -> Table:
    """Return the table t of a statement."""
    model = MemoryTableMeta(mariadb=mariadb)
    context = Context(schema="d", mariadb=mariadb, explicit_timestamp=False)
    assert not model.apply(None, "d", sql, context).problem
    table = model.find("d", "t")
    assert table is not None
    return table


def again(table: Table, *, mariadb: bool) -> Table | None:
    """Return what loading a table's text makes."""
    model = MemoryTableMeta(mariadb=mariadb)
    model.load("d", table.create_sql(), "t")
    return model.find("d", "t")


def test_meta() -> None:
    """What row events carry: names, types, keys, NULL, in their order."""
    table = table_of(
        "CREATE TABLE t (a INT, b VARCHAR(5) CHARACTER SET latin1 NOT NULL,"
        " g INT AS (a), PRIMARY KEY (B, a))"
    )
    assert [
        (c.name, c.mysql_type, c.charset, c.is_key, c.nullable)
        for c in table.meta.columns
    ] == [
        ("a", "int", None, True, False),
        ("b", "varchar(5)", "latin1", True, False),
        ("g", "int", None, False, True),
    ]
    assert table.primary == ("b", "a")
    assert str(table.meta) == "d.t"


def test_hidden_columns_come_last() -> None:
    """MariaDB's row times and hashes follow the columns, in this order."""
    table = table_of(
        "CREATE TABLE t (a TEXT UNIQUE, b TEXT UNIQUE) WITH SYSTEM VERSIONING",
        mariadb=True,
    )
    assert [(c.name, c.mysql_type) for c in table.meta.columns[2:]] == [
        ("row_start", "timestamp(6)"),
        ("row_end", "timestamp(6)"),
        ("DB_ROW_HASH_1", "bigint(20) unsigned"),
        ("DB_ROW_HASH_2", "bigint(20) unsigned"),
    ]


def test_equal_columns_are_one() -> None:
    """Equal columns of many tables are one object."""
    first = table_of("CREATE TABLE t (a INT, b TEXT)")
    second = table_of("CREATE TABLE t (x DATE, a INT)")
    assert first.columns[0] is second.columns[1]
    assert first.columns[0].with_nullable(True) is first.columns[0]
    assert column("a", "int", True, None, "") is first.columns[0]


def test_quoted() -> None:
    """A back-quote in a name is written twice."""
    assert quoted("a`b") == "`a``b`"


@pytest.mark.parametrize("mariadb", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        "(a INT) ENGINE=InnoDB DEFAULT CHARSET=koi8r COLLATE koi8r_bin",
        "(`a``b` INT, `c d` TEXT, PRIMARY KEY (`a``b`), UNIQUE KEY `x y` (`c d`(5)))",
        "(a ENUM('x','y''z', '\\\\', '\\n') CHARSET ucs2, b SET('1') CHARSET binary)",
        "(a TIMESTAMP, b TIMESTAMP NULL, c TIMESTAMP(3) NOT NULL DEFAULT '2020-01-01')",
        "(a INT AUTO_INCREMENT INVISIBLE KEY, b INT AS (1) STORED, c INT INVISIBLE)",
        "(a INT, FULLTEXT KEY f (b), KEY i (a DESC, b(3)) USING BTREE, b TEXT)",
        "(a TINYINT(1), b BIGINT UNSIGNED ZEROFILL, c DECIMAL(5,2) UNSIGNED, d BIT(3))",
        "(a CHAR(3), b BINARY(3), c BLOB, d JSON, e POINT NOT NULL, f YEAR, g FLOAT)",
    ],
)
def test_text_gives_the_table_again(body: str, mariadb: bool) -> None:
    """Loading the text of a table gives an equal one."""
    table = table_of(f"CREATE TABLE t {body}", mariadb=mariadb)
    assert again(table, mariadb=mariadb) == table


@pytest.mark.parametrize(
    "body",
    [
        "(a INT) WITH SYSTEM VERSIONING",
        (
            "(a INT, s TIMESTAMP(6) AS ROW START INVISIBLE, e TIMESTAMP(6) AS ROW END,"
            " PERIOD FOR SYSTEM_TIME (s, e), PRIMARY KEY (a)) WITH SYSTEM VERSIONING"
        ),
        "(s DATE, e DATE, PERIOD FOR `a p` (s, e), UNIQUE (s, `a p` WITHOUT OVERLAPS))",
        "(a TEXT COMPRESSED, b VARCHAR(5000) UNIQUE, UNIQUE (a))",
        "(a INET6, b UUID, c VARCHAR(3) CHARACTER SET filename)",
    ],
)
def test_text_gives_tables_of_mariadb_again(body: str) -> None:
    """So it does what only MariaDB has."""
    table = table_of(f"CREATE TABLE t {body}", mariadb=True)
    assert again(table, mariadb=True) == table


def test_text_gives_functional_keys_again() -> None:
    """Keys of expressions stay keys, though their expressions are not kept."""
    table = table_of("CREATE TABLE t (a INT, KEY ((a + 1)), UNIQUE u ((a * 2), a))")
    assert [key.name for key in table.keys] == ["functional_index", "u"]
    assert again(table, mariadb=False) == table


TYPES = (
    *("INT", "INT UNSIGNED ZEROFILL", "TINYINT(1)", "BIGINT", "DECIMAL(9,3)", "BIT(5)"),
    *("CHAR(5)", "VARCHAR(70) CHARACTER SET utf8mb4", "VARBINARY(9)", "TEXT(300)"),
    *("LONGBLOB", "ENUM('a','b''')", "SET('x') CHARACTER SET ucs2", "YEAR", "TIME(3)"),
    *("DATETIME", "TIMESTAMP", "TIMESTAMP NULL", "JSON", "POINT", "DOUBLE(5,2)"),
)
ATTRIBUTES = ("", "NOT NULL", "NULL", "INVISIBLE", "COMMENT 'x'", "UNIQUE")


def test_text_of_random_tables(rng: Random) -> None:
    """Loading the text of any table gives an equal one."""
    for _ in range(200):
        mariadb = rng.random() < 0.5
        names = rng.sample(["a", "B", "key", "`", "x y", "é", "1", "select"], 4)
        parts = []
        for name in names:
            definition = f"{quoted(name)} {rng.choice(TYPES)}"
            keyed = rng.choice(ATTRIBUTES)
            if keyed == "UNIQUE" and not mariadb and "BLOB" in definition:
                keyed = ""
            parts.append(f"{definition} {keyed}")
        if rng.random() < 0.5:
            chosen = ", ".join(map(quoted, rng.sample(names, 2)))
            parts.append(f"PRIMARY KEY ({chosen})")
        if rng.random() < 0.5:
            parts.append(f"KEY ({quoted(rng.choice(names))})")
        options = rng.choice(["", "ENGINE=MyISAM", "CHARSET koi8r", "CHARSET=binary"])
        sql = f"CREATE TABLE t ({', '.join(parts)}) {options}"
        table = table_of(sql, mariadb=mariadb)
        assert again(table, mariadb=mariadb) == table, sql
