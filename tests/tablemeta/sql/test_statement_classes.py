"""The class, the names and the reach of every kind of statement."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from canal_server.doors.sqltext import Dialect
from canal_server.model.ddl_statement import Statement
from canal_server.model.entry import EventType
from canal_server.tablemeta.sql.statement_classes import (
    classify,
    examine,
    table_of_statement,
)

CLASSES = Path(__file__).parents[2] / "data" / "ddl_classes.jsonl"

ALTER = EventType.ALTER
CINDEX = EventType.CINDEX
CREATE = EventType.CREATE
DINDEX = EventType.DINDEX
ERASE = EventType.ERASE
QUERY = EventType.QUERY
RENAME = EventType.RENAME
TRUNCATE = EventType.TRUNCATE
NO_TABLE = [Statement(QUERY)]


def test_recorded_statements():
    """Statements that servers logged are what clients of canal know them as.

    `expected` is type, schema and table of the entry, null if it has none.
    """
    count = 0
    for line in CLASSES.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        options = dict.fromkeys(case["options"], True)
        found = classify(case["sql"], case["schema"], **options)
        first = (
            [found[0].event_type.name, found[0].schema or "", found[0].table or ""]
            if found
            else None
        )
        assert first == case["expected"], case["sql"]
        assert all(
            each.is_dml is (each.event_type.name in ("INSERT", "UPDATE", "DELETE"))
            for each in found
        )
        count += 1
    assert count > 300


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE TABLE t (a INT)", [(CREATE, "db", "t")]),
        ("create table other.t (a int)", [(CREATE, "other", "t")]),
        ("CREATE TABLE IF NOT EXISTS `o`.`t` LIKE u", [(CREATE, "o", "t")]),
        ("CREATE TEMPORARY TABLE t SELECT 1", [(CREATE, "db", "t")]),
        ("CREATE OR REPLACE TABLE t (a INT)", [(CREATE, "db", "t")]),
        ("CREATE OR REPLACE TEMPORARY TABLE t (a INT)", [(CREATE, "db", "t")]),
        ("CREATE TABLE `a``b` (a INT)", [(CREATE, "db", "a`b")]),
        ("CREATE TABLE `t`(a INT)", [(CREATE, "db", "t")]),
        ("CREATE TABLE 1a.2b (a INT)", [(CREATE, "1a", "2b")]),
        ("CREATE TABLE .t (a INT)", [(CREATE, "db", "t")]),
        ("DROP TABLE a, `o`.b RESTRICT", [(ERASE, "db", "a"), (ERASE, "o", "b")]),
        ("DROP TABLES IF EXISTS a WAIT 5", [(ERASE, "db", "a")]),
        ("DROP TEMPORARY TABLE a", [(ERASE, "db", "a")]),
        ("TRUNCATE o.t", [(TRUNCATE, "o", "t")]),
        ("TRUNCATE TABLE t NOWAIT", [(TRUNCATE, "db", "t")]),
        ("CREATE UNIQUE INDEX i USING HASH ON o.t (a)", [(CINDEX, "o", "t")]),
        ("CREATE OR REPLACE INDEX i ON t (a)", [(CINDEX, "db", "t")]),
        ("CREATE FULLTEXT INDEX IF NOT EXISTS i ON t (a)", [(CINDEX, "db", "t")]),
        ("CREATE SPATIAL INDEX i ON t (a)", [(CINDEX, "db", "t")]),
        ("DROP INDEX `PRIMARY` ON t", [(DINDEX, "db", "t")]),
        ("DROP INDEX IF EXISTS i ON t", [(DINDEX, "db", "t")]),
        ("/*!40000 ALTER TABLE t DISABLE KEYS */", [(ALTER, "db", "t")]),
        ("/*!50100 DROP TABLE t */", [(ERASE, "db", "t")]),
        ("SET STATEMENT a=1, b=(2) FOR DROP TABLE t", [(ERASE, "db", "t")]),
        ("CREATE DATABASE `a``b c`", [(QUERY, "a`b c", None)]),
        ("CREATE SCHEMA IF NOT EXISTS s", [(QUERY, "s", None)]),
        ("CREATE OR REPLACE DATABASE s", [(QUERY, "s", None)]),
        ("DROP DATABASE IF EXISTS s", [(QUERY, "s", None)]),
        ("DROP SCHEMA `s`", [(QUERY, "s", None)]),
    ],
)
def test_structure(sql, expected):
    """Statements on tables and schemas have their type and their names."""
    found = classify(sql, "db")
    assert [(each.event_type, each.schema, each.table) for each in found] == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("RENAME TABLE a TO b", [("db", "b", "db", "a")]),
        (
            "RENAME TABLES x.a TO y.b, `c` WAIT 3 TO d",
            [("y", "b", "x", "a"), ("db", "d", "db", "c")],
        ),
        ("RENAME TABLE IF EXISTS a TO b", [("db", "b", "db", "a")]),
        ("ALTER TABLE x.a RENAME b", [("db", "b", "x", "a")]),
        ("ALTER TABLE a RENAME TO y.b", [("y", "b", "db", "a")]),
        ("ALTER TABLE a RENAME AS b", [("db", "b", "db", "a")]),
        ("ALTER TABLE a RENAME = `to`", [("db", "to", "db", "a")]),
    ],
)
def test_rename(sql, expected):
    """A rename has its new name first, together with the old one."""
    found = classify(sql, "db")
    assert found == [Statement(RENAME, *names) for names in expected]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("INSERT INTO t VALUES (1)", (EventType.INSERT, "db", "t")),
        ("insert low_priority ignore o.t select 1", (EventType.INSERT, "o", "t")),
        ("UPDATE t SET a=1", (EventType.UPDATE, "db", "t")),
        ("UPDATE IGNORE t AS x SET a=1, b=2", (EventType.UPDATE, "db", "t")),
        ("UPDATE t PARTITION (p, q) SET a=1", (EventType.UPDATE, "db", "t")),
        ("UPDATE a, b SET a.x=b.x", (EventType.UPDATE, None, None)),
        ("UPDATE a JOIN b USING (i) SET x=1", (EventType.UPDATE, None, None)),
        ("UPDATE (a, b) SET x=1", (EventType.UPDATE, None, None)),
        ("DELETE FROM t WHERE a IN (1, 2)", (EventType.DELETE, "db", "t")),
        ("DELETE QUICK FROM t", (EventType.DELETE, "db", "t")),
        ("DELETE t FROM t JOIN u", (EventType.DELETE, "db", "t")),
        ("DELETE FROM t USING t, u", (EventType.DELETE, "db", "t")),
        ("DELETE a, b FROM a JOIN b", (EventType.DELETE, None, None)),
        ("DELETE HISTORY FROM t", (EventType.DELETE, "db", "t")),
        ("WITH x AS (SELECT 1) UPDATE t SET a=1", (EventType.UPDATE, "db", "t")),
        ("WITH x AS (DELETE) DELETE FROM t", (EventType.DELETE, "db", "t")),
    ],
)
def test_dml(sql, expected):
    """Statement DML names its table when there is one."""
    event_type, schema, table = expected
    found = classify(sql, "db")
    assert found == [Statement(event_type, schema, table, is_dml=True)]


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "  /* nothing */ ;",
        "# Dummy event",
        "CREATE VIEW v AS SELECT 1",
        "CREATE OR REPLACE ALGORITHM=MERGE DEFINER=`a`@`b` VIEW v AS SELECT 1",
        "CREATE DEFINER=`r`@`%` TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET @a=1",
        "CREATE DEFINER=`r`@`%` PROCEDURE p() BEGIN DROP TABLE t; END",
        "CREATE AGGREGATE FUNCTION f RETURNS INT SONAME 'x'",
        "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO DROP TABLE t",
        "CREATE SEQUENCE s",
        "CREATE USER u",
        "CREATE SERVER s FOREIGN DATA WRAPPER w OPTIONS (HOST 'h')",
        "DROP VIEW v",
        "DROP PROCEDURE IF EXISTS p",
        "DROP TRIGGER x",
        "DROP USER u",
        "DROP TABLESPACE s",
        "ALTER DATABASE d CHARACTER SET utf8mb4",
        "ALTER DEFINER=`r`@`%` EVENT e DISABLE",
        "ALTER SEQUENCE s RESTART",
        "ALTER USER u ACCOUNT LOCK",
        "RENAME USER a TO b",
        "GRANT ALL ON *.* TO u",
        "SET PASSWORD FOR u = 'x'",
        "SAVEPOINT `s`",
        "ROLLBACK TO `s`",
        "ANALYZE TABLE t",
        "OPTIMIZE TABLE t",
        "FLUSH TABLES",
        "REPLACE INTO t VALUES (1)",
        "LOAD DATA INFILE 'x' INTO TABLE t",
        "(SELECT 1) UNION (SELECT 2)",
        "ALTER TABLE t",
        "ALTER TABLE t PARTITION BY HASH (a)",
        "ALTER TABLE t REMOVE PARTITIONING",
        "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES u (a)",
        "ALTER TABLE t ADD CONSTRAINT c FOREIGN KEY (a) REFERENCES u (a)",
        "ALTER TABLE t ADD CONSTRAINT CHECK (a > 0)",
    ],
)
def test_silent(sql):
    """Clients receive no statements that do not affect rows and columns."""
    assert classify(sql, "db") == []


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER VIEW v AS SELECT 1",
        "ALTER ALGORITHM=MERGE DEFINER=`r`@`%` SQL SECURITY DEFINER VIEW v AS TABLE t",
        "REPAIR TABLE t",
        "CREATE SPATIAL REFERENCE SYSTEM 1 NAME 'x'",
        "DROP SPATIAL REFERENCE SYSTEM 1",
        "INSTALL PLUGIN p SONAME 'x'",
        "DO SLEEP(1)",
        "XA PREPARE 'x'",
        "ALTER TABLE t SECONDARY_LOAD",
    ],
)
def test_queries_without_names(sql):
    """What the original could not read comes as a QUERY without names."""
    assert classify(sql, "db") == NO_TABLE


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE `t ADD COLUMN a INT",
        "DROP TABLE 'secret'",
        "CREATE TABLE (a INT)",
        "CREATE TABLE a.b.c (a INT)",
        "RENAME TABLE a b",
        "ALTER TABLE",
        "CREATE INDEX i",
        "INSERT INTO",
        "DROP TABLE t, 'secret",
    ],
)
def test_unreadable(sql, caplog):
    """What cannot be read is a QUERY, may concern every table, and is logged."""
    with caplog.at_level(logging.WARNING):
        found = examine(sql, "db", Dialect())
    assert found.statements == NO_TABLE
    assert found.stale.everything
    assert found.problem
    assert "cannot be parsed" in caplog.text
    assert "secret'," not in caplog.text


def test_unknown_objects_may_hold_tables():
    """A kind of thing that does not exist yet makes everything doubtful."""
    for verb in ("CREATE", "DROP", "ALTER"):
        found = examine(f"{verb} GALAXY g", "db", Dialect())
        assert found.statements == NO_TABLE
        assert found.stale.everything
        assert not found.problem


@pytest.mark.parametrize(
    ("sql", "tables", "schemas"),
    [
        ("CREATE TABLE t (a INT)", {("db", "t")}, set()),
        ("DROP TABLE t, o.u", {("db", "t"), ("o", "u")}, set()),
        ("RENAME TABLE t TO o.u", {("db", "t"), ("o", "u")}, set()),
        (
            "ALTER TABLE t CHANGE a b CHAR(9) DEFAULT 'x', RENAME u",
            {("db", "t"), ("db", "u")},
            set(),
        ),
        ("ALTER TABLE t PARTITION BY HASH (a)", {("db", "t")}, set()),
        (
            "ALTER TABLE t CONVERT PARTITION p TO TABLE u",
            {("db", "t"), ("db", "u")},
            set(),
        ),
        (
            "ALTER TABLE t CONVERT TABLE o.u TO PARTITION p VALUES IN (1)",
            {("db", "t"), ("o", "u")},
            set(),
        ),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", {("db", "t")}, set()),
        ("DROP INDEX `PRIMARY` ON t", {("db", "t")}, set()),
        ("CREATE INDEX i ON t (a)", {("db", "t")}, set()),
        ("CREATE SEQUENCE IF NOT EXISTS s", {("db", "s")}, set()),
        ("DROP SEQUENCE s, o.s2", {("db", "s"), ("o", "s2")}, set()),
        ("DROP DATABASE `o`", set(), {"o"}),
        ("CREATE OR REPLACE DATABASE o", set(), {"o"}),
        ("TRUNCATE t", set(), set()),
        ("INSERT INTO t VALUES (1)", set(), set()),
        ("ALTER EVENT e DISABLE", set(), set()),
        ("CREATE DEFINER=u@h PROCEDURE p() CREATE VIEW v AS SELECT 1", set(), set()),
    ],
)
def test_stale(sql, tables, schemas):
    """Exactly the tables whose columns a statement may change are named."""
    stale = examine(sql, "db", Dialect()).stale
    assert (stale.tables, stale.schemas) == (tables, schemas)
    assert not stale.everything
    assert bool(stale) is bool(tables or schemas)


@pytest.mark.parametrize(
    ("sql", "defaults", "names"),
    [
        ("CREATE TEMPORARY TABLE t (a INT)", set(), True),
        ("DROP TEMPORARY TABLE t", set(), True),
        ("CREATE VIEW v AS SELECT 1", set(), True),
        (
            "CREATE OR REPLACE ALGORITHM=MERGE DEFINER=u@h VIEW v AS SELECT 1",
            set(),
            True,
        ),
        ("DROP VIEW v", set(), True),
        ("ALTER DATABASE o CHARACTER SET latin1", {"db", "o"}, False),
        ("ALTER SCHEMA COLLATE latin1_bin", {"db", "COLLATE"}, False),
    ],
)
def test_what_later_statements_mean(sql, defaults, names):
    """No columns change, but the history must know of it."""
    stale = examine(sql, "db", Dialect()).stale
    assert stale
    assert not (stale.tables)
    assert not (stale.schemas)
    assert not (stale.everything)
    assert (stale.defaults, stale.names) == (defaults, names)


def test_no_default_schema():
    """Without a default schema an unqualified table has none."""
    assert classify("DROP TABLE t", "") == [Statement(ERASE, None, "t")]


def test_modes():
    """Double quotes are names with ANSI_QUOTES, and where a name must be."""
    sql = 'CREATE TABLE "a""b" (c INT)'
    for ansi_quotes in (True, False):
        assert classify(sql, "db", ansi_quotes=ansi_quotes) == [
            Statement(CREATE, "db", 'a"b')
        ]
    sql = "ALTER TABLE t COMMENT 'x\\', ADD INDEX (a)"
    assert classify(sql, "db", no_backslash_escapes=True)[0].event_type is ALTER


def test_comments_of_the_other_server():
    """Executable comments count on the server that reads them."""
    sql = "ALTER TABLE t ADD INDEX i (a) /*M!100301 , ADD COLUMN b INT */"
    assert len(classify(sql, "db", mariadb=True)) == 2
    assert len(classify(sql, "db", mariadb=False)) == 1
    sql = "ALTER TABLE t ADD INDEX i (a) /*!80000 , ADD COLUMN b INT */"
    assert len(classify(sql, "db", mariadb=True)) == 1
    assert len(classify(sql, "db", mariadb=False)) == 2


def test_long_statements():
    """Of long DML and CREATE TABLE the head is enough, of lists all is read."""
    values = ",".join(f"({i},'it''s {i}')" for i in range(20_000))
    assert classify(f"INSERT INTO t VALUES {values}, 'no end", "db") == [
        Statement(EventType.INSERT, "db", "t", is_dml=True)
    ]
    names = ",".join(f"`t{i}`" for i in range(2000))
    assert len(classify(f"DROP TABLE {names}", "db")) == 2000
    columns = ",".join(f"ADD COLUMN c{i} INT" for i in range(500))
    found = classify(f"ALTER TABLE t {columns}, RENAME TO u", "db")
    assert found[-1] == Statement(RENAME, "db", "u", "db", "t")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("INSERT INTO o.t VALUES (1,'a')", "t"),
        ("UPDATE t /* hint */ SET v='b' WHERE id=1", "t"),
        ("DELETE FROM `a``b`", "a`b"),
        ("REPLACE INTO t VALUES (1)", None),
        ("CREATE TABLE t AS SELECT 1", "t"),
        ("UPDATE a, b SET x=1", None),
        ("INSERT INTO t VALUES ('x", None),
        ("INSERT INTO", None),
        ("", None),
    ],
)
def test_table_of_statement(sql, expected, caplog):
    """The table of a logged statement is its unqualified name, or none, silently."""
    assert table_of_statement(sql) == expected
    assert caplog.records == []
