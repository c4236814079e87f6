"""Logs of changes: each change once, in files that never change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fix_lake import (
    COPY,
    LakeRows,
    copied_rows,
    filled,
    in_order,
    lake_table,
    opened,
    random_table,
    write_copy,
)
from fix_random import longer

from canal_server.errors import LakeError
from canal_server.mirror.lake.change_files import STAGED, STATE, ChangeLog
from canal_server.mirror.lake.lake_storage import Folder, open_folder
from canal_server.mirror.lake.steps import AddColumn, DropColumn, RenameColumn
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.state.lake_tables import (
    NOWHERE,
    Applied,
    Compacted,
    LakeTable,
    lake_schema,
)

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.settings.table_values import MirrorTable

FORMS = ["parquet", "json"]
Row = dict[str, Any]


def log_table(table: MirrorTable, form: str) -> MirrorTable:
    """Return the table, to be kept as a log."""
    return replace(table, form=form)


def started(path: Path, rows: LakeRows) -> LakeTable:
    """Publish what is expected as a copy, and return the log."""
    log = opened(path, rows.table)
    files = write_copy(path, copied_rows(rows))
    log.publish(COPY, lake_schema(rows.table), files, rows.seq + 1, {"from": "copy"})
    return log


def in_lake(changes: list[Row]) -> list[Row]:
    """Return changes of the stream as the log has them."""
    return [
        {"_committed_at" if n == "_commit_timestamp" else n: v for n, v in row.items()}
        for row in changes
    ]


def logged(log: LakeTable) -> list[Row]:
    """Return all changes."""
    return [row for batch in log.scan() for row in batch.to_pylist()]


def plain(form: str, deletes: str = "hard") -> MirrorTable:
    """Return a table of two columns."""
    columns = [("id", "int"), ("v", "varchar(20)")]
    return log_table(lake_table(columns, ("id",), deletes), form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("round_", range(longer(3)))
def test_random_changes(
    tmp_path: Path, rng: random.Random, form: str, round_: int
) -> None:
    """Copied rows are inserts, and changes of all types follow, each of them once."""
    rows = filled(log_table(random_table(rng), form), rng)
    print([(c.target, c.mysql_type, c.is_key) for c in rows.table.columns])
    expected = [row | {"_change_type": "insert"} for row in rows.rows.values()]
    log = started(tmp_path, rows)
    done: list[Row] = []
    for _ in range(3):
        new = rows.random_changes(rng.choice([1, 20]))
        changes = rows.as_changes([*done[rng.randrange(len(done) + 1) :], *new])
        deleted = sum(change["_change_type"] == "delete" for change in new)
        upto = rows.seq + 1
        assert log.apply(COPY, changes, upto, {}) == Applied(
            len(new) - deleted, deleted
        )
        assert log.apply(COPY, changes, upto, {}) == Applied()
        assert log.applied(COPY) == upto
        expected += in_lake(new)
        done += new
    assert in_order(logged(opened(tmp_path, rows.table))) == in_order(expected)


@pytest.mark.parametrize("form", FORMS)
def test_files_by_date(tmp_path: Path, rng: random.Random, form: str) -> None:
    """Readers find changes below the date of their commit, and nothing else."""
    rows = LakeRows(plain(form), rng)
    log = started(tmp_path, rows)
    changes = rows.as_changes(rows.random_changes(40))
    log.apply(COPY, changes, rows.seq + 1, {})
    found = {
        str(path.parent.relative_to(tmp_path))
        for path in tmp_path.rglob(f"*.{form}")
        if not any(part.startswith("_") for part in path.relative_to(tmp_path).parts)
    }
    times = changes["_commit_timestamp"].to_pylist()
    assert found == {f"date={time.date()}" for time in times}


def test_lines_of_json(tmp_path: Path, rng: random.Random) -> None:
    """A line is an object with names, values and the order of a change."""
    rows = LakeRows(plain("json"), rng)
    log = started(tmp_path, rows)
    change = rows.change("insert", {"id": 1, "v": 'a"\n\\é'})
    log.apply(COPY, rows.as_changes([change]), rows.seq + 1, {})
    (file,) = tmp_path.glob("date=*/*.json")
    line = json.loads(file.read_text())
    time = line.pop("_committed_at")
    assert time == change.pop("_commit_timestamp").isoformat(
        timespec="microseconds"
    ).replace("+00:00", "Z")
    assert line == change


@pytest.mark.parametrize("form", FORMS)
def test_truncate_and_columns(tmp_path: Path, rng: random.Random, form: str) -> None:
    """TRUNCATE is a separate change; files after a DDL have other columns."""
    rows = LakeRows(plain(form), rng)
    log = started(tmp_path, rows)
    new_rows = [rows.change("insert", {"id": 1, "v": "a"})]
    log.apply(COPY, rows.as_changes(new_rows), rows.seq + 1, {})
    at = rows.seq + 10
    for _ in range(2):
        log.empty(COPY, at, 1_700_000_000_000, {"from": "truncate"})
    assert log.position() == (at, {"from": "truncate"})
    steps: list[Step] = [AddColumn("x", "int", "", "5"), RenameColumn("v", "w")]
    for _ in range(2):
        log.evolve(COPY, steps, at + 1, {"from": "alter"})
    assert log.position() == (at + 1, {"from": "alter"})
    assert log.arrow_schema().names[:4] == ["id", "w", "x", "_change_type"]  # type: ignore[union-attr]
    later = LakeRows(lake_table([("id", "int"), ("w", "text"), ("x", "int")]), rng)
    later.seq = at + 5
    with pytest.raises(LakeError, match="lacks column v"):
        log.apply(COPY, rows.as_changes(new_rows), at + 9, {})
    changes = pa.Table.from_pylist(
        [later.change("insert", {"id": 2, "w": "b", "x": 6})],
        schema=pa.schema(
            [
                ("id", pa.int32()),
                ("w", pa.string()),
                ("x", pa.int32()),
                ("_change_type", pa.string()),
                ("_seq", pa.int64()),
                ("_row", pa.int32()),
                ("_commit_timestamp", pa.timestamp("us", tz="UTC")),
            ]
        ),
    )
    log.apply(COPY, changes, later.seq + 1, {})
    log.evolve(COPY, [DropColumn("x")], later.seq + 2, {})
    found = sorted(logged(log), key=lambda row: row["_seq"])
    # Files stay as they are: what DDL does to rows of before is in none of them.
    assert [(row["_change_type"], row["id"], row["w"]) for row in found] == [
        ("insert", 1, None),
        ("truncate", None, None),
        ("insert", 2, "b"),
    ]
    assert found[1]["_committed_at"].timestamp() == 1_700_000_000


@pytest.mark.parametrize("form", FORMS)
def test_copied_again(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A second copy follows a truncate; what was logged before stays."""
    rows = LakeRows(plain(form), rng)
    rows.random_changes(rng.choice([0, 5]))
    log = started(tmp_path, rows)
    before = in_order(logged(log))
    files = write_copy(tmp_path, copied_rows(rows), "second")
    for _ in range(2):
        log.publish("second", lake_schema(rows.table), files, rows.seq + 9, {})
    assert log.applied(COPY) == NOWHERE
    assert log.applied("second") == rows.seq + 9
    with pytest.raises(LakeError, match="not copy copy-1"):
        log.apply(COPY, rows.as_changes([]), 99_999, {})
    found = logged(log)
    kinds = [row["_change_type"] for row in found]
    assert kinds.count("truncate") == 1
    assert len(found) == 2 * len(before) + 1
    assert set(before) <= set(in_order(found))
    assert log.compact() == Compacted()


@pytest.mark.parametrize("form", FORMS)
def test_killed_between_commit_and_files(
    tmp_path: Path, rng: random.Random, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a commit that were not moved yet are moved when it is opened."""

    class Killed(BaseException):
        pass

    def move(folder: Folder, name: str, to: str) -> None:
        raise Killed

    rows = LakeRows(plain(form), rng)
    started(tmp_path, rows)
    changes = rows.as_changes(rows.random_changes(30))
    folder = open_folder(LakeSettings(path=str(tmp_path)))
    dying_log = ChangeLog(folder, rows.table)
    with monkeypatch.context() as dying:
        dying.setattr(Folder, "move", move)
        with pytest.raises(Killed):
            dying_log.apply(COPY, changes, rows.seq + 1, {"n": "1"})
    log = opened(tmp_path, rows.table)
    assert log.position() == (rows.seq + 1, {"n": "1"})
    assert log.apply(COPY, changes, rows.seq + 1, {}) == Applied()
    assert in_order(logged(log)) == in_order(in_lake(changes.to_pylist()))


def test_killed_before_commit(tmp_path: Path, rng: random.Random) -> None:
    """Files that were written and not committed are nothing, and are vacuumed."""
    rows = LakeRows(plain("parquet"), rng)
    log = started(tmp_path, rows)
    state = (tmp_path / STATE).read_bytes()
    changes = rows.as_changes(rows.random_changes(10))
    log.apply(COPY, changes, rows.seq + 1, {})
    (tmp_path / STAGED).mkdir(exist_ok=True)
    for folder in tmp_path.glob("date=*"):
        folder.rename(tmp_path / STAGED / folder.name)
    (tmp_path / STATE).write_bytes(state)
    assert logged(log) == []
    assert log.vacuum(0) > 0
    assert not list((tmp_path / STAGED).rglob("*.parquet"))
    assert log.apply(COPY, changes, rows.seq + 1, {}) != Applied()
    assert in_order(logged(log)) == in_order(in_lake(changes.to_pylist()))


def test_nothing_published(tmp_path: Path, rng: random.Random) -> None:
    """A missing log has no changes and no position, and accepts no changes."""
    log = opened(tmp_path / "none", plain("json"))
    assert not log.exists()
    assert log.arrow_schema() is None
    assert log.position() == (NOWHERE, {})
    assert logged(log) == []
    assert log.vacuum(0) == 0
    with pytest.raises(LakeError, match=r"log shop/orders .*not copy"):
        log.apply(COPY, LakeRows(plain("json"), rng).as_changes([]), 5, {})


def test_damaged(tmp_path: Path, rng: random.Random) -> None:
    """The error for an unreadable state has a remedy."""
    log = started(tmp_path, LakeRows(plain("json"), rng))
    (tmp_path / STATE).write_text("{")
    with pytest.raises(LakeError, match=r"_log.json is damaged .*move the folder away"):
        log.position()
