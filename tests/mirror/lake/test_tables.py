"""Tables of the mirror in each format: changes are applied exactly once, atomically."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from fix_lake import (
    COPY,
    KEY_TYPES,
    LakeRows,
    copied_rows,
    filled,
    in_order,
    kept,
    lake_rows,
    lake_table,
    opened,
    published,
    random_table,
    write_copy,
)
from fix_random import longer

from canal_server.errors import LakeError
from canal_server.mirror.state.lake_tables import NOWHERE, Applied, lake_schema

if TYPE_CHECKING:
    import random
    from pathlib import Path

PLAIN = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",))


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("round_", range(longer(6)))
def test_random_changes(
    tmp_path: Path,
    rng: random.Random,
    deletes: str,
    round_: int,
    form: str,
) -> None:
    """Random changes of random tables give their rows, in batches that also overlap."""
    rows = filled(random_table(rng, deletes, form), rng)
    print([(c.target, c.mysql_type, c.is_key) for c in rows.table.columns])
    lake = published(tmp_path, rows)
    done: list[dict[str, object]] = []
    for _ in range(rng.randrange(2, 6)):
        new = rows.random_changes(rng.choice([1, 30, 100]))
        overlap = done[rng.randrange(len(done) + 1) :]
        changes = rows.as_changes([*overlap, *new])
        lake.apply(COPY, changes, rows.seq + 1, {})
        assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
        assert lake.applied(COPY) == rows.seq + 1
        done += new


@pytest.mark.parametrize("kind", KEY_TYPES)
def test_keys(tmp_path: Path, rng: random.Random, kind: str, form: str) -> None:
    """A key of each type is distinct from all others, and is found again."""
    table = lake_table([("k", kind), ("v", "int")], ("k",))
    rows = filled(kept(table, form), rng)
    lake = published(tmp_path, rows)
    for _ in range(2):
        changes = rows.as_changes(rows.random_changes(40))
        lake.apply(COPY, changes, rows.seq + 1, {})
        assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def test_text_keys_that_differ_by_case(
    tmp_path: Path, rng: random.Random, form: str
) -> None:
    """Keys are compared by their characters: a row `a` that becomes `A` is one row."""
    rows = LakeRows(
        kept(lake_table([("k", "varchar(9)"), ("v", "int")], ("k",)), form), rng
    )
    lake = published(tmp_path, rows)
    moves = [("insert", "a", 1), ("delete", "a", 1), ("insert", "A", 1)]
    changes = [rows.change(kind, {"k": k, "v": v}) for kind, k, v in moves]
    changes.append(rows.change("insert", {"k": "b", "v": 2}))
    assert lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {}) == Applied(2, 0)
    assert sorted((r["k"], r["v"]) for r in lake_rows(lake)) == [("A", 1), ("b", 2)]


def test_the_schema_is_that_of_the_stream(
    tmp_path: Path, rng: random.Random, form: str
) -> None:
    """The lake's columns have the stream's types, followed by those of the order."""
    rows = filled(random_table(rng, "soft", form), rng)
    lake = published(tmp_path, rows)
    assert lake.exists()
    assert lake.arrow_schema() == lake_schema(rows.table)
    assert lake_schema(rows.table).names[-4:] == [
        "_seq", "_row", "_committed_at", "_deleted",
    ]  # fmt: skip


def test_nothing_published(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A missing table has no rows and no position, and accepts no changes."""
    lake = opened(tmp_path / "none", kept(PLAIN, form))
    assert not lake.exists()
    assert lake.arrow_schema() is None
    assert lake.applied(COPY) == NOWHERE
    assert lake.position() == (NOWHERE, {})
    changes = LakeRows(kept(PLAIN, form), rng).as_changes([])
    with pytest.raises(LakeError, match=r"shop/orders .*: it is not copy copy-1"):
        lake.apply(COPY, changes, 5, {})


def test_files_without_a_commit_are_not_there(
    tmp_path: Path,
    rng: random.Random,
    form: str,
) -> None:
    """Files of a copy that is not published are nothing to a reader."""
    rows = filled(kept(PLAIN, form), rng)
    write_copy(tmp_path, copied_rows(rows))
    assert not opened(tmp_path, kept(PLAIN, form)).exists()


def test_copied_again(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A second copy replaces rows and columns; changes of the first are refused."""
    first = filled(kept(PLAIN, form), rng)
    lake = published(tmp_path, first)
    second = LakeRows(
        kept(lake_table([("n", "bigint"), ("d", "date")], ("n",)), form), rng, 9_000
    )
    second.random_changes(30)
    again = published(tmp_path, second, "copy-2")
    assert in_order(lake_rows(again)) == in_order(second.rows.values())
    assert again.applied("copy-2") == second.seq + 1
    assert lake.applied(COPY) == NOWHERE
    changes = first.as_changes(first.random_changes(3))
    with pytest.raises(LakeError, match="not copy copy-1"):
        lake.apply(COPY, changes, 99_999, {})
    assert in_order(lake_rows(again)) == in_order(second.rows.values())


def test_published_twice(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A copy that is published already stays, with what was applied to it since."""
    rows = filled(kept(PLAIN, form), rng)
    files = write_copy(tmp_path, copied_rows(rows))
    lake = published(tmp_path, rows)
    lake.apply(COPY, rows.as_changes(rows.random_changes(9)), rows.seq + 1, {})
    lake.publish(COPY, lake_schema(PLAIN), files, 1, {})
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def test_an_empty_copy(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A table without rows exists, is empty, and accepts changes."""
    rows = LakeRows(kept(PLAIN, form), rng)
    lake = published(tmp_path, rows)
    assert lake.exists()
    assert lake_rows(lake) == []
    lake.apply(COPY, rows.as_changes(rows.random_changes(9)), rows.seq + 1, {})
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def test_repeated_batches(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A batch that comes again changes nothing, and the next one is applied."""
    rows = filled(kept(PLAIN, form), rng)
    lake = published(tmp_path, rows)
    new_rows = [*rows.random_changes(30), rows.change("insert", {"id": 100, "v": "a"})]
    changes = rows.as_changes(new_rows)
    assert lake.apply(COPY, changes, rows.seq + 1, {}) != Applied()
    before = in_order(lake_rows(lake))
    assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied()
    assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied()
    assert in_order(lake_rows(lake)) == before
    assert lake.applied(COPY) == rows.seq + 1
    new_rows = [*rows.random_changes(30), rows.change("delete", {"id": 100, "v": "a"})]
    changes = rows.as_changes(new_rows)
    assert lake.apply(COPY, changes, rows.seq + 1, {}) != Applied()
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def test_position(tmp_path: Path, rng: random.Random, form: str) -> None:
    """The note of the last change is returned, even if no row changed."""
    rows = filled(kept(PLAIN, form), rng)
    lake = published(tmp_path, rows)
    assert lake.position() == (rows.seq + 1, {"from": "copy"})
    nothing = rows.as_changes([])
    assert lake.apply(COPY, nothing, 70_000, {"from": "stream"}) == Applied()
    assert lake.position() == (70_000, {"from": "stream"})
    assert lake.applied(COPY) == 70_000
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_truncate(tmp_path: Path, rng: random.Random, deletes: str, form: str) -> None:
    """TRUNCATE deletes all rows once; later rows stay."""
    table = lake_table([("id", "int"), ("v", "int")], ("id",), deletes)
    rows = filled(kept(table, form), rng)
    lake = published(tmp_path, rows)
    at = rows.seq + 10
    lake.empty(COPY, at, 1_700_000_000_000, {})
    left = lake_rows(lake)
    if deletes == "hard":
        assert left == []
    else:
        assert len(left) == len(rows.rows)
        assert all(row["_deleted"] for row in left)
        now = [row["_committed_at"] for row in left if row["_seq"] == at]
        assert {time.timestamp() for time in now} == {1_700_000_000}
    rows.seq = at
    changes = [rows.change("insert", {"id": 77, "v": 1})]
    lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    lake.empty(COPY, at, 1_700_000_000_000, {})
    assert [r["id"] for r in lake_rows(lake) if not r.get("_deleted")] == [77]


def test_columns_that_changes_have_not(
    tmp_path: Path, rng: random.Random, form: str
) -> None:
    """A column that a change omits keeps its value, and is NULL in a new row."""
    table = lake_table([("id", "int"), ("v", "int"), ("old", "int")], ("id",))
    rows = LakeRows(kept(table, form), rng)
    lake = published(tmp_path, rows)
    changes = [rows.change("insert", {"id": n, "v": 1, "old": 5}) for n in range(2)]
    lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    rows = LakeRows(
        kept(lake_table([("id", "int"), ("v", "int")], ("id",)), form), rng, rows.seq
    )
    changes = [rows.change("update_postimage", {"id": 1, "v": 2})]
    changes.append(rows.change("insert", {"id": 2, "v": 2}))
    lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    changes = [rows.change("insert", {"id": 300, "v": 3})]  # outside of every file
    lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    left = sorted((r["id"], r["v"], r["old"] or 0) for r in lake_rows(lake))
    assert left == [(0, 1, 5), (1, 2, 5), (2, 2, 0), (300, 3, 0)]


def test_a_kept_column_of_a_key_that_changes(
    tmp_path: Path,
    rng: random.Random,
    form: str,
) -> None:
    """The value is lost with the key, as the docs say."""
    table = lake_table([("id", "int"), ("old", "int")], ("id",))
    rows = LakeRows(kept(table, form), rng)
    lake = published(tmp_path, rows)
    changes = [rows.change("insert", {"id": n, "old": 5}) for n in (1, 2)]
    lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    rows = LakeRows(kept(lake_table([("id", "int")], ("id",)), form), rng, rows.seq)
    changes = [rows.change("delete", {"id": 1}), rows.change("insert", {"id": 7})]
    lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    assert sorted((r["id"], r["old"]) for r in lake_rows(lake)) == [(2, 5), (7, None)]


def test_a_column_too_many(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A column that the lake lacks is an error, and nothing is applied."""
    rows = filled(kept(PLAIN, form), rng)
    lake = published(tmp_path, rows)
    changes = rows.as_changes(rows.random_changes(3))
    changes = changes.append_column("extra", pa.nulls(len(changes), pa.int32()))
    with pytest.raises(LakeError, match="lacks column extra"):
        lake.apply(COPY, changes, 90_000, {})
    assert lake.applied(COPY) != 90_000
