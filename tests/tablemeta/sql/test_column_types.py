"""Types as they are written, and as each server writes them."""

from __future__ import annotations

import pytest

from canal_server.tablemeta.model.session_context import (
    MAXDB,
    ORACLE,
    REAL_AS_FLOAT,
    Context,
)
from canal_server.tablemeta.tables.memory_tables import MemoryTableMeta

MYSQL = Context(schema="d", collation_server="utf8mb4_0900_ai_ci")
MARIADB = Context(schema="d", mariadb=True, collation_server="latin1_swedish_ci")


def column(definition: str, context: Context, options: str = "") -> tuple[str, object]:
    """Return type and character set of a column with this definition."""
    model = MemoryTableMeta(mariadb=context.mariadb)
    sql = f"CREATE TABLE t (c {definition}){options}"
    applied = model.apply(None, "d", sql, context)
    assert not applied.problem
    table = model.find("d", "t")
    assert table is not None
    return table.columns[0].type, table.columns[0].charset


# definition, MySQL's type, MariaDB's type
NUMBERS = [
    ("int", "int", "int(11)"),
    ("INTEGER(5)", "int", "int(5)"),
    ("int(0)", "int", "int(11)"),
    ("int unsigned", "int unsigned", "int(10) unsigned"),
    ("int zerofill", "int(10) unsigned zerofill", "int(10) unsigned zerofill"),
    ("bigint(30) zerofill", *["bigint(30) unsigned zerofill"] * 2),
    ("smallint signed", "smallint", "smallint(6)"),
    ("mediumint", "mediumint", "mediumint(9)"),
    ("middleint unsigned", "mediumint unsigned", "mediumint(8) unsigned"),
    ("tinyint", "tinyint", "tinyint(4)"),
    ("tinyint(1)", "tinyint(1)", "tinyint(1)"),
    ("tinyint(1) unsigned", "tinyint unsigned", "tinyint(1) unsigned"),
    ("tinyint(1) zerofill", *["tinyint(1) unsigned zerofill"] * 2),
    ("int1", "tinyint", "tinyint(4)"),
    ("int2", "smallint", "smallint(6)"),
    ("int3", "mediumint", "mediumint(9)"),
    ("int4", "int", "int(11)"),
    ("int8 unsigned", "bigint unsigned", "bigint(20) unsigned"),
    ("bool", "tinyint(1)", "tinyint(1)"),
    ("boolean default true", "tinyint(1)", "tinyint(1)"),
    ("serial", "bigint unsigned", "bigint(20) unsigned"),
    ("decimal", "decimal(10,0)", "decimal(10,0)"),
    ("dec(5)", "decimal(5,0)", "decimal(5,0)"),
    ("numeric(6,3) unsigned zerofill", *["decimal(6,3) unsigned zerofill"] * 2),
    ("fixed(5, 1)", "decimal(5,1)", "decimal(5,1)"),
    ("decimal(0)", "decimal(10,0)", "decimal(10,0)"),
    ("decimal(0,0)", "decimal(10,0)", "decimal(10,0)"),
    ("float", "float", "float"),
    ("float(24)", "float", "float"),
    ("float(25)", "double", "double"),
    ("float(7,4) unsigned zerofill", *["float(7,4) unsigned zerofill"] * 2),
    ("double precision(5,2)", "double(5,2)", "double(5,2)"),
    ("real unsigned", "double unsigned", "double unsigned"),
    ("float4", "float", "float"),
    ("float8", "double", "double"),
    ("bit", "bit(1)", "bit(1)"),
    ("bit(64)", "bit(64)", "bit(64)"),
    ("year", "year", "year(4)"),
    ("year(4)", "year", "year(4)"),
    ("date", "date", "date"),
    ("time(0)", "time", "time"),
    ("datetime(6)", "datetime(6)", "datetime(6)"),
    ("timestamp(3)", "timestamp(3)", "timestamp(3)"),
    ("geometrycollection", "geomcollection", "geometrycollection"),
    ("point not null", "point", "point"),
    ("multilinestring", "multilinestring", "multilinestring"),
]


@pytest.mark.parametrize(("definition", "mysql", "mariadb"), NUMBERS)
def test_without_charset(definition: str, mysql: str, mariadb: str) -> None:
    """Numbers, times and shapes come as each server writes them."""
    assert column(definition, MYSQL) == (mysql, None)
    assert column(definition, MARIADB) == (mariadb, None)


# definition, type and character set in a latin1 table of either server
TEXTS = [
    ("char", "char(1)", "latin1"),
    ("char(0)", "char(0)", "latin1"),
    ("character(3)", "char(3)", "latin1"),
    ("varchar(20)", "varchar(20)", "latin1"),
    ("char varying(5)", "varchar(5)", "latin1"),
    ("character varying(5)", "varchar(5)", "latin1"),
    ("varcharacter(5)", "varchar(5)", "latin1"),
    ("nchar", "char(1)", "utf8mb3"),
    ("national char(3)", "char(3)", "utf8mb3"),
    ("national char varying(5)", "varchar(5)", "utf8mb3"),
    ("national varchar(5)", "varchar(5)", "utf8mb3"),
    ("nchar varchar(5)", "varchar(5)", "utf8mb3"),
    ("nchar varying(5)", "varchar(5)", "utf8mb3"),
    ("nvarchar(5)", "varchar(5)", "utf8mb3"),
    ("binary", "binary(1)", None),
    ("varbinary(5)", "varbinary(5)", None),
    ("char byte", "binary(1)", None),
    ("varchar(5) byte", "varbinary(5)", None),
    ("text byte", "blob", None),
    ("text character set binary", "blob", None),
    ("varchar(5) collate binary", "varbinary(5)", None),
    ("varchar(5) binary", "varchar(5)", "latin1"),
    ("longtext binary ascii", "longtext", "latin1"),
    ("char(5) unicode", "char(5)", "ucs2"),
    ("char(5) charset utf8", "char(5)", "utf8mb3"),
    ("char(5) char set 'utf8mb4'", "char(5)", "utf8mb4"),
    ("char(5) collate koi8r_bin", "char(5)", "koi8r"),
    ("text", "text", "latin1"),
    ("text(255)", "tinytext", "latin1"),
    ("text(256)", "text", "latin1"),
    ("text(65536)", "mediumtext", "latin1"),
    ("text(64) charset utf8mb4", "text", "utf8mb4"),
    ("blob(300)", "blob", None),
    ("blob(16777216)", "longblob", None),
    ("tinytext", "tinytext", "latin1"),
    ("mediumblob", "mediumblob", None),
    ("long", "mediumtext", "latin1"),
    ("long varchar", "mediumtext", "latin1"),
    ("long char varying", "mediumtext", "latin1"),
    ("long character set cp1251", "mediumtext", "cp1251"),
    ("long varbinary", "mediumblob", None),
    ("varchar(70000)", "mediumtext", "latin1"),
    ("varbinary(70000)", "mediumblob", None),
    ("varchar(17000000)", "longtext", "latin1"),
    ("enum('a','b ')", "enum('a','b')", "latin1"),
    ("set('1', '2') charset utf8", "set('1','2')", "utf8mb3"),
    ("enum('c''d',\"e\"\"f\")", "enum('c''d','e\"f')", "latin1"),
    (r"enum('a\\b','e\nf','\%r','\Zz')", r"enum('a\\b','e\nf','\\%r'," + "'\x1az')", 0),
    ("enum(x'41',0x42,b'01000011')", "enum('A','B','C')", "latin1"),
    ("enum(0xe6) charset koi8r", "enum('Ф')", "koi8r"),
    ("enum(0x61) charset utf16", "enum('a')", "utf16"),
    ("enum('é','日')", "enum('é','?')", "latin1"),
    ("enum('😀') charset utf8mb4", "enum('?')", "utf8mb4"),
]


@pytest.mark.parametrize(("definition", "expected", "charset"), TEXTS)
def test_with_charset(definition: str, expected: str, charset: object) -> None:
    """Texts use the character set of the column, else that of the table."""
    if charset == 0:
        charset = "latin1"
    for context in (MYSQL, MARIADB):
        assert column(definition, context, "charset latin1") == (expected, charset)


@pytest.mark.parametrize(
    ("definition", "context", "expected"),
    [
        ("json", MYSQL, ("json", None)),
        ("json", MARIADB, ("longtext", "utf8mb4")),
        ("vector(3)", MYSQL, ("vector(3)", None)),
        ("vector", MYSQL, ("vector(2048)", None)),
        ("uuid", MARIADB, ("uuid", None)),
        ("inet6", MARIADB, ("inet6", None)),
        ("year(2)", MARIADB, ("year(2)", None)),
        ("text(0)", MYSQL, ("tinytext", "utf8mb4")),
        ("text(0)", MARIADB, ("text", "latin1")),
        ("varbinary(65533)", MARIADB, ("blob", None)),
        ("varbinary(65533)", MYSQL, ("varbinary(65533)", None)),
        ("varchar(21845) charset utf8", MARIADB, ("text", "utf8mb3")),
        ("char(205) character set filename", MARIADB, ("varchar(205)", "filename")),
        ("char(204) character set filename", MARIADB, ("char(204)", "filename")),
        ("enum('a ') charset binary", MYSQL, ("enum('a ')", None)),
        ("enum('a ') charset binary", MARIADB, ("enum('a ')", "binary")),
        (
            "varchar(9) compressed",
            MARIADB,
            ("varchar(9) /*M!100301 COMPRESSED*/", "latin1"),
        ),
        ("oracle_schema.date", MARIADB, ("datetime", None)),
        ("mariadb_schema.date", MARIADB, ("date", None)),
        ("maxdb_schema.timestamp", MARIADB, ("datetime", None)),
    ],
)
def test_of_one_server(definition: str, context: Context, expected: object) -> None:
    """Some types are of one server only, or another thing on the other."""
    assert column(definition, context) == expected


@pytest.mark.parametrize(
    ("definition", "sql_mode", "expected"),
    [
        ("real", REAL_AS_FLOAT, "float"),
        ("double", REAL_AS_FLOAT, "double"),
        ("date", ORACLE, "datetime"),
        ("mariadb_schema.date", ORACLE, "date"),
        ("varchar2(10)", ORACLE, "varchar(10)"),
        ("number", ORACLE, "double"),
        ("number(5,2)", ORACLE, "decimal(5,2)"),
        ("raw(10)", ORACLE, "varbinary(10)"),
        ("clob", ORACLE, "longtext"),
        ("blob", ORACLE, "longblob"),
        ("blob(10)", ORACLE, "tinyblob"),
        ("blob(0)", ORACLE, "blob"),
        ("timestamp", MAXDB, "datetime"),
    ],
)
def test_modes(definition: str, sql_mode: int, expected: str) -> None:
    """The mode of the session decides what some names of types mean."""
    context = Context(schema="d", mariadb=True, sql_mode=sql_mode)
    assert column(definition, context)[0] == expected


@pytest.mark.parametrize(
    ("version", "expected"), [(100211, "date"), (100300, "datetime"), (0, "datetime")]
)
def test_the_oracle_mode_of_old_releases(version: int, expected: str) -> None:
    """Before MariaDB 10.3 the mode has no types of its own; unknown is a new one."""
    context = Context(mariadb=True, sql_mode=ORACLE, server_version=version)
    assert column("date", context)[0] == expected


@pytest.mark.parametrize(
    ("version", "expected"), [(50744, "int(11)"), (80018, "int(11)"), (80019, "int")]
)
def test_widths_of_old_servers(version: int, expected: str) -> None:
    """MySQL wrote the width of integers until 8.0.19."""
    context = Context(schema="d", server_version=version)
    assert column("int", context)[0] == expected
