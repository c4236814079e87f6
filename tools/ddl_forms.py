"""Statements that say the same in many forms: defaults, partitions, databases.

A server refuses some of them, MySQL others than MariaDB; what it takes stands in the
binlog. Each list leaves the tables as it found them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBERS = (
    "1",
    "+1",
    "-1",
    "- 1",
    "-+-1",
    "1.5",
    ".5",
    "-.5",
    "+.5",
    "- .5",
    "5.",
    "-5.",
    ".000001",
    "1e3",
    "1E+3",
    "1e-3",
    "5.e1",
    ".5e-3",
    "-.5e-3",
    "-.5E+3",
    "00.50",
    "(.5)",
    "(-.5 + .25)",
    "(.5*2)",
    "('.5')",
    "(1.+.5)",
    "TRUE",
    "FALSE",
    "NULL",
    "'.5'",
    "'1' '.5'",
    "'-.5e1'",
    "0x1",
    "0xFF",
    "x'01'",
    "X'01'",
    "b'1'",
    "B'1'",
    "0b1",
    "N'1'",
    "n'1'",
    "_utf8mb4'1'",
    "_latin1 x'31'",
    "_binary 0x31",
    '"1"',
    "(1)",
    "(1 + 1)",
    "(ABS(-1))",
    "1 DIV 1",
    "1 + .5",
    "-1 * .5",
    ".5 + .5",
    "PI()",
    "(NULL)",
    "(RAND())",
    "CASE WHEN 1 THEN .5 ELSE 1. END",
    "~1",
    "!1",
    "NOT 1",
    "1 BETWEEN .5 AND 2",
    "1 IN (.5, 1.)",
    "1 IS NULL",
    "1 IS NOT NULL",
    "1 || .5",
    "1 OR .5",
    "1 XOR 1",
    "1 <=> .5",
    "1 << 2",
    "1 LIKE .5",
    "1.5 MOD 1",
    "5 % .3",
)
_TEXTS = (
    "''",
    "'a'",
    "'it''s'",
    "'a\\'b'",
    '"q"',
    '"q""q"',
    "'a' 'b'",
    "'a'\n'b'",
    "'a' \"b\"",
    "N'a'",
    "n'a' 'b'",
    "_utf8mb4'a'",
    "_utf8mb4 'a' 'b'",
    "_latin1'a'",
    "_latin1 0x61",
    "_utf8mb4 x'61'",
    "_utf8mb4 X'61'",
    "_utf8mb4 b'01100001'",
    "_binary'a'",
    "x'61'",
    "X'61'",
    "0x61",
    "b'01100001'",
    "0b01100001",
    "'a' COLLATE utf8mb4_bin",
    "('a')",
    "_utf8mb4'a' COLLATE utf8mb4_bin",
    "(CONCAT('a', 'b'))",
    "CONCAT('a', ',', 'b')",
    "('a' 'b')",
    "(x'61')",
    "(N'a')",
    "(UUID())",
    "UUID()",
    "USER()",
    "CURRENT_USER",
    "CURRENT_USER()",
    "DATABASE()",
    "(DATE'2020-01-01')",
    "BINARY 'a'",
    "(NULL)",
    "CAST('a' AS CHAR(3))",
    "CONVERT('a' USING latin1)",
    "CONVERT('a', CHAR)",
    "'-- no comment'",
    "'/* none */'",
    "'a;b'",
    "'a),b INT'",
    "(_utf8mb4'a')",
    "NULL",
)
_TIMES = (
    "'2020-01-01'",
    "DATE'2020-01-01'",
    "DATE '2020-01-01'",
    "TIMESTAMP'2020-01-01 01:02:03'",
    "TIMESTAMP '2020-01-01 01:02:03.5'",
    "{d'2020-01-01'}",
    "{d '2020-01-01'}",
    "{ts '2020-01-01 01:02:03'}",
    "20200101",
    "20200101010203.5",
    "NOW()",
    "NOW(3)",
    "CURRENT_TIMESTAMP",
    "CURRENT_TIMESTAMP()",
    "CURRENT_TIMESTAMP(3)",
    "LOCALTIME",
    "LOCALTIME()",
    "LOCALTIMESTAMP(3)",
    "(NOW())",
    "(CURDATE())",
    "CURDATE()",
    "CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
    "NOW(3) ON UPDATE NOW(3)",
    "NULL ON UPDATE NOW(3)",
    "'2020-01-01' ON UPDATE NOW(3)",
    "0",
    "'0000-00-00'",
    "(NOW() + INTERVAL 1 DAY)",
    "NOW() + INTERVAL 1 DAY",
    "NOW(3) - INTERVAL '1:1' MINUTE_SECOND",
    "INTERVAL 1 DAY + NOW()",
    "(TIMESTAMP'2020-01-01 00:00:00')",
    "TIMESTAMP('2020-01-01')",
    "DATE('2020-01-01')",
    "DATE_ADD('2020-01-01', INTERVAL 1 DAY)",
    "UTC_TIMESTAMP()",
)
_CLOCKS = (
    "'1:2:3'",
    "TIME'1:2:3'",
    "TIME '-1:2:3.5'",
    "{t '1:2:3'}",
    "10203",
    "-10203.5",
    "(CURTIME())",
    "CURTIME()",
    "TIME('1:2:3')",
)
_OTHERS = (
    ("YEAR", ("2020", "'2020'", "70", "(2020)")),
    ("BIT(8)", ("b'101'", "0b101", "x'05'", "5", "'a'", "B'101'", "(b'1')", "TRUE")),
    ("ENUM('a', '.5')", ("'a'", "'.5'", "x'61'", "N'a'", "NULL")),
    ("SET('a', 'b')", ("'a'", "'a,b'", "''", "x'61'", "'a' ',b'")),
    (
        "JSON",
        ("('{}')", "(JSON_OBJECT('a', .5))", "'{}'", "JSON_ARRAY(1., .5)", "NULL"),
    ),
    ("BLOB", ("('a')", "'a'", "x'61'", "(x'61')", "0x61", "''")),
    ("TEXT", ("('a')", "'a'", "'a' 'b'", "''", "(N'a')")),
    ("POINT", ("(POINT(.5, -.5))", "POINT(1., 2)", "NULL")),
    ("BINARY(4)", ("'a'", "0x61", "x'61'", "b'1'", "(UUID_TO_BIN(UUID()))")),
    ("dec(6,6)", (".000001", "-.000001", "'.000001'", "0.000001", "1e-6", "(.000001)")),
    ("BOOL", ("TRUE", "FALSE", "NOT TRUE", "true", "b'1'")),
)
# What may stand after a default.
_AFTER = (
    "",
    " NOT NULL",
    " COMMENT 'c'",
    " UNIQUE",
    " NULL COLLATE utf8mb4_bin",
    " CHECK (b <> .5)",
)


def defaults() -> Iterator[str]:
    """Give tables with each form of a default, made and altered."""
    of_types = (
        ("DECIMAL(20,6)", _NUMBERS),
        ("DOUBLE", _NUMBERS),
        ("INT", _NUMBERS),
        ("VARCHAR(60)", _TEXTS),
        ("DATETIME(3)", _TIMES),
        ("TIMESTAMP(3) NULL", _TIMES),
        ("TIME(1)", _CLOCKS),
        *_OTHERS,
    )
    yield "SET sql_mode = ''"
    for number, (kind, literal) in enumerate(
        (kind, literal) for kind, literals in of_types for literal in literals
    ):
        after = _AFTER[number % len(_AFTER)] if kind != "POINT" else ""
        definition = f"b {kind} DEFAULT {literal}{after}"
        yield f"CREATE TABLE t (a INT PRIMARY KEY, {definition}, c INT)"
        yield f"ALTER TABLE t ADD d {kind} DEFAULT {literal} AFTER a, DROP c, ADD e INT"
        yield f"ALTER TABLE t ALTER b SET DEFAULT {literal}, ADD f INT"
        yield f"ALTER TABLE t MODIFY b {kind}{after} DEFAULT {literal} FIRST"
        yield "DROP TABLE IF EXISTS t"
    yield "SET sql_mode = DEFAULT"


_COLUMN_ITEMS = (
    "ADD COLUMN b INT",
    "ADD b INT DEFAULT 1",
    "ADD b INT DEFAULT .5",
    "ADD b INT FIRST",
    "ADD b INT AFTER a",
    "ADD b INT NOT NULL",
    "ADD b INT COMMENT 'x'",
    "ADD (b INT, d INT)",
    "ADD b INT AS (a + 1) STORED",
    "ADD b INT UNIQUE",
    "ADD b INT CHECK (b > 1)",
    "ADD b VARCHAR(3) CHARACTER SET latin1",
    "ADD b VARCHAR(3) COLLATE utf8mb4_bin",
    "ADD b INT, ADD d INT",
    "DROP c",
    "DROP COLUMN c",
    "DROP c CASCADE",
    "MODIFY c BIGINT",
    "MODIFY c BIGINT FIRST",
    "CHANGE c d CHAR(3)",
    "CHANGE c d CHAR(3) AFTER a",
    "RENAME COLUMN c TO d",
    "ALTER c SET DEFAULT 1",
    "ALTER c SET DEFAULT .5",
    "ALTER c DROP DEFAULT",
    "ADD KEY (c)",
    "ADD UNIQUE KEY k (a, c)",
    "DROP PRIMARY KEY",
    "DROP PRIMARY KEY, ADD PRIMARY KEY (a, c)",
    "ADD CONSTRAINT x CHECK (c > .5)",
    "ENGINE = InnoDB",
    "COMMENT 'x'",
    "CHARACTER SET latin1",
    "CONVERT TO CHARACTER SET latin1",
    "ORDER BY c",
    "FORCE",
    "ALGORITHM = COPY",
    "LOCK = SHARED",
    "RENAME TO u",
    "RENAME u",
    "ADD COLUMN IF NOT EXISTS b INT",
    "DROP COLUMN IF EXISTS c",
    "ENABLE KEYS",
    "AUTO_INCREMENT 5",
    "ADD b INT INVISIBLE",
    "ALTER INDEX k IGNORED",
    "",
)
_PARTITION_ITEMS = (
    "REMOVE PARTITIONING",
    "PARTITION BY HASH (a) PARTITIONS 3",
    "PARTITION BY KEY ()",
    "PARTITION BY KEY (a) PARTITIONS 2",
    "PARTITION BY LINEAR HASH (a + 1)",
    (
        "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN"
        " (5), PARTITION p1 VALUES LESS THAN MAXVALUE)"
    ),
    (
        "PARTITION BY LIST (a) (PARTITION p0 VALUES IN"
        " (1, 2) COMMENT 'x', PARTITION p1 VALUES IN (3))"
    ),
    (
        "PARTITION BY RANGE COLUMNS (a) (PARTITION p0 VALUES LESS THAN"
        " (5) ENGINE = InnoDB)"
    ),
    "PARTITION BY HASH (a) PARTITIONS 2 UPDATE INDEXES",
    (
        "PARTITION BY RANGE (a) SUBPARTITION BY HASH (a) SUBPARTITIONS 2"
        " (PARTITION p0 VALUES LESS THAN MAXVALUE)"
    ),
)
_PARTITION_OPERATIONS = (
    "ADD PARTITION (PARTITION p3 VALUES LESS THAN (30))",
    "ADD PARTITION PARTITIONS 2",
    "DROP PARTITION p0",
    "TRUNCATE PARTITION p0",
    "TRUNCATE PARTITION ALL",
    (
        "REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES LESS THAN"
        " (15), PARTITION p2 VALUES LESS THAN (20))"
    ),
    "REORGANIZE PARTITION p0, p1 INTO (PARTITION p1 VALUES LESS THAN (20))",
    "COALESCE PARTITION 1",
    "REBUILD PARTITION p0, p1",
    "OPTIMIZE PARTITION ALL",
    "ANALYZE PARTITION p0",
    "CHECK PARTITION p0, p1",
    "REPAIR PARTITION ALL",
    "DISCARD PARTITION p0 TABLESPACE",
    "EXCHANGE PARTITION p0 WITH TABLE x",
    "EXCHANGE PARTITION p0 WITH TABLE x WITHOUT VALIDATION",
    "CONVERT PARTITION p0 TO TABLE y",
    "CONVERT TABLE x TO PARTITION p9 VALUES LESS THAN (90)",
    "REMOVE PARTITIONING",
    "UPGRADE PARTITIONING",
    "ADD PARTITION IF NOT EXISTS (PARTITION p1 VALUES LESS THAN (99))",
    "DROP PARTITION IF EXISTS p7",
    "DROP PARTITION p0, p1",
    "PARTITION BY HASH (a)",
    "ADD b INT REMOVE PARTITIONING",
)


def partitions() -> Iterator[str]:
    """Give changes of columns and partitions together, with comma and without."""
    for before in ("", " PARTITION BY HASH (a) PARTITIONS 2"):
        for item in _COLUMN_ITEMS:
            for partition in (
                _PARTITION_ITEMS if item[:3] == "ADD" else _PARTITION_ITEMS[:3]
            ):
                for sign in (" ", ", "):
                    yield f"CREATE TABLE t (a INT PRIMARY KEY, c INT){before}"
                    yield f"ALTER TABLE t {item}{sign if item else ''}{partition}"
                    yield "DROP TABLE IF EXISTS t, u"


def partition_operations() -> Iterator[str]:
    """Give changes of partitions, alone and together with columns."""
    ranges = (
        "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (10),"
        " PARTITION p1 VALUES LESS THAN (20))"
    )
    for operation in _PARTITION_OPERATIONS:
        for how in (ranges, "PARTITION BY HASH (a) PARTITIONS 3"):
            for text in (
                operation,
                f"ADD d INT, {operation}",
                f"ADD d INT {operation}",
                f"{operation}, ADD d INT",
                f"{operation} ADD d INT",
            ):
                yield f"CREATE TABLE t (a INT PRIMARY KEY, c INT) {how}"
                yield "CREATE TABLE x (a INT PRIMARY KEY, c INT)"
                yield f"ALTER TABLE t {text}"
                yield "DROP TABLE IF EXISTS t, x, y"


_DATABASE_OPTIONS = (
    "READ ONLY = 0",
    "READ ONLY 0",
    "READ ONLY = DEFAULT",
    "READ ONLY DEFAULT",
    "READ ONLY = 1",
    "CHARACTER SET latin1",
    "CHARACTER SET = latin1",
    "CHARSET latin1",
    "CHARSET = 'latin1'",
    "CHAR SET latin1",
    "DEFAULT CHARACTER SET latin1",
    "DEFAULT CHARSET = latin1",
    "COLLATE latin1_bin",
    "COLLATE = 'latin1_bin'",
    "DEFAULT COLLATE latin1_bin",
    "CHARACTER SET latin1 COLLATE latin1_bin",
    "COLLATE latin1_bin CHARACTER SET latin1",
    "COLLATE DEFAULT",
    "ENCRYPTION = 'N'",
    "ENCRYPTION 'N'",
    "DEFAULT ENCRYPTION 'N'",
    "COMMENT 'x'",
    "COMMENT = 'x'",
    "CHARACTER SET latin1 READ ONLY = 0",
    "READ ONLY = 0 CHARACTER SET latin1",
    "CHARACTER SET DEFAULT",
    "CHARACTER SET latin1 COMMENT 'x'",
    "COMMENT 'x' CHARACTER SET latin1",
    "CHARACTER SET binary",
    "ENCRYPTION 'N' CHARSET latin1",
    "READ ONLY = 0 COLLATE latin1_bin",
    "UPGRADE DATA DIRECTORY NAME",
)


def databases() -> Iterator[str]:
    """Give changes of databases in all forms, each followed by tables made there."""
    for option in _DATABASE_OPTIONS:
        for word, name in (
            ("DATABASE", "s"),
            ("SCHEMA", "s"),
            ("SCHEMA", "`s`"),
            ("DATABASE", ""),
            ("SCHEMA", "`charset`"),
        ):
            schema = name.strip("`") or "s"
            yield f"CREATE SCHEMA {name or 's'}"
            yield f"USE {name or 's'}"
            yield f"CREATE TABLE {name or 's'}.v (a VARCHAR(3), b TEXT)"
            yield f"ALTER {word} {name} {option}"
            yield f"CREATE TABLE {name or 's'}.t (a VARCHAR(3), b TEXT)"
            yield f"ALTER TABLE `{schema}`.v ADD c CHAR(5)"
            yield f"ALTER {word} {name} READ ONLY = 0"
            yield f"ALTER TABLE `{schema}`.v ADD d CHAR(5)"
            yield f"DROP TABLE `{schema}`.v"
            yield f"DROP SCHEMA {name or 's'}"
    yield "USE test"


FORMS = {
    "databases": databases,
    "defaults": defaults,
    "partition_operations": partition_operations,
    "partitions": partitions,
}
