"""Which changes of type keep every value, and which may make others of some."""

from __future__ import annotations

import itertools

import pytest

from canal_server.mirror.ddl.widening import Outcome, definitions_of, outcome
from canal_server.model.columns_known import ColumnMeta

SAME, WIDER, UNKNOWN = Outcome.SAME, Outcome.WIDER, Outcome.UNKNOWN


def column(text: str) -> ColumnMeta:
    """Return a column; its character set follows a |."""
    mysql_type, _, charset = text.partition("|")
    is_text = any(word in mysql_type for word in ("char", "text", "enum(", "set("))
    return ColumnMeta("c", mysql_type, charset or ("utf8mb4" if is_text else None))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("int", "bigint", WIDER),
        ("int(11)", "int(3)", SAME),
        ("tinyint unsigned", "smallint", SAME),  # both are 16 bits in the lake
        ("tinyint(1)", "int unsigned", UNKNOWN),
        ("int unsigned", "bigint", SAME),
        ("int unsigned", "int", UNKNOWN),
        ("int unsigned", "bigint unsigned", WIDER),
        ("bigint", "int", UNKNOWN),
        ("int", "decimal(20,0)", UNKNOWN),
        ("int", "double", UNKNOWN),
        ("int(8) unsigned zerofill", "int unsigned", SAME),
        ("decimal(10,2)", "decimal(12,2)", WIDER),
        ("decimal(10,2)", "decimal(12,4)", WIDER),
        ("decimal(10,2)", "decimal(11,4)", UNKNOWN),
        ("decimal(10,2)", "decimal(12,2) unsigned", UNKNOWN),
        ("decimal(38,2)", "decimal(40,2)", UNKNOWN),  # a text in the lake
        ("decimal(40,2)", "decimal(42,2)", SAME),
        ("decimal(40,2)", "decimal(45,3)", UNKNOWN),
        ("float", "double", WIDER),
        ("double", "float", UNKNOWN),
        ("float", "float(7,2)", UNKNOWN),
        ("float(7,2)", "double", WIDER),
        ("datetime", "datetime(6)", SAME),
        ("datetime(6)", "datetime(3)", UNKNOWN),
        ("datetime", "timestamp", UNKNOWN),
        ("date", "datetime", UNKNOWN),
        ("time", "time(3)", UNKNOWN),  # a text with more digits
        ("bit(3)", "bit(9)", SAME),
        ("bit(9)", "bit(3)", UNKNOWN),
        ("varchar(9)", "varchar(90)", SAME),
        ("varchar(90)", "varchar(9)", UNKNOWN),
        ("char(9)", "varchar(9)", SAME),
        ("varchar(9)", "char(9)", UNKNOWN),
        ("char", "char(2)", SAME),
        ("varchar(63)", "tinytext", SAME),
        ("varchar(64)", "tinytext", UNKNOWN),
        ("text", "longtext", SAME),
        ("longtext", "text", UNKNOWN),
        ("text", "varchar(1000)", UNKNOWN),
        ("varchar(9)|latin1", "varchar(9)|utf8mb4", SAME),
        ("varchar(9)|utf8mb4", "varchar(9)|utf8mb3", UNKNOWN),
        ("varchar(9)|ascii", "varchar(9)|latin1", SAME),
        ("varchar(9)|utf8", "varchar(9)|utf8mb3", SAME),
        ("text|latin1", "text|utf8mb4", UNKNOWN),
        ("text|latin1", "mediumtext|utf8mb4", SAME),
        ("varchar(9)", "varbinary(9)", UNKNOWN),
        ("varbinary(9)", "blob", SAME),
        ("binary(9)", "binary(10)", UNKNOWN),
        ("tinyblob", "blob", SAME),
        ("blob", "varbinary(100)", UNKNOWN),
        ("enum('a','b')", "enum('a','b','c')", SAME),
        ("enum('a','b')", "enum('c','b','a')", SAME),
        ("enum('a','b')", "enum('a','B')", UNKNOWN),
        ("enum('a','b')", "varchar(9)", UNKNOWN),
        ("set('a','b')", "set('a','b','c')", SAME),
        ("set('a','b')", "set('b','a')", UNKNOWN),
        ("json", "longtext", UNKNOWN),
        ("json", "json", SAME),
        ("year", "year(4)", UNKNOWN),
        ("point", "geometry", UNKNOWN),
        ("strange", "stranger", UNKNOWN),
    ],
)
def test_outcome(before: str, after: str, expected: Outcome):
    """What becomes of the values of the one type in the other."""
    assert outcome(column(before), column(after)) is expected


TELLING = [
    ColumnMeta("a", text, charset, is_key=is_key, nullable=nullable)
    for text in ("varchar(40)", "enum('a')", "enum('b')", "int", "int unsigned",
                 "decimal(5,2)", "decimal(5,3)")
    for charset in (None, "latin1", "utf8mb4")
    for is_key in (False, True)
    for nullable in (False, True)
]  # fmt: skip


def test_definitions_that_differ_read_differently():
    """Whatever it is that changed of a column, both texts of a message do not agree."""
    for before, after in itertools.permutations(TELLING, 2):
        was, now = definitions_of(before, after)
        assert was != now, (before, after)
    was, now = definitions_of(
        column("varchar(40)|latin1"), column("varchar(40)|utf8mb4")
    )
    assert was == "varchar(40) CHARACTER SET latin1"
    assert now == "varchar(40) CHARACTER SET utf8mb4"
    assert definitions_of(column("int"), column("bigint")) == ("int", "bigint")
