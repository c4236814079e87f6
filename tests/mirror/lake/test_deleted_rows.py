"""Rows that are deleted by a condition, once, also if there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fix_lake import (
    COPY,
    LakeRows,
    data_files,
    filled,
    lake_rows,
    lake_table,
    opened,
    published,
    versions,
)

from canal_server.mirror.lake.conditions import Among, Interval
from canal_server.mirror.lake.lake_table import RowTable

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.state.lake_tables import LakeTable


def live(lake: LakeTable) -> set[int]:
    """Return the keys of rows that are not deleted."""
    return {row["id"] for row in lake_rows(lake) if not row.get("_deleted")}


def among(*intervals: tuple[Any, Any], has_null: bool = False) -> Among:
    """Return a condition for values of `id`."""
    kind, ranges = pa.int32(), tuple(Interval(*each) for each in intervals)
    return Among("id", kind, ranges, has_null)


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_rows_by_a_condition(
    tmp_path: Path, rng: random.Random, deletes: str, form: str
) -> None:
    """Each deletion is one commit with its position, which a repetition finds."""
    table = lake_table([("id", "int"), ("n", "bigint")], ("id",), deletes, form)
    rows = filled(table, rng)
    # Chance may leave one row, and so none below the limit.
    rows.put("insert", {"id": 40, "n": 1})
    rows.put("insert", {"id": 41, "n": None})
    published(tmp_path, rows)
    lake = opened(tmp_path, table)
    assert isinstance(lake, RowTable)
    before, upto = live(lake), rows.seq + 10
    count, limit = versions(tmp_path, form), sorted(before)[len(before) // 2]
    lake.delete(COPY, among((None, limit), has_null=True), upto, 5_000, {"at": "1"})
    assert versions(tmp_path, form) == count + 1
    left = {key for key in before if key >= limit}
    assert live(lake) == left
    assert lake.position() == (upto, {"at": "1"})
    gone = [row for row in lake_rows(lake) if row.get("_deleted")]
    marked = [row for row in gone if row["_seq"] == upto]
    assert {row["id"] for row in marked} == (
        before - left if deletes == "soft" else set()
    )
    assert {row["_committed_at"].timestamp() for row in marked} <= {5}

    lake.delete(
        COPY, among((None, limit)), upto + 1, 6_000, {"at": "2"}
    )  # there is none
    assert live(lake) == left
    assert lake.position() == (upto + 1, {"at": "2"})
    assert [row for row in lake_rows(lake) if row.get("_deleted")] == gone
    lake.delete(COPY, None, upto + 1, 5_000, {})  # which was done
    assert live(lake) == left
    lake.empty(COPY, upto + 2, 5_000, {})
    assert live(lake) == set()
    lake.empty(COPY, upto + 3, 5_000, {})
    assert lake.applied(COPY) == upto + 3
    assert not lake.has_null("n") or deletes == "soft"


def test_only_files_with_such_rows_are_written(
    tmp_path: Path, rng: random.Random, form: str
) -> None:
    """Files of which all rows go, or none, are not written again."""
    rows = LakeRows(lake_table([("id", "int")], ("id",), form=form), rng)
    for number in range(60):
        rows.put("insert", {"id": number})
    published(tmp_path, rows)  # in files of 16 rows
    lake = opened(tmp_path, rows.table)
    assert isinstance(lake, RowTable)
    before = data_files(tmp_path, form)
    lake.delete(COPY, among((10, 40)), rows.seq + 10, 0, {})
    assert live(lake) == {*range(10), *range(40, 60)}
    after = data_files(tmp_path, form)
    assert len(after & before) == 1  # the last one
    assert len(after - before) <= 2  # instead of the first one and the third


@pytest.mark.parametrize("value", [None, 5])
def test_null_in_a_column(
    tmp_path: Path, rng: random.Random, form: str, value: int | None
) -> None:
    """It is found wherever it is, as dates that do not exist are NULL."""
    table = lake_table([("id", "int"), ("n", "int")], ("id",), form=form)
    rows = LakeRows(table, rng)
    for number in range(20):
        rows.put("insert", {"id": number, "n": value if number == 17 else 1})
    published(tmp_path, rows)
    lake = opened(tmp_path, table)
    assert isinstance(lake, RowTable)
    assert lake.has_null("n") == (value is None)


def test_conditions() -> None:
    """Limits that no value of the type reaches, closed intervals, and NULL."""
    values = pa.array([-128, 0, 4, 127, None], pa.int8())

    def chosen(*intervals: Interval, has_null: bool = False) -> list[bool]:
        found = Among("c", pa.int8(), intervals, has_null).chosen(values)
        return [bool(each) for each in found.to_pylist()]

    assert chosen(Interval(None, 1000)) == [True, True, True, True, False]
    assert chosen(Interval(1000, None)) == [False] * 5
    assert chosen(Interval(None, None), has_null=True) == [True] * 5
    assert chosen(Interval(4, 4, is_closed=True)) == [False, False, True, False, False]
    both = Interval(None, 0), Interval(127, None)
    assert chosen(*both) == [True, False, False, True, False]
    assert chosen(has_null=True) == [False] * 4 + [True]


def test_bounds_that_exclude_files() -> None:
    """Only files that certainly have no such row are left out."""
    wanted = among((10, 20), has_null=True)
    assert wanted.may_be_in(19, 30, nulls=False)
    assert wanted.may_be_in(0, 10, nulls=False)
    assert not wanted.may_be_in(20, 30, nulls=False)
    assert not wanted.may_be_in(0, 9, nulls=False)
    assert wanted.may_be_in(20, 30, nulls=True)
    assert wanted.may_be_in(None, None, nulls=False)
    closed = Among("id", pa.int32(), (Interval(5, 5, is_closed=True),))
    assert closed.may_be_in(0, 5, nulls=True)
    assert not closed.may_be_in(6, 9, nulls=True)
