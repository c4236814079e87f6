"""Inserts that a copy contains: only rows that the lake lacks are written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from fix_lake import COPY, LakeRows, in_order, lake_rows, published, random_table

from canal_server.mirror.follow.copied_rows import without_copied

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.settings.table_values import MirrorTable

FORMS = ["delta", "iceberg"]


def numbered_table(rng: random.Random, deletes: str, form: str) -> MirrorTable:
    """Return a random table with a whole number in its key."""
    if form == "iceberg":
        pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    while True:
        table = random_table(rng, deletes, form)
        kinds = {c.mysql_type for c in table.columns if c.is_key}
        if kinds & {"int", "bigint", "bigint unsigned", "smallint"}:
            return table


def again(rows: LakeRows, row: dict[str, Any]) -> dict[str, Any]:
    """Return the insert of a row that the copy has."""
    values = {part.name: row[part.name] for part in rows.parts}
    return rows.change("insert", values)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_what_the_copy_lacks(
    tmp_path: Path, rng: random.Random, form: str, deletes: str
) -> None:
    """New rows, those with other values, and those that are marked as deleted."""
    rows = LakeRows(numbered_table(rng, deletes, form), rng)
    rows.random_changes(80)
    lake = published(tmp_path, rows)
    before = list(rows.rows.values())
    known = [row for row in before if not row.get("_deleted")]
    new = []
    for _ in range(9):
        row = rows.new_row()
        if rows.key_of(row) not in rows.rows:
            new.append(rows.put("insert", row))
    for row in rng.sample(known, min(5, len(known))):
        own = {c.target: row[c.target] for c in rows.table.columns if c.is_key}
        other = rows.new_row() | own
        if other != {name: row[name] for name in other}:
            new.append(rows.put("insert", other))
    new += [again(rows, row) for row in before if row.get("_deleted")]
    changed = {rows.key_of(change) for change in new}
    changes = [*new, *(again(rows, r) for r in known if rows.key_of(r) not in changed)]
    rng.shuffle(changes)
    key = [c.target for c in rows.table.columns if c.is_key]
    kept = without_copied(rows.as_changes(changes), lake, key)
    expected = rows.as_changes(new).to_pylist()
    assert in_order(kept.to_pylist()) == in_order(expected)
    twice = rows.as_changes([*changes, changes[0]])
    assert len(without_copied(twice, lake, key)) == len(twice)


def test_a_commit_of_new_rows_only(tmp_path: Path, rng: random.Random) -> None:
    """The lake's table gets files, and loses none: streams of it go on."""
    rows = LakeRows(numbered_table(rng, "hard", "delta"), rng)
    rows.random_changes(80)
    lake = published(tmp_path, rows)
    changes = [again(rows, row) for row in rows.rows.values()]
    row = rows.new_row()
    while rows.key_of(row) in rows.rows:
        row = rows.new_row()
    changes.append(rows.put("insert", row))
    key = [c.target for c in rows.table.columns if c.is_key]
    kept = without_copied(rows.as_changes(changes), lake, key)
    lake.apply(COPY, kept, rows.seq + 1, {})
    last = max(tmp_path.glob("_delta_log/*.json")).read_text()
    actions = [json.loads(line) for line in last.splitlines()]
    assert any("add" in each for each in actions)
    assert not any("remove" in each for each in actions)
    assert len(lake_rows(lake)) == len(rows.rows)


@pytest.mark.parametrize("form", FORMS)
def test_other_changes_stay_together(
    tmp_path: Path, rng: random.Random, form: str
) -> None:
    """A batch with an update or a delete is applied as a whole."""
    rows = LakeRows(numbered_table(rng, "hard", form), rng)
    rows.random_changes(40)
    lake = published(tmp_path, rows)
    row = next(iter(rows.rows.values()))
    changes = [again(rows, row), again(rows, row) | {"_change_type": "delete"}]
    key = [c.target for c in rows.table.columns if c.is_key]
    assert len(without_copied(rows.as_changes(changes), lake, key)) == 2
