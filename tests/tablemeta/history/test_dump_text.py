"""Schema dumps as mysqldump and mariadb-dump write them."""

from __future__ import annotations

import pytest
from fix_table_history import TRAITS

from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.history.dump_text import (
    position_in_dump,
    read_dump,
    statements,
)
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.tables.schemas import read_table

DUMP = """\
-- MySQL dump 10.13  Distrib 9.7.0, for Linux (x86_64); with 'quotes
/*!40101 SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT */;
/*!50606 SET GLOBAL INNODB_STATS_AUTO_RECALC=@OLD_INNODB_STATS_AUTO_RECALC */;
--
-- Position to start replication or point-in-time recovery from
--
-- CHANGE REPLICATION SOURCE TO SOURCE_LOG_FILE='binlog.000007', SOURCE_LOG_POS=1234;

CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop` /*!40100 CHARACTER SET latin1 */;

USE `shop`;
DROP TABLE IF EXISTS `book`;
/*!50503 SET character_set_client = utf8mb4 */;
CREATE TABLE `book` (
  `id` int NOT NULL,
  `note` varchar(10) DEFAULT 'a;b\\\\' COMMENT 'it''s; -- no comment',
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
/*!50001 CREATE VIEW `cheap` AS SELECT 1 AS `id`*/;
DELIMITER ;;
/*!50003 CREATE*/ /*!50003 TRIGGER `x` BEFORE INSERT ON `book` FOR EACH ROW BEGIN
  DROP TABLE book; SET NEW.id = 1; END */;;
DELIMITER ;
CREATE TABLE `plain` (`t` text);
USE other
;
CREATE TABLE `book` (`x;y` int)
"""


def table_of(schema, name, sql):
    """Read the definition of a table, as it must be readable."""
    found = read_table((schema, name), sql, Context(schema))
    assert found is not None
    return found


def columns_of(text, **options):
    """Return names of schemas, of their tables and of the columns."""
    found = read_dump(text, TRAITS, **options)
    assert found.problems == ()
    return {
        schema.name: {
            table: [column.name for column in table_of(schema.name, table, sql).columns]
            for table, sql in schema.tables
        }
        for schema in found.schemas
    }


def test_a_dump():
    """Tables of several schemas are found, between much else."""
    assert columns_of(DUMP) == {
        "shop": {"book": ["id", "note"], "plain": ["t"]},
        "other": {"book": ["x;y"]},
    }


def test_what_else_is_kept():
    """A dump's schemas keep their character set, views their name."""
    shop, other = read_dump(DUMP, TRAITS).schemas
    assert shop.collation.startswith("latin1")
    assert shop.views == ("cheap",)
    plain = table_of("shop", "plain", dict(shop.tables)["plain"])
    assert plain.columns[0].charset == "latin1"
    assert other.collation == ""


def test_a_dump_without_schema():
    """A dump of one schema does not name it; the reader must."""
    text = "CREATE TABLE t (a int);"
    assert columns_of(text, schema="x") == {"x": {"t": ["a"]}}
    with pytest.raises(ValueError, match="no USE before its tables"):
        read_dump(text, TRAITS)


def test_what_nobody_can_read_is_reported():
    """A table whose columns are not in the text is a problem, and uncertain."""
    found = read_dump("USE a; CREATE TABLE t SELECT 1 AS x;", TRAITS)
    assert len(found.problems) == 1
    assert found.schemas[0].uncertain == ("t",)


@pytest.mark.parametrize(
    "text",
    [
        "CHANGE MASTER TO MASTER_LOG_FILE='binlog.000007', MASTER_LOG_POS=1234;",
        "-- CHANGE MASTER TO MASTER_LOG_FILE='binlog.000007', MASTER_LOG_POS=1234;",
        DUMP,
    ],
)
def test_the_position_of_a_dump(text):
    """The position is found in the form of each option of the dumping program."""
    assert position_in_dump(text) == EntryPosition("binlog.000007", 1234)


def test_a_dump_without_a_position():
    """Without the option there is no position."""
    assert position_in_dump("CREATE TABLE t (a int); -- SOURCE_LOG_POS=4") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        (" ;; ; ", []),
        ("a;b", ["a", "b"]),
        ("a';'b;c", ["a';'b", "c"]),
        ('a"\\";"b;c', ['a"\\";"b', "c"]),
        ("a`;``;`b;c", ["a`;``;`b", "c"]),
        ("a/*;*/b;c", ["a/*;*/b", "c"]),
        ("/* x; */ a;", ["a"]),
        ("-- x;\na -- y;\nb;c", ["a -- y;\nb", "c"]),
        ("# x;\na", ["a"]),
        ("a--b;c", ["a--b", "c"]),
        ("a-1;5/3;#", ["a-1", "5/3"]),
        ("delimiter $$\na;b$$\nDELIMITER ;\nc;d", ["a;b", "c", "d"]),
        ("a'open;b", ["a'open", "b"]),
        ("a/*open;b", ["a/*open", "b"]),
    ],
)
def test_statements(text, found):
    """Delimiters end statements, but not in texts, names and comments."""
    assert list(statements(text)) == found


def test_many_statements():
    """Each statement of a long script is found."""
    one = "INSERT INTO t VALUES (1,'a''b\\'c;'),(2,NULL);\n"
    assert sum(1 for _ in statements(one * 5000)) == 5000
