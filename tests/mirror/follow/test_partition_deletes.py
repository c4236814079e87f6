"""Partitions that are dropped or emptied: a follower deletes their rows in the lake."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from fix_lake import COPY, lake_rows, opened
from packed_changes import A, rows, statement

from canal_server.mirror.follow.follower import Follower, meta_of
from canal_server.mirror.follow.leaving import CopyNeededError, TableStoppedError
from canal_server.mirror.lake.lake_table import lake_schema
from canal_server.mirror.settings.mirror_settings import TableRule
from canal_server.mirror.settings.selected_tables import table_by_rule
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.table_shape import Columns, Partition, Partitions

if TYPE_CHECKING:
    from pathlib import Path

NAME = TableName("shop", "t")
ID = ("id", "int", "", True)
PARTS = Partitions("RANGE", "id", (Partition("a", "10"), Partition("b", "20")))
UNKNOWN = Partitions("HASH", "id", (Partition("a"), Partition("b")))
AT = 100
TRUNCATE = "ALTER TABLE t TRUNCATE PARTITION a"
ROWS = rows(110, *(("insert", number, "x") for number in (3, 5, 12)))


def follower_of(
    folder: Path, form: str, partitions: Partitions | None, **rule: Any
) -> Follower:
    """Return a follower of a table, whose copy has no rows."""
    settings = TableRule(match=".*", form=form, **rule)
    plan = partial(table_by_rule, NAME, rule=settings)
    columns = tuple(meta_of(*each) for each in (ID, A))
    table = plan(columns)
    lake = opened(folder, table)
    if not lake.exists():
        lake.publish(COPY, lake_schema(table), [], AT, {})
    known = Columns(columns, (), partitions)
    return Follower(
        table, known, lake, COPY, plan=plan, rule=settings, is_mariadb=False
    )


def take(follower: Follower, *items: Any, upto: int) -> None:
    """Apply items of a batch."""
    follower.begin("")
    for each in items:
        follower.feed(each, {})
    follower.flush(upto, {}, ends_batch=True)


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_rows_of_a_partition(tmp_path: Path, form: str, deletes: str) -> None:
    """They are deleted once, at the statement: later rows stay."""
    follower = follower_of(tmp_path, form, PARTS, deletes=deletes)
    items = ROWS, statement(120, TRUNCATE), rows(130, ("insert", 4, "y"))
    take(follower, *items, upto=140)
    take(follower_of(tmp_path, form, PARTS, deletes=deletes), *items, upto=140)
    found = lake_rows(follower.lake)
    live = [row["id"] for row in found if not row.get("_deleted")]
    assert sorted(live) == [4, 12]
    assert len(found) == (4 if deletes == "soft" else 2)
    assert follower.columns.partitions == PARTS


def test_a_partition_that_is_dropped(tmp_path: Path, form: str) -> None:
    """The next one reaches back as far as it did, as its rows then do."""
    follower = follower_of(tmp_path, form, PARTS)
    drop = "ALTER TABLE t DROP PARTITION a"
    take(follower, ROWS, statement(120, drop), upto=130)
    assert [row["id"] for row in lake_rows(follower.lake)] == [12]
    again = rows(130, ("insert", 1, "y"))
    other = statement(140, "ALTER TABLE t TRUNCATE PARTITION b")
    take(follower, again, other, upto=150)
    assert lake_rows(follower.lake) == []


@pytest.mark.parametrize(
    ("partitions", "why"),
    [(None, "are not known yet"), (UNKNOWN, "no ranges or lists of one column")],
)
def test_the_reason_of_a_copy(
    tmp_path: Path, form: str, partitions: Partitions | None, why: str
) -> None:
    """It is said where the table is copied, or stopped if its rule says so."""
    sql = statement(120, TRUNCATE)
    with pytest.raises(CopyNeededError, match=rf"{TRUNCATE} \(.*{why}"):
        take(follower_of(tmp_path, form, partitions), ROWS, sql, upto=130)
    stopping = follower_of(tmp_path, form, partitions, drift="stop")
    with pytest.raises(TableStoppedError, match=why):
        take(stopping, ROWS, sql, upto=130)
    assert len(lake_rows(stopping.lake)) == 3
