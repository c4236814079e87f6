"""A table's changes on their way into the lake: order, DDL, and what comes again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from deltalake import DeltaTable, write_deltalake
from packed_changes import ID, NAME, A, B, rows, statement

from canal_server.client.range_client import RangePosition
from canal_server.errors import LakeError
from canal_server.mirror.follow.follower import Follower, is_about, meta_of
from canal_server.mirror.follow.leaving import (
    CopyNeededError,
    TableDroppedError,
    TableStoppedError,
)
from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.settings.mirror_settings import TableRule
from canal_server.mirror.settings.selected_tables import table_by_rule
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_tables import lake_schema
from canal_server.mirror.state.table_shape import Columns
from canal_server.model.versions import version
from canal_server.spark.packed.packed_rows import PART, PROBLEM, STATEMENT, Packed

COPY = "c1"
UNNAMED = TableName("shop", "")  # of statements without tables
AT = 100  # the position of the copy


@pytest.fixture
def follow(tmp_path):
    """Give `follow()`: a follower of the one table, as after a start of the mirror.

    `columns` are those that the mirror had noted of the source.
    """
    rule = TableRule(match=".*", without=("secret",))

    def plan(columns):
        return table_by_rule(NAME, columns, rule)

    first = [meta_of(*each) for each in (ID, A)]

    def lake_of(table):
        return DeltaLakeTable(str(tmp_path / "t"), table)

    def make(columns=first):
        table = plan(columns)
        lake = lake_of(table)
        if not lake.exists():
            lake.publish(COPY, lake_schema(table), [], AT, {})
        return Follower(
            table, Columns(tuple(columns)), lake, COPY,
            plan=plan, rule=rule, is_mariadb=False,
        )  # fmt: skip

    return make


def follower_of(tmp_path, columns):
    """Return a follower of a table with these columns, whose copy has no rows."""
    shown = [meta_of(*each) for each in columns]
    metas = tuple(replace(each, nullable=not each.is_key) for each in shown)
    rule = TableRule(match=".*")
    table = table_by_rule(NAME, metas, rule)
    lake = DeltaLakeTable(str(tmp_path / "t"), table)
    lake.publish(COPY, lake_schema(table), [], AT, {})
    return Follower(
        table, Columns(metas), lake, COPY,
        plan=lambda columns: table_by_rule(NAME, columns, rule), rule=rule,
        is_mariadb=False,
    )  # fmt: skip


def lake_rows(tmp_path):
    """Return what is in the lake by key, without the mirror's own columns."""
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    return {
        row["id"]: {name: row[name] for name in row if name[0] != "_"} for row in found
    }


CHANGES = (
    rows(110, ("insert", 1, "x"), ("insert", 2, "y"), ("update_postimage", 1, "z")),
    statement(120, "ALTER TABLE t ADD COLUMN b INT NOT NULL DEFAULT 5", (ID, A, B)),
    rows(130, ("insert", 3, "w", 6), ("delete", 2, "y", 5), columns=(ID, A, B)),
)
LEFT = {1: {"id": 1, "a": "z", "b": 5}, 3: {"id": 3, "a": "w", "b": 6}}


def take(follower, items, upto, batch=""):
    """Apply a batch to a follower."""
    follower.begin(batch)
    for item in items:
        follower.feed(item, {})
    follower.flush(upto, {}, ends_batch=True)


def test_rows_and_ddl_in_order(follow, tmp_path) -> None:
    """Rows before and after a new column; old ones get its default."""
    follower = follow()
    take(follower, CHANGES, 140)
    assert lake_rows(tmp_path) == LEFT
    assert follower.applied == 140
    assert [each.name for each in follower.columns.all] == ["id", "a", "b"]


def test_streams_that_end_are_told_before(follow, caplog, monkeypatch) -> None:
    """A mirror that is killed by the change of columns has logged it."""
    drop = statement(120, "ALTER TABLE t DROP COLUMN a", (ID,))

    def killed(*_):
        raise LakeError("no more")

    monkeypatch.setattr(DeltaLakeTable, "evolve", killed)
    with pytest.raises(LakeError):
        take(follow(), [drop], 130)
    assert "shop.t: streams that read it in the lake end: column a disappears" in (
        caplog.messages
    )


@pytest.mark.parametrize("done", range(1, len(CHANGES) + 1))
def test_applied_again_after_a_crash(follow, tmp_path, done) -> None:
    """A batch that was applied in part can be applied again."""
    before = follow()
    before.begin("")
    for item in CHANGES[:done]:
        before.feed(item, {})
    before.flush(CHANGES[done - 1].seq + 3, {})
    take(follow(), CHANGES, 140)
    assert lake_rows(tmp_path) == LEFT
    version = DeltaTable(str(tmp_path / "t")).version()
    take(follow(), CHANGES, 140)
    assert DeltaTable(str(tmp_path / "t")).version() == version


def test_a_column_that_is_left_out_comes_again(follow, tmp_path) -> None:
    """Its statement changes nothing in the lake, and is known when it comes again."""
    secret = ("secret", "int", "", False)
    sql = "ALTER TABLE t ADD COLUMN secret INT"
    items = (
        CHANGES[0],
        statement(120, sql, (ID, A, secret)),
        rows(130, ("insert", 3, "w", 9), columns=(ID, A, secret)),
    )
    before = follow()
    before.begin("q/1")
    for item in items[:2]:
        before.feed(item, {})
    take(follow(before.columns.all), items, 140, batch="q/1")
    assert lake_rows(tmp_path) == {
        1: {"id": 1, "a": "z"}, 2: {"id": 2, "a": "y"}, 3: {"id": 3, "a": "w"},
    }  # fmt: skip


def test_a_batch_that_comes_again_at_other_positions(follow, tmp_path) -> None:
    """It is known by its name when the source was replaced in between."""
    take(follow(), CHANGES[:1], 119, batch="q/7")
    again = rows(9000, ("insert", 1, "older"))
    take(follow(), [again], 9100, batch="q/7")
    assert lake_rows(tmp_path)[1]["a"] == "z"
    take(follow(), [again], 9100, batch="q/8")
    assert lake_rows(tmp_path)[1]["a"] == "older"


def test_emptied(follow, tmp_path) -> None:
    """TRUNCATE keeps later rows."""
    take(
        follow(),
        (
            CHANGES[0],
            statement(115, "TRUNCATE TABLE t", event_type="TRUNCATE"),
            rows(116, ("insert", 9, "n")),
        ),
        140,
    )
    assert lake_rows(tmp_path) == {9: {"id": 9, "a": "n"}}


@pytest.mark.parametrize(
    ("item", "error", "text"),
    [
        (
            rows(130, ("insert", 3, "w", 6), columns=(ID, A, B)),
            CopyNeededError,
            "known .b is new., without",
        ),
        (
            rows(130, ("insert", 3, "w"), columns=(ID, (*A[:2], "latin1", False))),
            CopyNeededError,
            "a was varchar.* CHARACTER SET utf8mb4 and is now varchar.* latin1",
        ),
        (
            statement(
                130, "ALTER TABLE t CONVERT TO CHARACTER SET latin1",
                (ID, (*A[:2], "latin1", False)),
            ),
            CopyNeededError,
            "a was varchar.* CHARACTER SET utf8mb4 and is now varchar.* latin1",
        ),
        (
            statement(130, "DROP TABLE t", (), "ERASE"),
            TableDroppedError,
            "dropped or renamed at f:130: DROP TABLE t",
        ),
        (
            statement(130, "UPDATE t SET a = 1", (), "UPDATE", is_ddl=False),
            CopyNeededError,
            "logged as a statement, without its rows, at f:130: UPDATE t",
        ),
        (
            statement(130, "ALTER TABLE t MODIFY a INT", (ID, ("a", "int", "", False))),
            CopyNeededError,
            "a was varchar",
        ),
        (
            statement(
                130, "UPDATE u JOIN t ON u.id = t.id SET t.a = 1", (), "UPDATE",
                is_ddl=False, table=UNNAMED,
            ),
            CopyNeededError,
            "logged as a statement, without its rows, at f:130: UPDATE u",
        ),
        (
            statement(130, "FROB TABLE shop.t", (), "QUERY", table=UNNAMED),
            CopyNeededError,
            "cannot be parsed: .*FROB.* at f:130: FROB",
        ),
        (
            statement(130, "REPAIR TABLE t", (), "QUERY", table=UNNAMED),
            CopyNeededError,
            "REPAIR TABLE may remove rows, at f:130",
        ),
        (
            Packed(
                kind=PROBLEM, destination="d", table=NAME, seq=130, row=0,
                sql="a partial image", journal="f", position=130,
            ),
            TableStoppedError,
            "a partial image",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_followed(follow, tmp_path, item, error, text) -> None:
    """The error has its position; earlier rows are in the lake after a restart."""
    follower = follow()
    follower.begin("")
    follower.feed(CHANGES[0], {})
    with pytest.raises(error, match=text):
        follower.feed(item, {})
    follower.drop_gathered()
    if item.kind == STATEMENT and item.is_ddl:
        assert lake_rows(tmp_path)[1]["a"] == "z"


@pytest.mark.parametrize(
    ("sql", "event_type", "is_ddl", "is_reported"),
    [
        ("UPDATE u JOIN t ON u.id = t.id SET t.a = 1", "UPDATE", False, True),
        ("DELETE u, v FROM u JOIN v", "DELETE", False, False),
        ("FROB TABLE shop.t", "QUERY", True, True),
        ("FROB TABLE shop.tt", "QUERY", True, False),
        ("DROP DATABASE shop", "ERASE", True, True),
    ],
)
def test_statements_without_a_table(sql, event_type, is_ddl, is_reported) -> None:
    """They are about the tables that their text names, or all of a schema."""
    item = statement(1, sql, (), event_type, is_ddl=is_ddl, table=UNNAMED)
    assert is_about(item, NAME) is is_reported


def test_what_is_known_to_change_no_table(follow) -> None:
    """A statement that names the table and is about something else is passed over."""
    follower = follow()
    follower.begin("")
    for sql in ("CREATE DATABASE t", "ALTER VIEW v AS SELECT * FROM t"):
        follower.feed(statement(130, sql, (), "QUERY", table=UNNAMED), {})
    assert follower.applied == AT


EXCHANGE = "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE t"


def test_a_partition_that_was_exchanged_while_the_table_caught_up(follow) -> None:
    """A reader of the table alone does not see it, but the stream does: copied again.

    What was exchanged before the copy began is in the copy.
    """
    follower = follow()
    follower.copied_at = AT
    follower.applied = 200
    for columns in ((ID, A), ()):  # none: the table is a partition now
        with pytest.raises(
            CopyNeededError,
            match=r"another table added or removed rows, at .*: ALTER TABLE p",
        ):
            take(follower, [statement(120, EXCHANGE, columns)], 200, "q/7")
    follower.copied_at = 121
    take(follower, [statement(120, EXCHANGE)], 200, "q/8")
    # Its own statements it has met itself.
    follower.copied_at = AT
    take(follower, [statement(120, "ALTER TABLE t DROP PARTITION a")], 200, "q/9")


def test_a_statement_that_changes_nothing_comes_again(follow) -> None:
    """A table that joins gets it from its own read, and again from the stream."""
    secret = ("secret", "int", "", False)
    wide, wider = ("a", "varchar(30)", *A[2:]), ("a", "varchar(40)", *A[2:])
    statements = (
        statement(120, "ALTER TABLE t ADD secret INT", (ID, A, secret)),
        statement(130, "ALTER TABLE t MODIFY a VARCHAR(30)", (ID, wide, secret)),
        statement(140, "ALTER TABLE t MODIFY a VARCHAR(40)", (ID, wider, secret)),
    )
    follower = follow()
    for batch in ("", "q/7"):
        take(follower, statements, 150, batch)
    assert [c.mysql_type for c in follower.columns.all][1] == "varchar(40)"


def test_a_column_that_is_renamed_while_the_table_is_copied(follow) -> None:
    """Rows that were read after it may have had another column of the name."""
    renamed = statement(120, "ALTER TABLE t RENAME COLUMN a TO c", (ID, ("c", *A[1:])))
    follower = follow()
    follower.copied_until = 121
    with pytest.raises(CopyNeededError, match="renamed while"):
        take(follower, [renamed], 130)
    follower = follow()
    follower.copied_until = 120
    take(follower, [renamed], 130)
    assert [each.name for each in follower.columns.all] == ["id", "c"]


@pytest.mark.parametrize(
    ("key", "sql"),
    [
        (("no", "int", "", True), "ALTER TABLE t RENAME COLUMN id TO no"),
        (("ID", "bigint", "", True), "ALTER TABLE t MODIFY ID BIGINT NOT NULL"),
        (("Id", "int", "", True), "ALTER TABLE t CHANGE id Id INT NOT NULL"),
    ],
)
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_key_that_gets_another_name(follow, tmp_path, key, sql, is_killed) -> None:
    """Rows after it are found by the new name, which may differ only in case.

    Also if the mirror is killed after the statement, and everything is repeated.
    """
    items = (
        rows(110, ("insert", 1, "x"), ("insert", 2, "y")),
        statement(120, sql, (key, A)),
        rows(
            130, ("update_postimage", 1, "z"), ("delete", 2, "y"), ("insert", 3, "w"),
            columns=(key, A),
        ),
    )  # fmt: skip
    known = [replace(meta_of(*ID), nullable=False), meta_of(*A)]
    if is_killed:
        before = follow(known)
        before.begin("q/1")
        for item in items[:2]:
            before.feed(item, {})
    take(follow(known), items, 140, "q/1")
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    assert sorted((row[key[0]], row["a"]) for row in found) == [(1, "z"), (3, "w")]


ENUM = ("a", "enum('x','y')", "utf8mb4", False)
LATIN = ("a", "varchar(20)", "latin1", False)
KEYED = ("id", "varchar(9)", "utf8mb4", True)


@pytest.mark.parametrize(
    ("before", "sql", "after", "why"),
    [
        (
            (ID, ENUM),
            "ALTER TABLE t MODIFY a ENUM('y','x')",
            (ID, (ENUM[0], "enum('y','x')", *ENUM[2:])),
            "column a was redefined",
        ),
        (
            (ID, LATIN),
            "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
            (ID, A),
            "the character set of its texts changed",
        ),
        (
            (KEYED, A),
            "ALTER TABLE t MODIFY id VARCHAR(9) COLLATE utf8mb4_bin NOT NULL",
            (KEYED, A),
            "column id was redefined",
        ),
    ],
)
def test_texts_redefined_while_the_table_is_copied(
    tmp_path, before, sql, after, why
) -> None:
    """A new copy is needed: rows may be doubled, missing, or have other values.

    After the copy all three are followed. They are repeated in another try, as with a
    copy that is resumed after a restart.
    """
    item = statement(120, sql, after)
    follower = follower_of(tmp_path, before)
    for _ in range(2):
        follower.copied_until = 121
        with pytest.raises(CopyNeededError, match=f"{why} while .* at f:120: ALTER"):
            take(follower, [item], 130)
    follower.copied_until = 120
    take(follower, [item], 130)
    assert [each.mysql_type for each in follower.columns.all] == [c[1] for c in after]


def test_numbers_redefined_while_the_table_is_copied(tmp_path) -> None:
    """They are read as before, so the copy follows."""
    wider = statement(
        120, "ALTER TABLE t MODIFY b BIGINT", (ID, (B[0], "bigint", *B[2:]))
    )
    follower = follower_of(tmp_path, (ID, B))
    follower.copied_until = 121
    take(follower, [wider], 130)
    assert follower.columns.all[1].mysql_type == "bigint"


def test_a_copy_that_somebody_else_has_changed(follow, tmp_path) -> None:
    """It is copied again, as it is its own trouble alone, which no wait would end."""
    follower = follow()
    take(follower, [rows(110, ("insert", 1, "x"))], 120)
    write_deltalake(
        str(tmp_path / "t"),
        DeltaTable(str(tmp_path / "t")).to_pyarrow_table().drop_columns(["a"]),
        mode="overwrite",
        schema_mode="overwrite",
    )
    with pytest.raises(CopyNeededError, match="lacks column a"):
        take(follower, [rows(130, ("insert", 2, "y"))], 140)


def test_rows_without_a_key_that_are_not_there(tmp_path) -> None:
    """The copy is not what the changes are of: a new one is."""
    columns = (("id", "int", "", False), A)
    follower = follower_of(tmp_path, columns)
    deleted = rows(110, ("delete", 1, "x"), columns=columns)
    with pytest.raises(CopyNeededError, match="1 changed or deleted rows"):
        take(follower, [deleted], 120)


def test_a_key_that_is_null_in_the_lake(tmp_path) -> None:
    """The lake has no value for a zero date, so such rows are not distinguished."""
    columns = (("on", "date", "", True), A)
    follower = follower_of(tmp_path, columns)
    made = rows(110, ("insert", None, "x"), columns=columns)
    with pytest.raises(
        TableStoppedError, match="on of its primary key has an invalid date"
    ):
        take(follower, [made], 120)


# --- a source that is replaced --------------------------------------------------------


def at(epoch, offset):
    """Return the number of a position."""
    return version(epoch, 0, offset)


def part(start, end):
    """Return an item with the positions of a task: each (epoch, offset)."""
    first, last = (RangePosition(e, "f.000000", offset) for e, offset in (start, end))
    return Packed(
        kind=PART, destination="d", table=TableName("", ""), seq=0, row=0,
        start={"d": first}, end={"d": last},
    )  # fmt: skip


def test_ddl_in_a_batch_that_was_planned_before(follow, tmp_path) -> None:
    """The batch ends at a number that is lower than those of its rows."""
    items = (
        part((0, AT), (0, 200)),
        rows(at(1, 10), ("insert", 1, "x")),
        statement(at(1, 20), "ALTER TABLE t ADD b INT DEFAULT 5", (ID, A, B)),
        rows(at(1, 30), ("insert", 2, "y", 6), columns=(ID, A, B)),
    )
    take(follow(), items, 200, "q/7")
    assert lake_rows(tmp_path) == {
        1: {"id": 1, "a": "x", "b": 5},
        2: {"id": 2, "a": "y", "b": 6},
    }


@pytest.mark.parametrize(
    ("start", "end", "is_there"),
    [
        ((0, 110), (0, 120), True),
        ((0, 90), (0, 100), False),
        ((0, 90), (0, 109), False),
        ((0, 110), (1, 50), True),
    ],
)
def test_what_is_in_the_copy_is_reported_by_the_part(
    follow, tmp_path, start, end, is_there
) -> None:
    """Numbers of another server mean nothing; the part's position decides."""
    before = follow()
    take(before, [rows(105, ("insert", 1, "x"))], 110)
    items = part(start, end), rows(at(1, 10), ("update_postimage", 1, "y"))
    take(follow(), items, at(*end), "q/8")
    assert lake_rows(tmp_path)[1]["a"] == ("y" if is_there else "x")


@pytest.mark.parametrize(
    ("start", "end"), [((0, 90), (0, 120)), ((0, 90), (1, 50)), ((1, 5), (1, 50))]
)
def test_what_may_be_in_the_copy_needs_a_new_one(follow, start, end) -> None:
    """The copy is ahead of the stream, and the source is replaced before it is not."""
    take(follow(), [rows(105, ("insert", 1, "x"))], 110)
    items = part(start, end), rows(at(1, 10), ("insert", 1, "x"))
    with pytest.raises(CopyNeededError, match="replaced after some of its changes"):
        take(follow(), items, at(*end), "q/8")


def test_a_copy_from_which_reading_begins(follow, tmp_path) -> None:
    """Nothing is applied to it yet, so all that comes of another server is new."""
    follower = follow()
    follower.begin("")
    follower.reached(AT)
    follower.feed(part((1, 5), (1, 50)), {})
    follower.feed(rows(at(1, 10), ("insert", 1, "x")), {})
    follower.flush(at(1, 50), {})
    assert lake_rows(tmp_path)[1]["a"] == "x"


def test_a_stream_that_has_come_as_far_as_the_copy(follow, tmp_path) -> None:
    """Then all that comes of another server is new."""
    follower = follow()
    take(follower, [rows(105, ("insert", 1, "x"))], 110)
    take(follower, [], 115, "q/7")
    items = part((1, 5), (1, 50)), rows(at(1, 10), ("update_postimage", 1, "y"))
    take(follower, items, at(1, 50), "q/8")
    assert lake_rows(tmp_path)[1]["a"] == "y"
    again = part((2, 5), (2, 50)), rows(at(2, 10), ("update_postimage", 1, "z"))
    take(follow(), again, at(2, 50), "q/9")  # the lake has a note of the batch
    assert lake_rows(tmp_path)[1]["a"] == "z"
