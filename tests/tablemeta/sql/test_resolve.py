"""Statements into operations: which there are, and which touch no table."""

from __future__ import annotations

import pytest

from canal_server.tablemeta.model.operations import (
    AlterTable,
    CreateTable,
    CreateView,
    DropTables,
    DropViews,
    RenameTables,
    Unknown,
)
from canal_server.tablemeta.model.session_context import (
    ANSI_QUOTES,
    NO_BACKSLASH_ESCAPES,
    Context,
)
from canal_server.tablemeta.sql.resolve import resolve

MYSQL = Context(schema="d")
MARIADB = Context(schema="d", mariadb=True)


def columns(sql: str, context: Context = MYSQL) -> list[str]:
    """Return the names of the columns that a CREATE TABLE makes."""
    (operation,) = resolve(sql, context)
    assert isinstance(operation, CreateTable), operation
    return [each.name for each in operation.columns]


@pytest.mark.parametrize(
    "sql",
    [
        "",
        ";",
        "-- nothing",
        "/* nothing */",
        "BEGIN",
        "COMMIT",
        "XA START 'x'",
        "INSERT INTO t VALUES ('DROP TABLE t')",
        "(SELECT 1) UNION (SELECT 2)",
        "WITH x AS (SELECT 1) DELETE FROM t",
        "TRUNCATE TABLE t",
        "ANALYZE TABLE t",
        "OPTIMIZE NO_WRITE_TO_BINLOG TABLE t",
        "GRANT ALL ON *.* TO x IDENTIFIED BY 'y",
        "FLUSH TABLES",
        "SET PASSWORD = 'x'",
        "SET STATEMENT max_statement_time=1 FOR ANALYZE TABLE t",
        "CREATE USER x",
        "CREATE OR REPLACE ROLE x",
        "CREATE DEFINER=`x`@`%` PROCEDURE p() DROP TABLE t",
        "CREATE DEFINER=CURRENT_USER() TRIGGER x BEFORE INSERT ON t FOR EACH ROW DO 1",
        "CREATE DEFINER=x@my.host-name EVENT e ON SCHEDULE EVERY 1 DAY DO DROP TABLE t",
        "CREATE AGGREGATE FUNCTION f RETURNS INT SONAME 'x'",
        "CREATE FUNCTION f() RETURNS INT BEGIN DROP TABLE t; RETURN 1; END",
        "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'x')",
        "CREATE SPATIAL REFERENCE SYSTEM 5 NAME 'x' DEFINITION 'y'",
        "CREATE UNDO TABLESPACE x ADD DATAFILE 'y'",
        "CREATE RESOURCE GROUP x TYPE=USER",
        "CREATE PACKAGE BODY p AS END",
        "ALTER USER x ACCOUNT LOCK",
        "ALTER DEFINER=x EVENT e DISABLE",
        "ALTER SQL SECURITY INVOKER VIEW v AS SELECT 1",
        "ALTER INSTANCE ROTATE INNODB MASTER KEY",
        "ALTER DATABASE d READ ONLY = 1",
        "ALTER SEQUENCE s RESTART 5",
        "DROP PROCEDURE IF EXISTS p",
        "DROP TRIGGER t",
        "DROP USER x",
        "DROP SPATIAL REFERENCE SYSTEM 5",
        "DROP PREPARE x",
        "RENAME USER x TO y",
    ],
)
def test_statements_without_tables(sql: str) -> None:
    """What touches no table is recognized, not called unknown."""
    assert resolve(sql, MARIADB) == []


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIEW v AS SELECT 1",
        (
            "CREATE OR REPLACE ALGORITHM=MERGE DEFINER='x'@'%' SQL SECURITY INVOKER"
            " VIEW v AS SELECT 1"
        ),
        "CREATE OR REPLACE JSON RELATIONAL DUALITY VIEW v AS SELECT 1",
        "CREATE VIEW IF NOT EXISTS v AS SELECT '" + "x" * 10_000 + "'",
    ],
)
def test_views(sql: str) -> None:
    """A view is recognized whatever precedes it, and its query is not parsed."""
    (operation,) = resolve(sql, MYSQL)
    assert isinstance(operation, CreateView)
    assert operation.name == ("d", "v")


def test_lists_of_names() -> None:
    """Statements on several tables name them all, with and without schemas."""
    assert resolve("DROP TABLES IF EXISTS a, `e`.`b`, .c CASCADE", MYSQL) == [
        DropTables((("d", "a"), ("e", "b"), ("d", "c")))
    ]
    assert resolve("DROP VIEW a, e.b", MYSQL) == [DropViews((("d", "a"), ("e", "b")))]
    sql = "RENAME TABLES a TO e.b, e . `b` WAIT 5 TO c"
    assert resolve(sql, MARIADB) == [
        RenameTables(((("d", "a"), ("e", "b")), (("e", "b"), ("d", "c"))))
    ]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE TABLE t (a INT)", ["a"]),
        ("CREATE TABLE t(`key` INT,KEY(`key`),b INT)", ["key", "b"]),
        ("CREATE TABLE t (t.a INT, d.t.b INT, .c INT)", ["a", "b", "c"]),
        ("CREATE TABLE t (1a INT, $b INT, a$1 INT, 表 INT)", ["1a", "$b", "a$1", "表"]),
        (
            "CREATE TABLE t (period INT, vector INT, comment INT)",
            ["period", "vector", "comment"],
        ),
        ("CREATE TABLE t (a INT DEFAULT 'x,y)' COMMENT '(', b INT)", ["a", "b"]),
        ("CREATE TABLE t (a INT -- ), b INT\n, /* c INT, */ d INT # x\n)", ["a", "d"]),
        (
            "CREATE TABLE t (a INT /*!50100 , b INT */ /*!99998, c INT*/)",
            ["a", "b", "c"],
        ),
        ("CREATE TABLE t (a INT, CONSTRAINT CHECK (a > (1)), b INT)", ["a", "b"]),
        (
            "CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES x (y, z), b INT)",
            ["a", "b"],
        ),
        ("CREATE TABLE t (a INT) ENGINE=x UNION=(u,v) COMMENT='SELECT'", ["a"]),
        (
            "CREATE TABLE t (a INT) PARTITION BY LIST (a) (PARTITION p VALUES IN (1))",
            ["a"],
        ),
        ("CREATE TABLE t (a INT) START TRANSACTION", ["a"]),
        ("CREATE TABLE t (a INT) TABLESPACE x, DEFAULT CHARSET utf8;", ["a"]),
        ('CREATE TABLE t (a ENUM("x", \'y\'), b INT DEFAULT "it\'s")', ["a", "b"]),
    ],
)
def test_columns(sql: str, expected: list[str]) -> None:
    """Columns are recognized among all that is between and after them."""
    assert columns(sql) == expected


def test_modes() -> None:
    """The mode decides what double quotes and backslashes mean."""
    ansi = Context(schema="d", sql_mode=ANSI_QUOTES)
    assert columns('CREATE TABLE "t" ("a""b" INT, c INT DEFAULT \'"\')', ansi) == [
        'a"b',
        "c",
    ]
    plain = Context(schema="d", sql_mode=NO_BACKSLASH_ESCAPES)
    assert columns("CREATE TABLE t (a CHAR DEFAULT '\\', b INT)", plain) == ["a", "b"]


@pytest.mark.parametrize(
    ("sql", "is_open"),
    [
        ("CREATE TABLE t (a INT)", False),
        ("CREATE TABLE t (a INT) SELECT 1", True),
        ("CREATE TABLE t (a INT) ENGINE=MyISAM IGNORE AS (SELECT 1)", True),
        ("CREATE TABLE t AS WITH x AS (SELECT 1) SELECT * FROM x", True),
        ("CREATE TABLE t AS TABLE u", True),
        ("CREATE TABLE t VALUES ROW(1)", True),
        ("CREATE TABLE t ((SELECT 1))", True),
        ("CREATE TABLE t (a INT) WITH SYSTEM VERSIONING", False),
        ("CREATE TABLE t (a INT) WITH SYSTEM VERSIONING SELECT 1", True),
        ("CREATE TABLE t ENGINE=CONNECT", True),
    ],
)
def test_open(sql: str, is_open: bool) -> None:
    """A query after the definition adds columns that the text does not determine."""
    (operation,) = resolve(sql, MARIADB)
    assert isinstance(operation, CreateTable)
    assert operation.is_open is is_open


def test_keys_of_create_index() -> None:
    """CREATE INDEX adds a key, as ALTER TABLE does."""
    sql = (
        "CREATE OR REPLACE UNIQUE INDEX IF NOT EXISTS i USING HASH ON e.t(a(5) DESC,b)"
    )
    (operation,) = resolve(sql, MARIADB)
    assert isinstance(operation, AlterTable)
    assert operation.name == ("e", "t")
    (item,) = operation.items
    assert item.key.name == "i"  # type: ignore[union-attr]
    assert item.key.kind == "UNIQUE"  # type: ignore[union-attr]
    assert item.key.hashed  # type: ignore[union-attr]
    assert [(p.column, p.length) for p in item.key.parts] == [("a", 5), ("b", 0)]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("CREATE TABLE t (a INT", (("d", "t"),)),
        ("CREATE TABLE t (a INT b 'unfinished)", ()),
        ("ALTER TABLE e.t ADD", (("e", "t"),)),
        ("DROP TABLE a, b, ,", (("d", "a"), ("d", "b"))),
        ("RENAME TABLE a b", (("d", "a"),)),
        ("DROP", ()),
    ],
)
def test_unknown(sql: str, names: tuple[tuple[str, str], ...]) -> None:
    """What cannot be read is reported, with the tables that were read before."""
    (operation,) = resolve(sql, MYSQL)
    assert isinstance(operation, Unknown)
    assert operation.problem
    assert operation.names == names


def test_any_text_is_survived(rng) -> None:
    """Pieces of statements in any order never raise."""
    words = [
        "CREATE",
        "TABLE",
        "ALTER",
        "DROP",
        "RENAME",
        "ADD",
        "COLUMN",
        "(",
        ")",
        ",",
        ";",
        ".",
        "a",
        "`b`",
        "'c'",
        '"',
        "1",
        "INT",
        "ENUM",
        "PRIMARY",
        "KEY",
        "NOT",
        "NULL",
        "DEFAULT",
        "AS",
        "TO",
        "LIKE",
        "FIRST",
        "AFTER",
        "/*",
        "*/",
        "/*!",
        "--",
        "#",
        "=",
        "x'41'",
        "CHARACTER",
        "SET",
        "CONVERT",
        "PARTITION",
        "BY",
        "DATABASE",
        "INDEX",
        "ON",
        "REFERENCES",
        "CASE",
    ]
    for _ in range(2000):
        sql = " ".join(rng.choices(words, k=rng.randrange(1, 25)))
        operations = resolve(sql, rng.choice([MYSQL, MARIADB]))
        assert isinstance(operations, list), sql


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (a INT FROBNICATE)",
        "CREATE TABLE t (a INT) FROBNICATE 5",
        "CREATE TABLE t (a INT) ENGINE=InnoDB DATA x",
        "CREATE DATABASE d FROBNICATE",
    ],
)
def test_unknown_words_in_definitions(sql: str) -> None:
    """An unknown word is reported, not skipped."""
    (operation,) = resolve(sql, Context(schema="d"))
    assert isinstance(operation, Unknown)


@pytest.mark.parametrize(
    "options",
    [
        "PARTITION BY LIST COLUMNS (a) (PARTITION p VALUES IN (1), PARTITION q)",
        "ENGINE=x (SELECT 1)",
        "IGNORE AS SELECT 1",
        "REPLACE SELECT 1",
        "PARTITION BY HASH (a) PARTITIONS 2 SELECT 1",
        "START TRANSACTION",
        "FILE_FORMAT=(FORMAT csv) FILES=(URI 'x')",
        "DEFAULT CHARACTER SET = utf8mb4, COLLATE utf8mb4_bin",
        "TABLESPACE `x` STORAGE MEMORY ENGINE_ATTRIBUTE '{}' WITH SYSTEM VERSIONING",
    ],
)
def test_known_options(options: str) -> None:
    """Options, partitions and queries may follow the columns."""
    (operation,) = resolve(f"CREATE TABLE t (a INT) {options}", Context(schema="d"))
    assert isinstance(operation, CreateTable)
    assert operation.is_open == ("SELECT" in options)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (",".join(f"c{n} INT" for n in range(4097)), "more than 4096 columns"),
        ("a INT" + ", KEY (a)" * 256, "more than 255 keys"),
    ],
)
def test_more_than_a_table_can_have(body, problem):
    """A statement that no server executes is unknown, with its table."""
    sql = f"CREATE TABLE t ({body})"
    assert resolve(sql, MYSQL) == [Unknown(problem, (("d", "t"),))]
    most = ",".join(f"c{n} INT" for n in range(4096))
    assert len(columns(f"CREATE TABLE t ({most})")) == 4096


def test_more_changes_than_a_table_can_have():
    """An ALTER TABLE of too many changes is unknown, with its table."""
    sql = "ALTER TABLE t " + ",".join(["MODIFY a INT"] * 8193)
    problem = "more than 8192 changes of one table"
    assert resolve(sql, MYSQL) == [Unknown(problem, (("d", "t"),))]
