"""What statements mean for a copy, derived from text and columns."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from hashlib import sha256

import pyarrow as pa
import pytest

from canal_server.mirror.ddl.evolve import (
    Copy,
    Decision,
    Dropped,
    Empty,
    Replaced,
    Steps,
    Stop,
    decide,
)
from canal_server.mirror.lake.masks import masked, source_type
from canal_server.mirror.lake.steps import (
    AddColumn,
    DropColumn,
    RenameColumn,
    WidenColumn,
)
from canal_server.mirror.settings.lake_partitions import expressions_of
from canal_server.mirror.settings.mirror_settings import TableRule, TypeSettings
from canal_server.mirror.settings.table_values import Mask, MirrorColumn, TableName
from canal_server.model.columns_known import ColumnMeta

NAME = TableName("s", "t")
ALL = TableRule(match="s.t")
NOON = datetime.fromisoformat("2026-01-02 12:00:00")  # of no zone, as a DATETIME


def columns(*texts: str) -> list[ColumnMeta]:
    """Return columns: `name type`, with an asterisk for those of the key."""
    found = []
    for text in texts:
        name, _, mysql_type = text.partition(" ")
        charset = "utf8mb4" if "char" in mysql_type else None
        is_key = name.startswith("*")
        name = name.removeprefix("*")
        nullable = not (is_key or mysql_type.endswith("!"))
        mysql_type = mysql_type.removesuffix("!")
        found.append(ColumnMeta(name, mysql_type, charset, is_key, nullable))
    return found


TABLE = ("*id int", "a int", "b varchar(9)")


def ddl(sql: str, *after: str, rule: TableRule = ALL, before=TABLE, **more) -> Decision:
    """Return what a statement means for the table."""
    return decide(sql, NAME, columns(*before), columns(*after), rule, **more)


def steps_of(sql: str, *after: str, rule: TableRule = ALL, before=TABLE, **more):
    """Return the steps by which the copy follows."""
    decision = ddl(sql, *after, rule=rule, before=before, **more)
    assert isinstance(decision, Steps), decision
    return list(decision.steps)


def why(sql: str, *after: str, rule: TableRule = ALL, before=TABLE, **more) -> str:
    """Return why the table has to be copied again."""
    decision = ddl(sql, *after, rule=rule, before=before, **more)
    assert isinstance(decision, Copy), decision
    return decision.reason


def test_columns_are_added():
    """A new column comes with what its rows have: NULL, or a constant default."""
    after = (*TABLE, "c int", "d varchar(5)")
    assert steps_of(
        "ALTER TABLE t ADD c INT DEFAULT 7 AFTER a, ADD COLUMN (d VARCHAR(5))", *after
    ) == [
        AddColumn("c", "int", "", "7"),
        AddColumn("d", "varchar(5)", "utf8mb4", None),
    ]
    assert steps_of("ALTER TABLE `s`.`t` ADD d VARCHAR(5) NOT NULL", *TABLE, after[4])
    assert why("ALTER TABLE t ADD c INT DEFAULT (RAND())", *TABLE, "c int").startswith(
        "added column c: its default is not a constant"
    )
    assert "AUTO_INCREMENT" in why(
        "ALTER TABLE t ADD c INT AUTO_INCREMENT UNIQUE", *TABLE, "c int"
    )
    assert "time of the statement" in why(
        "ALTER TABLE t ADD c TIMESTAMP", *TABLE, "c timestamp"
    )
    assert steps_of("ALTER TABLE t ADD c TIMESTAMP NULL", *TABLE, "c timestamp")
    assert not steps_of("ALTER TABLE t ADD COLUMN IF NOT EXISTS a INT", *TABLE)


GENERATED = (*TABLE, "g int")
COMPUTED = "ALTER TABLE t ADD g INT AS {}"


def test_generated_columns():
    """A column that can be computed from others is added, or replaced, with its values.

    Another name in the lake is that of the lake there.
    """
    (added,) = steps_of(COMPUTED.format("(a * 2 + 1) STORED"), *GENERATED)
    assert isinstance(added, AddColumn)
    assert added.generated is not None
    rows = pa.table({"id": [1, 2], "a": [5, None], "b": ["x", ""]})
    assert added.generated.values(rows, pa.int32()).to_pylist() == [11, None]
    named = TableRule(match="s.t", rename={"a": "n", "g": "twice"})
    (added,) = steps_of(COMPUTED.format("(`A` * 2)"), *GENERATED, rule=named)
    assert isinstance(added, AddColumn)
    assert added.name == "twice"
    assert added.generated is not None
    found = added.generated.values(rows.rename_columns(["id", "n", "b"]), pa.int32())
    assert found.to_pylist() == [10, None]
    dropped, again = steps_of(
        "ALTER TABLE t CHANGE g h BIGINT AS (id - 1)",
        *(*TABLE, "h bigint"),
        before=GENERATED,
    )
    assert dropped == DropColumn("g")
    assert isinstance(again, AddColumn)
    assert (again.name, again.mysql_type) == ("h", "bigint")
    assert steps_of("ALTER TABLE t DROP g", *TABLE, before=GENERATED) == [
        DropColumn("g")
    ]
    # It keeps the values that it had.
    assert not steps_of("ALTER TABLE t MODIFY g INT", *GENERATED, before=GENERATED)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("(a / 2)", "found '/'"),
        ("(a + c)", "has c, which is no column"),
        ("(t.a)", "has t, which is no column"),
        ("(CONCAT(b, 'x'))", "depends on the server's conversion"),
        ("(LENGTH(b))", "has length()"),
        ("(b + 1)", "converts a text"),
        ("(IF(a = 1, 'é', b))", "depends on a mode"),
        ('(IF(a = 1, "x", b))', "depends on a mode"),
        ("(a + 1.5)", "is rounded"),
        ("(NOT a = 1)", "depends on a mode"),
        ("(NOT (a) = 1)", "found '='"),
        ("(CASE a WHEN 1 THEN 2 END)", "has 'A'"),
        ("(a", "cannot be parsed"),
    ],
)
def test_generated_columns_that_are_not_computed(expression: str, reason: str):
    """The reason for another copy names the column and what is not certain."""
    found = why(COMPUTED.format(expression), *GENERATED)
    assert reason in found
    assert "g" in found or "parsed" in found


def test_generated_columns_of_hidden_ones():
    """Masked values are not in the lake, so nothing is computed from them."""
    rule = TableRule(match="s.t", masks={"a": Mask("null")}, shown=("g",))
    reason = why(COMPUTED.format("(a + 1)"), *GENERATED, rule=rule)
    assert "has column a, which is int" in reason


def test_columns_that_others_are_generated_from():
    """A new type of a column may change what is generated from it: that is copied."""
    before = columns(*TABLE, "g int")
    before[-1] = replace(before[-1], generated=True)

    def decided(sql: str, *after: str) -> Decision:
        return decide(sql, NAME, before, columns(*after), ALL)

    wider = decided(
        "ALTER TABLE t MODIFY b VARCHAR(20)", *TABLE[:2], "b varchar(20)", "g int"
    )
    assert wider == Copy("column g is generated, and may change with column b")
    wider = decided("ALTER TABLE t MODIFY a BIGINT", TABLE[0], "a bigint", TABLE[2],
                    "g int")  # fmt: skip
    assert isinstance(wider, Copy)
    assert isinstance(decided("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
                              *GENERATED), Copy)  # fmt: skip
    same = decided("ALTER TABLE t MODIFY a INT COMMENT 'x'", *GENERATED)
    assert isinstance(same, Steps)
    assert [each.generated for each in same.columns] == [False, False, False, True]
    renamed = decided("ALTER TABLE t RENAME COLUMN g TO h", *TABLE, "h int")
    assert isinstance(renamed, Steps)
    assert renamed.columns[-1].generated
    both = decided("ALTER TABLE t MODIFY a BIGINT, MODIFY g INT AS (id + a)",
                   TABLE[0], "a bigint", TABLE[2], "g int")  # fmt: skip
    assert isinstance(both, Steps)
    plain = decided("ALTER TABLE t MODIFY g INT, MODIFY a BIGINT",
                    TABLE[0], "a bigint", TABLE[2], "g int")  # fmt: skip
    assert isinstance(plain, Steps)


def test_generated_columns_by_which_rows_are_found():
    """A key or a partition with other values is another copy."""
    rule = TableRule(match="s.t", partition_by=expressions_of("g"))
    sql = "ALTER TABLE t MODIFY g INT AS (id + 1)"
    assert "by which rows are found" in why(
        sql, *GENERATED, rule=rule, before=GENERATED
    )
    key = ("id int", "a int", "*g int")
    assert "by which rows are found" in why(sql, *key, before=key)


def test_columns_go():
    """A column dropped in the source is dropped in the lake, or kept by rule."""
    sql = "ALTER TABLE t DROP a"
    keep = TableRule(match="s.t", dropped_columns="keep")
    after = (TABLE[0], TABLE[2])

    assert steps_of(sql, *after) == [DropColumn("a")]
    kept = ddl(sql, *after, rule=keep)
    assert kept == Steps((), tuple(columns(*after)), ("a",))
    again = "ALTER TABLE t ADD a INT"
    assert "is kept" in why(again, *TABLE, rule=keep, before=after, kept=("a",))
    both = "ALTER TABLE t DROP a, ADD a BIGINT"
    assert steps_of(both, TABLE[0], "a bigint", TABLE[2]) == [
        DropColumn("a"),
        AddColumn("a", "bigint", "", None),
    ]
    assert "is kept" in why(both, TABLE[0], "a bigint", TABLE[2], rule=keep)


def test_columns_go_without_a_key():
    """In Delta none is kept: rows are found by all of their values, at once, not later.

    A log keeps what it has, as with a key.
    """
    sql = "ALTER TABLE t DROP a"
    before, after = ("a int", "b varchar(9)"), ("b varchar(9)",)
    keep = TableRule(match="s.t", dropped_columns="keep")

    assert steps_of(sql, *after, before=before) == [DropColumn("a")]
    assert "column a is dropped and cannot be kept: without a primary key" in why(
        sql, *after, before=before, rule=keep
    )
    stop = ddl(sql, *after, before=before, rule=replace(keep, drift="stop"))
    assert isinstance(stop, Stop)
    log = ddl(sql, *after, before=before, rule=replace(keep, form="parquet"))
    assert log == Steps((), tuple(columns(*after)), ("a",))


def test_columns_are_renamed_and_widened():
    """A name and a type change with the values; several items are one decision."""
    assert steps_of(
        "ALTER TABLE t CHANGE a n BIGINT, RENAME COLUMN b TO B2, ADD c INT FIRST",
        *("c int", "*id int", "n bigint", "B2 varchar(9)"),
    ) == [
        RenameColumn("a", "n"),
        RenameColumn("b", "B2"),
        WidenColumn("n", "bigint", ""),
        AddColumn("c", "int", "", None),
    ]
    assert (
        steps_of("ALTER TABLE t MODIFY b VARCHAR(99)", *TABLE[:2], "b varchar(99)")[:]
        == []
    )
    assert "some values may have" in why(
        "ALTER TABLE t MODIFY a SMALLINT", TABLE[0], "a smallint", TABLE[2]
    )
    assert "is renamed to b" in why(
        "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        *("*id int", "b int", "a varchar(9)"),
    )
    assert steps_of("ALTER TABLE t CHANGE a A INT", "*id int", "A int", TABLE[2]) == [
        RenameColumn("a", "A")
    ]
    # A name that is free again.
    assert steps_of("ALTER TABLE t DROP b, CHANGE a b INT", "*id int", "b int") == [
        DropColumn("b"),
        RenameColumn("a", "b"),
    ]


def test_null_and_not_null():
    """What replaces NULL is unknown; the state records whether a column had NULLs."""
    sql = "ALTER TABLE t MODIFY a INT NOT NULL"
    assert "what replaces NULL is unknown" in why(sql, *TABLE)
    before = ("*id int", "a int!", "b varchar(9)")
    decision = ddl(sql.replace("INT", "BIGINT"), "*id int", "a bigint", TABLE[2],
                   before=before)  # fmt: skip
    assert isinstance(decision, Steps)
    assert [each.nullable for each in decision.columns] == [False, False, True]
    back = ddl("ALTER TABLE t MODIFY a INT", *TABLE, before=before)
    assert isinstance(back, Steps)
    assert back.columns[1].nullable


def test_the_key():
    """Another key is another table; a column of it may have another name or type."""
    assert "primary key" in why(
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a)",
        *("id int", "*a int", TABLE[2]),
    )
    assert steps_of("ALTER TABLE t CHANGE id no BIGINT", "*no bigint", *TABLE[1:]) == [
        RenameColumn("id", "no"),
        WidenColumn("no", "bigint", ""),
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t ADD INDEX (a)",
        "CREATE UNIQUE INDEX i ON t (a)",
        "ALTER TABLE t ENGINE=InnoDB, COMMENT='x'",
        "OPTIMIZE TABLE t",
        "ANALYZE TABLE t",
        "CREATE TABLE IF NOT EXISTS t (id INT)",
        "CREATE TEMPORARY TABLE t (id INT)",
        "DROP TEMPORARY TABLE t",
        "ALTER TABLE t ADD PARTITION (PARTITION p VALUES LESS THAN (9))",
        "ALTER TABLE other DROP PARTITION p, DROP COLUMN x",
        "DROP VIEW v",
    ],
)
def test_nothing_to_follow(sql: str):
    """What leaves columns and rows as they are needs no step."""
    assert steps_of(sql, *TABLE) == []


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("ALTER TABLE t DROP PARTITION p0, p1", "drops a partition"),
        ("ALTER TABLE t TRUNCATE PARTITION ALL", "empties a partition"),
        ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", "exchanges"),
        (
            "ALTER TABLE t CONVERT TABLE u TO PARTITION p VALUES IN (1)",
            "converts a table",
        ),
        ("ALTER TABLE u EXCHANGE PARTITION p WITH TABLE s.t", "exchanges"),
        ("ALTER TABLE u CONVERT PARTITION p TO TABLE T", "converts a partition"),
        ("ALTER TABLE t IMPORT TABLESPACE", "imports"),
        ("ALTER IGNORE TABLE t ADD UNIQUE (a)", "removes rows"),
        (
            "SET STATEMENT lock_wait_timeout=1 FOR ALTER TABLE t DROP PARTITION p",
            "drops",
        ),
        ("ALTER TABLE t ENGINE=BLACKHOLE", "stores no rows"),
        ("ALTER TABLE u ADD c INT, RENAME TO t", "got its name"),
        ("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)", "was recreated"),
        ("CREATE TABLE t LIKE u", "was recreated"),
        ("INSERT INTO t SELECT * FROM u", "by a statement (INSERT)"),
        ("WITH x AS (SELECT 1) DELETE FROM t", "by a statement (WITH)"),
        ("ALTER TABLE t ADD a INT, DROP a, MODIFY a BIT", "concern one column"),
        ("ALTER TABLE t FROB a", "cannot be parsed"),
        ("ALTER TABLE t ADD c INT DEFAULT 'x", "cannot be parsed"),
        ("ALTER TABLE t ADD c INT", "what happens to the columns c"),
    ],
)
def test_copied_again(sql: str, reason: str):
    """What changes rows without a word in the binlog makes a new copy."""
    assert reason in why(sql, *TABLE)
    stop = TableRule(match="s.t", drift="stop")
    decision = ddl(sql, *TABLE, rule=stop)
    assert isinstance(decision, Stop)
    assert reason in decision.reason


@pytest.mark.parametrize(
    ("sql", "origin"),
    [
        ("ALTER TABLE u RENAME TO t", "u"),
        ("RENAME TABLE t TO old, new TO t", "new"),
        ("RENAME TABLE t TO tmp, u TO t, tmp TO u", "u"),
        ("RENAME TABLE u TO v, v TO w, t TO x, W TO T", "u"),
        ("rename /* gh-ost */ table `s`.`t` to `s`.`_t_del`, `s`.`_t_gho` to `s`.`t`",
         "_t_gho"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("drift", ["copy", "stop"])
def test_another_table_got_the_name(sql: str, origin: str, drift: str):
    """The decision names the table whose rows these are now, through all renames."""
    found = ddl(sql, *TABLE, rule=TableRule(match="s.t", drift=drift))
    assert isinstance(found, Replaced)
    assert found.origin == TableName("s", origin)


def test_empty_dropped_and_new():
    """TRUNCATE, DROP and CREATE are what they are."""
    assert ddl("TRUNCATE TABLE t", *TABLE) == Empty()
    assert ddl("DROP TABLE t") == Dropped()
    assert ddl("RENAME TABLE t TO u") == Dropped()
    assert why("CREATE TABLE t (id INT)", *TABLE, before=()) == "the table is new"
    versioned = ddl("ALTER TABLE t ADD SYSTEM VERSIONING", *TABLE)
    assert isinstance(versioned, Stop)


def test_what_is_hidden_stays_hidden():
    """A masked or left out column does not come into the lake by another name."""
    rule = TableRule(match="s.t", without=("a",), masks={"b": Mask("hash", salt="x")})
    for sql, after in (
        ("ALTER TABLE t RENAME COLUMN a TO c", ("*id int", "c int", TABLE[2])),
        ("ALTER TABLE t CHANGE b c VARCHAR(9)", (*TABLE[:2], "c varchar(9)")),
    ):
        decision = ddl(sql, *after, rule=rule)
        assert isinstance(decision, Stop), decision
        assert "add c to" in decision.reason
        # The rule allows it to be seen: its values are not in the copy yet.
        decision = ddl(sql, *after, rule=replace(rule, shown=("C",)))
        assert isinstance(decision, Copy), decision
    # A change of the hidden ones is nothing to the lake.
    sql = "ALTER TABLE t MODIFY a TINYINT, DROP b, ADD b CHAR(3) DEFAULT 'q'"
    assert steps_of(sql, "*id int", "a tinyint", "b char(3)", rule=rule) == [
        DropColumn("b"),
        AddColumn("b", "char(64)", "ascii", sha256(b"xq").hexdigest()),
    ]


@pytest.mark.parametrize(
    ("mysql_type", "default", "value"),
    [
        ("datetime", "'2026-01-02 12:00:00'", NOON),
        ("datetime(3)", "'2026-01-02 12:00:00.5'", NOON.replace(microsecond=500_000)),
        ("double", "1e3", 1000.0),
        ("float", "2.50", 2.5),
        ("decimal(9,3)", "5", Decimal("5.000")),
        ("int", "7", 7),
        ("varchar(9)", "'7'", "7"),
    ],
)  # fmt: skip
def test_a_hashed_default_is_the_hash_of_the_value(mysql_type, default, value):
    """A row that has it from the statement is as one that is written with it."""
    mask = Mask("hash", salt="pepper")
    rule = TableRule(match="s.t", masks={"c": mask})
    sql = f"ALTER TABLE t ADD c {mysql_type} DEFAULT {default}"
    (step,) = steps_of(sql, *TABLE, f"c {mysql_type}", rule=rule)
    column = MirrorColumn("c", mysql_type, "utf8mb4", False, "c")
    written = masked(pa.array([value], source_type(column)), mask)
    assert step.fill == written[0].as_py()


def test_masks_and_types():
    """A hashed number may grow; what is hashed of another text is copied again."""
    rule = TableRule(match="s.t", masks={"a": Mask("hash"), "b": Mask("truncate", 2)})
    assert not steps_of(
        "ALTER TABLE t MODIFY a BIGINT", "*id int", "a bigint", TABLE[2], rule=rule
    )
    assert "hashed" in why(
        "ALTER TABLE t MODIFY a DOUBLE",
        *("*id int", "a double", TABLE[2]),
        rule=rule,
        before=("*id int", "a float", TABLE[2]),
    )
    (step,) = steps_of(
        "ALTER TABLE t DROP b, ADD b VARCHAR(9) DEFAULT 'abc'", *TABLE, rule=rule
    )[1:]
    assert step == AddColumn("b", "varchar(9)", "utf8mb4", "ab")


FORMS = TypeSettings(geometry="wkb", vector="array", bit64="unsigned")
CONVERTED = TableRule(match="s.t", types=FORMS, rename={"shape": "area"})
SHAPES = ("*id int", "g point", "v vector(3)", "b bit(64)")


def test_columns_in_other_forms():
    """A geometry comes, goes and is renamed with its SRID; the types are the lake's."""

    def steps(sql: str, *after: str, rule: TableRule = CONVERTED, before=SHAPES):
        return steps_of(sql, *after, rule=rule, before=before)

    assert steps(
        "ALTER TABLE t ADD g point, ADD v vector(3), ADD b bit(64) NOT NULL DEFAULT"
        " b'1"
        f"{63 * '0'}'",
        "*id int", "g point", "v vector(3)", "b bit(64)!",
        before=("*id int",),
    ) == [
        AddColumn("g", "point", ""),
        AddColumn("g_srid", "int unsigned", ""),
        AddColumn("v", "vector(3)", "", None, "array"),
        AddColumn("b", "bigint unsigned", "", str(2**63)),
    ]  # fmt: skip
    assert steps("ALTER TABLE t DROP g, DROP v", "*id int", "b bit(64)") == [
        DropColumn("g"),
        DropColumn("g_srid"),
        DropColumn("v"),
    ]
    assert steps(
        "ALTER TABLE t RENAME COLUMN g TO shape, RENAME COLUMN v TO w",
        "*id int", "shape point", "w vector(3)", "b bit(64)",
    ) == [
        RenameColumn("g", "area"),
        RenameColumn("g_srid", "area_srid"),
        RenameColumn("v", "w"),
    ]  # fmt: skip
    keeps = replace(CONVERTED, dropped_columns="keep")
    kept = ddl("ALTER TABLE t DROP g", *SHAPES[:1], *SHAPES[2:], rule=keeps,
               before=SHAPES)  # fmt: skip
    assert isinstance(kept, Steps)
    assert kept.kept == ("g", "g_srid")
    widens = "ALTER TABLE t MODIFY b bit(64)"
    assert steps(widens, *SHAPES, before=(*SHAPES[:3], "b bit(63)")) == [
        WidenColumn("b", "bigint unsigned", "")
    ]
    assert steps(widens, *SHAPES, before=(*SHAPES[:3], "b bit(63)"), rule=ALL) == []


@pytest.mark.parametrize(
    ("sql", "after"),
    [
        ("ALTER TABLE t MODIFY g geometry", ("g geometry", "v vector(3)", "b bit(64)")),
        ("ALTER TABLE t MODIFY v vector(4)", ("g point", "v vector(4)", "b bit(64)")),
        ("ALTER TABLE t MODIFY v blob", ("g point", "v blob", "b bit(64)")),
        ("ALTER TABLE t MODIFY b bit(63)", ("g point", "v vector(3)", "b bit(63)")),
        (
            "ALTER TABLE t ADD h point NOT NULL",
            ("g point", "v vector(3)", "b bit(64)", "h point!"),
        ),
    ],
)
def test_other_forms_by_drift(sql: str, after: tuple[str, ...]):
    """What may have changed values is copied again, or stops the table."""
    assert why(sql, "*id int", *after, rule=CONVERTED, before=SHAPES)
    stops = replace(CONVERTED, drift="stop")
    assert isinstance(ddl(sql, "*id int", *after, rule=stops, before=SHAPES), Stop)


def test_a_column_with_the_name_of_a_srid():
    """It stops the table, as both would have the same name in the lake."""
    decision = ddl("ALTER TABLE t ADD g_srid int", *SHAPES, "g_srid int",
                   rule=CONVERTED, before=SHAPES)  # fmt: skip
    assert isinstance(decision, Stop)
    assert "columns g and g_srid get the same name in the lake" in decision.reason


def test_columns_by_rule():
    """Only columns that a rule selects are added, with the names that it gives."""
    rule = TableRule(match="s.t", columns=("id", "a", "z"), rename={"z": "Zeta"})
    assert steps_of(
        "ALTER TABLE t ADD z INT, ADD y INT", *TABLE, "z int", "y int", rule=rule
    ) == [AddColumn("Zeta", "int", "", None)]
    assert steps_of(
        "ALTER TABLE t CHANGE a other INT", "*id int", "other int", TABLE[2], rule=rule
    ) == [DropColumn("a")]
    bad = ddl("ALTER TABLE t ADD z FROBNICATE", *TABLE, "z frobnicate", rule=rule)
    assert isinstance(bad, Stop)
    assert "unknown type" in bad.reason


def test_statements_of_other_schemas():
    """An unqualified name is that of the session's schema."""
    sql = "ALTER TABLE t ADD c INT"
    assert "what happens" in why(sql, *TABLE, "c int", schema="other")
    assert steps_of("ALTER TABLE S.T ADD c INT", *TABLE, "c int", schema="other")


def test_columns_of_partitions():
    """A table whose column of a partition is no longer there is stopped."""
    rule = TableRule(match="s.t", partition_by=expressions_of("a, bucket(4, b)"))
    for sql, after in (
        ("ALTER TABLE t DROP a", (TABLE[0], TABLE[2])),
        ("ALTER TABLE t RENAME COLUMN a TO c", (TABLE[0], "c int", TABLE[2])),
        ("ALTER TABLE t MODIFY a DOUBLE", (TABLE[0], "a double", TABLE[2])),
    ):
        decision = ddl(sql, *after, rule=rule)
        assert isinstance(decision, Stop), decision
        assert "partition_by: " in decision.reason
    wide = (TABLE[0], "a bigint", TABLE[2])
    assert steps_of("ALTER TABLE t MODIFY a BIGINT", *wide, rule=rule) == [
        WidenColumn("a", "bigint", "")
    ]
