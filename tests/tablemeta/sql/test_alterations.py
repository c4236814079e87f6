"""ALTER TABLE: what its items, alone and together, make of a table."""

from __future__ import annotations

import pytest

from canal_server.tablemeta.model.operations import CreateTable
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.model.table_schema import Table, Versioning
from canal_server.tablemeta.sql.resolve import resolve
from canal_server.tablemeta.tables.memory_tables import MemoryTableMeta


def after(
    create: str,
    *alters: str,
    mariadb: bool = False,
    charset: str = "latin1",
    explicit_timestamp: bool = True,
) -> Table:
    """Return the table t after statements, all of which must be understood."""
    model = MemoryTableMeta(mariadb=mariadb)
    model.load_database("d", charset)
    context = Context(
        schema="d", mariadb=mariadb, explicit_timestamp=explicit_timestamp
    )
    for sql in (create, *alters):
        applied = model.apply(None, "d", sql, context)
        assert not applied.problem
    table = model.find("d", "t")
    assert table is not None
    return table


def names(table: Table) -> str:
    """Return the names of a table's columns."""
    return " ".join(each.name for each in table.columns)


ABC = "CREATE TABLE t (a INT, b INT, c INT)"


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("ADD d INT", "a b c d"),
        ("ADD COLUMN d INT FIRST", "d a b c"),
        ("ADD d INT AFTER a", "a d b c"),
        ("ADD d INT AFTER c, MODIFY c INT FIRST", "c a b d"),
        ("MODIFY a INT AFTER b, MODIFY b INT AFTER c", "a c b"),
        ("ADD d INT FIRST, ADD e INT FIRST", "e d a b c"),
        ("ADD (d INT, e INT)", "a b c d e"),
        ("ADD d INT AFTER a, ADD e INT AFTER d", "a d e b c"),
        ("CHANGE a z INT, ADD d INT AFTER z", "z d b c"),
        ("CHANGE a b INT, CHANGE b a INT", "b a c"),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", "b a c"),
        ("RENAME COLUMN a TO x, ADD a INT", "x b c a"),
        ("DROP b, ADD b VARCHAR(3)", "a c b"),
        ("DROP b, ADD b VARCHAR(3) FIRST", "b a c"),
        ("DROP COLUMN a, DROP b RESTRICT", "c"),
        ("CHANGE c cc INT FIRST, CHANGE a aa INT AFTER b", "cc b aa"),
        ("MODIFY C INT FIRST", "C a b"),
        ("ORDER BY a, b DESC, c", "a b c"),
        ("ORDER BY a, b, DROP c", "a b"),
        ("DROP t.a, CHANGE d.t.b x INT", "x c"),
        ("ALTER a SET DEFAULT 5, ALTER COLUMN b DROP DEFAULT", "a b c"),
        ("ADD d INT DEFAULT (1 + 2), ALGORITHM=INPLACE, LOCK NONE", "a b c d"),
        ("ENGINE=InnoDB, COMMENT='x, DROP a' ROW_FORMAT DYNAMIC, DROP b", "a c"),
        ("ADD d INT, PARTITION BY HASH(a) PARTITIONS 2", "a b c d"),
        ("ADD d INT REMOVE PARTITIONING", "a b c d"),
        ("ADD d INT FIRST, DROP b REMOVE PARTITIONING", "d a c"),
        ("ADD d INT DEFAULT .5 PARTITION BY HASH(a) PARTITIONS 2", "a b c d"),
        ("MODIFY b BIGINT FIRST PARTITION BY KEY ()", "b a c"),
        ("ADD remove INT, ADD e INT AFTER remove", "a b c remove e"),
        ("ALTER INDEX remove INVISIBLE, ADD d INT", "a b c d"),
        ("ALTER CHECK remove NOT ENFORCED, DROP c", "a b"),
        ("ALTER CONSTRAINT remove ENFORCED, DROP c", "a b"),
        ("DROP PARTITION a, b", "a b c"),
        ("REORGANIZE PARTITION a, b INTO (PARTITION c VALUES LESS THAN (5))", "a b c"),
        ("EXCHANGE PARTITION a WITH TABLE x", "a b c"),
        ("TRUNCATE PARTITION ALL", "a b c"),
        ("ADD CONSTRAINT x CHECK (a > b), DROP CHECK y, FORCE", "a b c"),
        ("ADD FOREIGN KEY (a) REFERENCES x(b) ON DELETE SET NULL, DROP c", "a b"),
        # It was done already, as when a binlog is read again.
        ("ADD b INT", "a b c"),
        ("DROP d", "a b c"),
        ("CHANGE d a INT", "a b c"),
    ],
)
def test_order_of_columns(items: str, expected: str) -> None:
    """Items first change columns where they are, then move them."""
    assert names(after(ABC, f"ALTER TABLE t {items}")) == expected


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("ADD IF NOT EXISTS b INT, ADD COLUMN IF NOT EXISTS d INT", "a b c d"),
        ("DROP b, ADD IF NOT EXISTS b INT", "a c"),
        ("DROP IF EXISTS x, MODIFY IF EXISTS y INT, CHANGE IF EXISTS z a INT", "a b c"),
        ("RENAME COLUMN IF EXISTS x TO y, RENAME COLUMN a TO z", "z b c"),
        ("ADD d INT, MODIFY d VARCHAR(5) FIRST, ADD e INT", "d a b c e"),
        ("WAIT 5 ADD d INT", "a b c d"),
        ("ALTER KEY IF EXISTS remove NOT IGNORED, DROP c", "a b"),
        ("NOWAIT DROP c", "a b"),
    ],
)
def test_order_on_mariadb(items: str, expected: str) -> None:
    """MariaDB's own clauses ask for names before anything is dropped."""
    assert names(after(ABC, f"ALTER TABLE t {items}", mariadb=True)) == expected


KEYED = "CREATE TABLE t (a INT, b INT NULL, c INT, PRIMARY KEY (a, b))"


@pytest.mark.parametrize(
    ("items", "primary", "never_null"),
    [
        ("DROP PRIMARY KEY", "", "a b"),
        ("DROP INDEX `PRIMARY`", "", "a b"),
        ("DROP KEY `primary`", "", "a b"),
        ("DROP CONSTRAINT `PRIMARY`", "", "a b"),
        ("DROP PRIMARY KEY, MODIFY a INT", "", "b"),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (c)", "c", "a b c"),
        ("ADD PRIMARY KEY (c), DROP PRIMARY KEY", "c", "a b c"),
        ("ADD n INT, DROP PRIMARY KEY, ADD PRIMARY KEY (c, n)", "c n", "a b c n"),
        ("MODIFY a BIGINT", "a b", "a b"),
        ("CHANGE a z INT", "z b", "z b"),
        ("RENAME COLUMN b TO z", "a z", "a z"),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", "b a", "b a"),
        ("DROP a", "b", "b"),
        ("DROP a, DROP b", "", ""),
        ("DROP b, ADD b INT", "a b", "a b"),
        ("DROP PRIMARY KEY, MODIFY c INT KEY", "c", "a b c"),
        ("DROP PRIMARY KEY, ADD d INT PRIMARY KEY", "d", "a b d"),
        ("ADD UNIQUE (c)", "a b", "a b"),
    ],
)
def test_primary_key(items: str, primary: str, never_null: str) -> None:
    """The primary key follows its columns, which cannot be null."""
    table = after(KEYED, f"ALTER TABLE t {items}")
    assert " ".join(table.primary) == primary
    found = " ".join(each.name for each in table.columns if not each.nullable)
    assert found == never_null


def test_primary_key_if_not_exists() -> None:
    """MariaDB adds no primary key where one is or was in the same statement."""
    alter = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY IF NOT EXISTS (c)"
    assert after(KEYED, alter, mariadb=True).primary == ()
    alter = "ALTER TABLE t ADD PRIMARY KEY IF NOT EXISTS (c)"
    assert after(KEYED, alter, mariadb=True).primary == ("a", "b")


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("CONVERT TO CHARACTER SET utf8mb4", "v20:utf8mb4 mediumtext:utf8mb4 b:None"),
        ("CONVERT TO CHARSET DEFAULT", "v20:latin1 text:latin1 b:None"),
        ("DEFAULT CHARACTER SET utf8mb4", "v20:koi8r text:koi8r b:None"),
        ("CHARSET utf8mb4, ADD x CHAR", "v20:koi8r text:koi8r b:None char(1):utf8mb4"),
        (
            "COLLATE utf8mb4_bin, ADD x CHAR",
            "v20:koi8r text:koi8r b:None char(1):utf8mb4",
        ),
        (
            "ADD x CHAR CHARACTER SET greek, CONVERT TO CHARACTER SET utf8mb4",
            "v20:utf8mb4 mediumtext:utf8mb4 b:None char(1):utf8mb4",
        ),
        ("CONVERT TO CHARACTER SET binary", "vb20:None blob:None b:None"),
        ("MODIFY v VARCHAR(20)", "v20:koi8r text:koi8r b:None"),
        ("MODIFY v VARCHAR(20) COLLATE greek_bin", "v20:greek text:koi8r b:None"),
        ("ADD x NCHAR", "v20:koi8r text:koi8r b:None char(1):utf8mb3"),
    ],
)
def test_charsets(items: str, expected: str) -> None:
    """CONVERT changes all texts, a default only what is added later."""
    create = "CREATE TABLE t (v VARCHAR(20), x0 TEXT, b BINARY(5)) CHARSET koi8r"
    table = after(create, f"ALTER TABLE t {items}")
    shown = " ".join(f"{each.type}:{each.charset}" for each in table.columns)
    short = {"varchar(20)": "v20", "varbinary(20)": "vb20", "binary(5)": "b"}
    for long, brief in short.items():
        shown = shown.replace(long, brief)
    assert shown == expected


@pytest.mark.parametrize("sign", [" ", " = "])
def test_the_default_collation_of_mariadb(sign: str) -> None:
    """It is that of the character set that a table or a schema has, which stays."""
    create = "CREATE TABLE t (a INT) CHARSET koi8r"
    alter = f"ALTER TABLE t COLLATE{sign}DEFAULT, ADD x CHAR"
    assert after(create, alter, mariadb=True).columns[1].charset == "koi8r"
    alter = f"ALTER DATABASE d DEFAULT COLLATE{sign}DEFAULT"
    create = "CREATE TABLE t (x CHAR)"
    found = after(alter, create, mariadb=True, charset="koi8r")
    assert found.columns[0].charset == "koi8r"


@pytest.mark.parametrize(
    ("definition", "explicit", "mariadb", "nullable"),
    [
        ("TIMESTAMP", True, False, True),
        ("TIMESTAMP", False, False, False),
        ("TIMESTAMP NULL", False, False, True),
        ("TIMESTAMP NOT NULL", True, False, False),
        ("TIMESTAMP AS (now())", False, False, False),
        ("TIMESTAMP AS (now())", False, True, True),
        ("INT AUTO_INCREMENT", True, False, False),
        ("INT AUTO_INCREMENT NULL", True, False, True),
        ("INT NULL AUTO_INCREMENT", True, False, False),
        ("INT SERIAL DEFAULT VALUE", True, False, False),
        ("SERIAL", True, False, False),
        ("INT NOT NULL NULL", True, False, True),
        ("INT DEFAULT 1 UNIQUE COMMENT 'NOT NULL' KEY", True, False, False),
        ("INT UNIQUE KEY", True, False, True),
        ("INT REFERENCES x (NULL_) ON DELETE SET NULL NOT NULL", True, False, False),
        ("INT NOT NULL REFERENCES x(y) ON DELETE SET NULL", True, False, False),
        ("INT DEFAULT NULL CHECK (a IS NOT NULL)", True, False, True),
        ("INT CHECK (a > 0) NOT ENFORCED", True, False, True),
        ("INT DEFAULT CASE WHEN 1 THEN 2 END NOT NULL", True, True, False),
        ("VARCHAR(5) DEFAULT _utf8'x' 'y' NOT NULL", True, False, False),
        ("VARCHAR(5) DEFAULT x'41' NOT NULL", True, False, False),
        ("BIGINT DEFAULT NEXT VALUE FOR s NOT NULL", True, True, False),
        ("DATETIME DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE NOW(3) NOT NULL", 1, 0, 0),
        ("INT DEFAULT -1 NOT NULL COMMENT 'a' COLUMN_FORMAT FIXED", True, False, False),
        ("INT GENERATED ALWAYS AS (1) STORED NOT NULL", True, False, False),
        ("INT AS (1)", True, False, True),
        ("TIMESTAMP(6) AS ROW START", True, True, False),
    ],
)
def test_nullable(
    definition: str, explicit: bool, mariadb: bool, nullable: bool
) -> None:
    """What a definition says, and what follows from it, decides about NULL."""
    table = after(
        f"CREATE TABLE t (a {definition})",
        mariadb=bool(mariadb),
        explicit_timestamp=bool(explicit),
    )
    assert table.columns[0].nullable == bool(nullable)


def test_flags() -> None:
    """Generated, invisible and counting columns are marked, and may be shown again."""
    table = after(
        "CREATE TABLE t (a INT AUTO_INCREMENT KEY INVISIBLE, b INT AS (1), c INT)",
        "ALTER TABLE t ALTER COLUMN a SET VISIBLE, ALTER c SET INVISIBLE",
    )
    assert [each.flags for each in table.columns] == ["A", "G", "I"]


def test_versioning() -> None:
    """Row times that the definition does not name are hidden after the columns."""
    hidden = after("CREATE TABLE t (a INT) WITH SYSTEM VERSIONING", mariadb=True)
    assert hidden.versioning is Versioning.HIDDEN
    columns = [each.name for each in hidden.meta.columns]
    assert columns == ["a", "row_start", "row_end"]
    named = after(
        "CREATE TABLE t (a INT, s TIMESTAMP(6) AS ROW START, e TIMESTAMP(6) GENERATED"
        " ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e), PRIMARY KEY (a, e))"
        " WITH SYSTEM VERSIONING",
        mariadb=True,
    )
    assert named.versioning is Versioning.NAMED
    assert [each.name for each in named.meta.columns] == ["a", "s", "e"]
    assert named.primary == ("a", "e")


@pytest.mark.parametrize(
    ("more", "alter", "expected"),
    [
        ("PRIMARY KEY (a)", "ADD b INT", "a e"),
        ("PRIMARY KEY (a, e)", "RENAME COLUMN e TO z", "a z"),
        ("PRIMARY KEY (s)", "FORCE", "s"),
        ("PRIMARY KEY (e, a)", "FORCE", "e a"),
        ("PRIMARY KEY (a)", "DROP PRIMARY KEY", ""),
        ("PRIMARY KEY (a)", "DROP s, DROP e, DROP SYSTEM VERSIONING", "a"),
        (
            "f DATE, g DATE, PERIOD FOR p (f, g), PRIMARY KEY (a, p WITHOUT OVERLAPS)",
            "FORCE",
            "a e g f",
        ),
    ],
)
def test_row_end_in_the_primary_key(more: str, alter: str, expected: str) -> None:
    """MariaDB has the end of rows in the key of a table that names it."""
    table = after(
        "CREATE TABLE t (a INT, s TIMESTAMP(6) AS ROW START, e TIMESTAMP(6) AS ROW END,"
        f" PERIOD FOR SYSTEM_TIME (s, e), {more}) WITH SYSTEM VERSIONING",
        f"ALTER TABLE t {alter}",
        mariadb=True,
    )
    assert " ".join(table.primary) == expected
    model = MemoryTableMeta(mariadb=True)
    model.load("d", table.create_sql())
    again = model.find("d", "t")
    assert again is not None
    assert again.primary == table.primary


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (("CREATE TABLE t (a INT)", "ALTER TABLE t ADD SYSTEM VERSIONING"), "hidden"),
        (("CREATE TABLE t (a INT WITH SYSTEM VERSIONING)",), "hidden"),
        (
            (
                "CREATE TABLE t (a INT)",
                (
                    "ALTER TABLE t ADD s BIGINT UNSIGNED AS ROW START,"
                    " ADD e BIGINT UNSIGNED AS ROW END,"
                    " ADD PERIOD FOR SYSTEM_TIME (s, e), WITH SYSTEM VERSIONING"
                ),
            ),
            "named",
        ),
        (("CREATE TABLE t (a INT WITHOUT SYSTEM VERSIONING)",), ""),
        (
            (
                "CREATE TABLE t (a INT) WITH SYSTEM VERSIONING",
                "ALTER TABLE t DROP SYSTEM VERSIONING",
            ),
            "",
        ),
    ],
)
def test_versioning_comes_and_goes(statements: tuple[str, ...], expected: str) -> None:
    """System versioning is added, dropped, and implied by a column."""
    assert after(*statements, mariadb=True).versioning.value == expected


def test_period() -> None:
    """A period's columns are never null, and stand for it in a key."""
    table = after(
        "CREATE TABLE t (id INT, s DATE, e DATE, PERIOD FOR p (s, e))",
        "ALTER TABLE t ADD PRIMARY KEY (id, p WITHOUT OVERLAPS)",
        mariadb=True,
    )
    assert table.primary == ("id", "e", "s")
    assert not any(each.nullable for each in table.columns)


@pytest.mark.parametrize(
    ("items", "mysql", "mariadb"),
    [
        ("MODIFY i MEDIUMTEXT CHARACTER SET ucs2", "tinytext", "mediumtext"),
        ("MODIFY v MEDIUMTEXT", "text", "mediumtext"),
        ("MODIFY t TEXT", "mediumtext", "text"),
        ("MODIFY t LONGTEXT", "longtext", "longtext"),
        ("MODIFY t TEXT(100) CHARACTER SET ucs2", "text", "text"),
        ("MODIFY t TINYBLOB", "blob", "tinyblob"),
        ("MODIFY d TEXT", "text", "text"),
        ("ADD x TEXT CHARACTER SET latin1", "text", "text"),
        ("ADD x CHAR(5) CHARACTER SET binary", "binary(5)", "binary(5)"),
    ],
)
def test_convert_and_define(items: str, mysql: str, mariadb: str) -> None:
    """A column defined together with CONVERT TO gets its set, with the same size."""
    create = (
        "CREATE TABLE t (i INT, v VARCHAR(300), t TEXT, d DECIMAL(65, 10))"
        " CHARACTER SET latin1"
    )
    for is_mariadb, expected in ((False, mysql), (True, mariadb)):
        table = after(
            create,
            f"ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4, {items}",
            mariadb=is_mariadb,
        )
        name = items.split()[1]
        (found,) = (each for each in table.columns if each.name == name)
        assert found.type == expected
        is_binary = "blob" in expected or "binary" in expected
        assert found.charset == (None if is_binary else "utf8mb4")


def test_convert_to_default() -> None:
    """MySQL means the session's database by DEFAULT, MariaDB the table's."""
    for is_mariadb, expected in ((False, "greek"), (True, "latin1")):
        model = MemoryTableMeta(mariadb=is_mariadb)
        model.load_database("d", "latin1")
        model.load_database("e", "greek")
        model.apply(None, "d", "CREATE TABLE t (a TEXT) CHARACTER SET utf8mb4")
        model.apply(None, "e", "ALTER TABLE d.t CONVERT TO CHARACTER SET DEFAULT")
        table = model.find("d", "t")
        assert table is not None
        assert table.columns[0].charset == expected


ONE_KEY = "CREATE TABLE t (a INT PRIMARY KEY, b INT)"


@pytest.mark.parametrize(
    ("create", "items", "primary", "nullable"),
    [
        (ONE_KEY, "ADD IF NOT EXISTS c INT KEY", ("a",), False),
        (ONE_KEY, "DROP PRIMARY KEY, ADD COLUMN IF NOT EXISTS c INT KEY", (), False),
        (ONE_KEY, "MODIFY IF EXISTS b INT PRIMARY KEY", ("a",), False),
        ("CREATE TABLE t (b INT)", "ADD IF NOT EXISTS b TEXT KEY", ("b",), False),
        ("CREATE TABLE t (b INT)", "ADD IF NOT EXISTS c INT", (), True),
    ],
)
def test_conditional_keys(
    create: str, items: str, primary: tuple[str, ...], nullable: bool
) -> None:
    """What is said of a column counts for the key in it; NOT NULL it is anyway."""
    table = after(create, f"ALTER TABLE t {items}", mariadb=True)
    assert table.primary == primary
    assert table.columns[-1].nullable is nullable


def test_first_is_after_a_generated_key() -> None:
    """MySQL's own key stays in front, as long as it is one; MariaDB has none."""
    key = "my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY"
    create = f"CREATE TABLE t ({key}, a INT)"
    items = "ALTER TABLE t ADD b INT FIRST, MODIFY a INT FIRST"
    assert names(after(create, items)) == "my_row_id a b"
    assert names(after(create, items, mariadb=True)) == "a b my_row_id"
    assert names(after(f"{create} ENGINE=MyISAM", items)) == "a b my_row_id"
    shown = "ALTER TABLE t ALTER my_row_id SET VISIBLE"
    assert names(after(create, shown, items)) == "a b my_row_id"


def test_labels_in_the_connection() -> None:
    """What the connection's set does not have becomes a question mark."""
    model = MemoryTableMeta()
    context = Context(schema="d", collation_connection="latin1_bin")
    sql = "CREATE TABLE t (a ENUM('я', N'я', 'ä')) CHARACTER SET utf8mb4"
    model.apply(None, "d", sql, context)
    table = model.find("d", "t")
    assert table is not None
    assert table.columns[0].type == "enum('?','я','ä')"


@pytest.mark.parametrize(
    "items",
    [
        "FROBNICATE a",
        "FROBNICATE",
        "ADD d INT, FROBNICATE d",
        "ADD d INT FROBNICATE",
        "ADD d INT BEFORE a",
        "ADD (d INT, e INT) FIRST",
        "MODIFY a BIGINT UPSIDE DOWN",
        "DROP a WITH b",
        "RENAME COLUMN a TO z FAST",
        "RENAME TO u QUICKLY",
        "ENGINE=InnoDB SHUFFLE 5",
        "DEFAULT CHARSET utf8mb4 SHUFFLE",
    ],
)
def test_unknown_items(items: str) -> None:
    """A clause that is not known makes the table uncertain, whatever else is said."""
    model = MemoryTableMeta()
    model.apply(None, "d", ABC)
    applied = model.apply(None, "d", f"ALTER TABLE t {items}")
    assert applied.problem
    assert applied.uncertain == {("d", "t")}
    assert model.is_uncertain("d", "t")


@pytest.mark.parametrize(
    "items",
    [
        "ADD CONSTRAINT FOREIGN KEY x(a) REFERENCES u(b) MATCH FULL ON UPDATE CASCADE",
        "ADD CONSTRAINT c CHECK (a > 0) NOT ENFORCED, ALTER CHECK c ENFORCED",
        "ADD FULLTEXT INDEX f (a) WITH PARSER ngram, ADD SPATIAL KEY (b)",
        "ADD VECTOR INDEX v (a) M=8 DISTANCE=cosine",
        "ADD INDEX i USING BTREE (a DESC, (b + 1)) COMMENT 'x' INVISIBLE",
        "ALGORITHM=INSTANT, LOCK=NONE, FORCE",
        "ALGORITHM DEFAULT, LOCK DEFAULT",
        "ALTER a SET DEFAULT (1 + 1), ALTER COLUMN b DROP DEFAULT",
        "ALTER INDEX i INVISIBLE, ALTER CONSTRAINT c NOT ENFORCED",
        "ALTER KEY IF EXISTS i IGNORED",
        "ANALYZE PARTITION p0",
        "AUTO_INCREMENT 7 AVG_ROW_LENGTH=1, MAX_ROWS 5 MIN_ROWS=0x1",
        "CHANGE COLUMN a a INT COMMENT 'x' COLUMN_FORMAT FIXED STORAGE DISK",
        "CHECK PARTITION ALL EXTENDED",
        "CHECKSUM=1, TABLE_CHECKSUM 1, DELAY_KEY_WRITE=1, PACK_KEYS DEFAULT",
        "COALESCE PARTITION 2",
        "COMMENT 'x' COMPRESSION='zlib' CONNECTION 'y' ENCRYPTION='Y'",
        "DATA DIRECTORY='/a' INDEX DIRECTORY '/b'",
        "DISABLE KEYS, ENABLE KEYS",
        "DISCARD PARTITION p0 TABLESPACE",
        "DISCARD TABLESPACE",
        "DROP CHECK c, DROP CONSTRAINT k, DROP FOREIGN KEY f, DROP KEY i",
        "DROP FOREIGN KEY IF EXISTS f, DROP CONSTRAINT IF EXISTS k",
        "ENGINE InnoDB ENGINE_ATTRIBUTE='{}' SECONDARY_ENGINE_ATTRIBUTE '{}'",
        "EXCHANGE PARTITION p0 WITH TABLE u WITHOUT VALIDATION",
        "IMPORT TABLESPACE",
        "INSERT_METHOD=LAST, UNION=(u, v), KEY_BLOCK_SIZE 4",
        "ORDER BY a ASC, b",
        "PAGE_CHECKSUM=1 TRANSACTIONAL=1 PAGE_COMPRESSED=1 `MIN_FREE`=3 IETF_QUOTES=no",
        "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN MAXVALUE)",
        "PARTITION BY SYSTEM_TIME INTERVAL 1 DAY STARTS '2020-01-01' AUTO PARTITIONS 5",
        "PASSWORD='x', ROW_FORMAT=DYNAMIC, STATS_AUTO_RECALC=DEFAULT",
        "REBUILD PARTITION p0",
        "REMOVE PARTITIONING",
        "RENAME INDEX i TO j, RENAME KEY k TO l",
        "REORGANIZE PARTITION",
        "REPAIR PARTITION p0 QUICK EXTENDED",
        "SECONDARY_ENGINE=NULL",
        "SECONDARY_LOAD",
        "SECONDARY_UNLOAD PARTITION (p0)",
        "STATS_PERSISTENT=1 STATS_SAMPLE_PAGES=9 STORAGE DISK TABLESPACE x",
        "AUTOEXTEND_SIZE 4M",
        "TRUNCATE PARTITION p0, p1",
        "UPGRADE PARTITIONING",
        "WITH VALIDATION, FORCE",
        "WITHOUT VALIDATION",
    ],
)
def test_known_items(items: str) -> None:
    """Every clause of both servers is known; these leave the columns alone."""
    assert names(after(ABC, f"ALTER TABLE t {items}")) == "a b c"


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("DROP PERIOD FOR p", None),
        ("DROP PERIOD IF EXISTS FOR p", None),
        ("ADD PERIOD IF NOT EXISTS FOR q (b, a)", ("p", "a", "b")),
        ("DROP PERIOD FOR p, ADD PERIOD IF NOT EXISTS FOR q (b, a)", ("q", "b", "a")),
        ("MODIFY a DATE NULL", ("p", "a", "b")),
    ],
)
def test_periods(items: str, expected: tuple[str, str, str] | None) -> None:
    """A table has at most one period of its own, whose columns are never null."""
    table = after(
        "CREATE TABLE t (a DATE, b DATE, PERIOD FOR p (a, b))",
        f"ALTER TABLE t {items}",
        mariadb=True,
    )
    assert table.period == expected
    if expected:
        assert [each.nullable for each in table.columns] == [False, False]


@pytest.mark.parametrize(
    ("items", "primary", "keys"),
    [
        ("DROP x", ("i", "b", "a"), []),
        ("DROP i", (), ["u"]),
        ("DROP i, DROP PERIOD FOR p", (), ["u"]),
        ("DROP i, DROP x", (), []),
        ("FORCE", ("i", "b", "a"), ["u"]),
    ],
)
def test_keys_without_overlaps(
    items: str, primary: tuple[str, ...], keys: list[str]
) -> None:
    """MariaDB drops such a key when only its period would be left."""
    table = after(
        "CREATE TABLE t (i INT, x INT, y INT, a DATE, b DATE, PERIOD FOR p (a, b),"
        " PRIMARY KEY (i, p WITHOUT OVERLAPS), UNIQUE u (x, p WITHOUT OVERLAPS))",
        f"ALTER TABLE t {items}",
        mariadb=True,
    )
    assert table.primary == primary
    assert [each.name for each in table.keys] == keys


@pytest.mark.parametrize("literal", [".000001", "-.5", "+.5e-3", ".5 * .5", "(.5)"])
def test_defaults_that_begin_with_a_point(literal: str) -> None:
    """The text of a default is all of the number, and what follows is read."""
    create = f"CREATE TABLE t (a DEC(6,6) DEFAULT {literal} NOT NULL, b INT)"
    (operation,) = resolve(create, Context(schema="d", mariadb=False))
    assert isinstance(operation, CreateTable)
    assert [each.default for each in operation.columns] == [literal, None]
    table = after(create)
    assert (names(table), table.columns[0].nullable) == ("a b", False)
