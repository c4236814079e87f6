"""A copy of a table that the lake has: only what differs is written, in one commit."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fix_lake import (
    COPY,
    LakeRows,
    copied_rows,
    data_files,
    filled,
    identity,
    in_order,
    kept,
    lake_rows,
    lake_table,
    published,
    random_keyless_table,
    random_table,
    write_copy,
)
from fix_random import longer
from lake_copies import Keyless, copy_again, keyless_copy, rows_of, set_rows

from canal_server.errors import ConnectionLost, LakeError
from canal_server.mirror.lake import copy_difference
from canal_server.mirror.lake.lake_table import ADDED, STREAM_TIME
from canal_server.mirror.state.lake_tables import NOWHERE, Applied, lake_schema
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    import random
    from pathlib import Path

PLAIN = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",))
KEYLESS = lake_table([("id", "int"), ("v", "varchar(20)")], ())
LEFT_OUT = {*ADDED, "_change_type", STREAM_TIME}


def own(rows) -> list[str]:
    """Return rows that are not marked as deleted, without the mirror's columns."""
    return in_order(
        {name: row[name] for name in row if name not in LEFT_OUT}
        for row in rows
        if not row.get("_deleted")
    )


def present(rows: LakeRows) -> list[str]:
    """Return the rows that the source has."""
    return own(rows.live if isinstance(rows, Keyless) else rows.rows.values())


def change(rows: LakeRows, count: int) -> list[dict[str, object]]:
    """Make changes as the source would."""
    if isinstance(rows, Keyless):
        return rows.statements(count)
    return rows.random_changes(count)


def first_copy(folder: Path, rows: LakeRows):
    """Return the lake's table with a copy of the rows."""
    if isinstance(rows, Keyless):
        return keyless_copy(folder, rows)
    return published(folder, rows)


def parquet(folder: Path) -> set[str]:
    """Return the Parquet files of a folder."""
    return {str(each.relative_to(folder)) for each in folder.rglob("*.parquet")}


@pytest.mark.parametrize(
    ("bucket_rows", "parts"), [(1 << 20, 1 << 12), (1 << 20, 4), (7, 1 << 12)]
)
@pytest.mark.parametrize("keyless", [False, True])
@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("round_", range(longer(3)))
def test_random_tables(  # noqa: PLR0917  # what the test varies
    tmp_path: Path,
    rng: random.Random,
    monkeypatch,
    round_: int,
    deletes: str,
    keyless: bool,
    bucket_rows: int,
    parts: int,
    form: str,
) -> None:
    """After each copy the lake has its rows; the table stays, and accepts changes."""
    monkeypatch.setattr(copy_difference, "BUCKET_ROWS", bucket_rows)
    monkeypatch.setattr(copy_difference, "PARTS", parts)
    table = (random_keyless_table if keyless else random_table)(rng, deletes, form)
    print([(c.target, c.mysql_type, c.is_key) for c in table.columns])
    rows = (Keyless if keyless else LakeRows)(table, rng)
    change(rows, 60)
    lake = first_copy(tmp_path, rows)
    first = identity(tmp_path, form)
    for copy in ("copy-2", "copy-3", "copy-4"):
        change(rows, rng.choice([0, 1, 40]))
        assert copy_again(tmp_path, lake, rows, copy) is not None
        assert own(lake_rows(lake)) == present(rows)
        assert lake.applied(copy) == rows.seq + 1
        assert lake.position() == (rows.seq + 1, {"c": copy})
        lake.apply(copy, rows.as_changes(change(rows, 20)), rows.seq + 1, {})
        assert own(lake_rows(lake)) == present(rows)
    assert identity(tmp_path, form) == first
    assert lake.applied(COPY) == lake.applied("copy-3") == NOWHERE


@pytest.mark.parametrize("table", [PLAIN, KEYLESS], ids=["key", "keyless"])
def test_nothing_differs(tmp_path: Path, rng: random.Random, table, form: str) -> None:
    """No file is added to the table, and none of the copy remains."""
    rows = rows_of(kept(table, form), rng, ((n, "v") for n in range(100)))
    lake = first_copy(tmp_path, rows)
    before = parquet(tmp_path)
    files = data_files(tmp_path, form)
    rows.seq += 50
    assert copy_again(tmp_path, lake, rows, "copy-2") == Applied(0, 0)
    assert data_files(tmp_path, form) == files
    assert parquet(tmp_path) == before
    assert lake.applied("copy-2") == rows.seq + 1


@pytest.mark.parametrize("damage", ["missing", "empty", "broken"])
def test_a_table_that_cannot_be_read(
    tmp_path: Path, rng: random.Random, damage: str, form: str
) -> None:
    """Files that are missing or damaged do not prevent a copy, which replaces them."""
    rows = rows_of(kept(PLAIN, form), rng, ((n, "v") for n in range(100)))
    lake = first_copy(tmp_path, rows)
    first = identity(tmp_path, form)
    (file, *_) = tmp_path.rglob(min(data_files(tmp_path, form)))
    file.unlink()
    if damage != "missing":
        file.write_bytes(b"" if damage == "empty" else b"PAR1 not any more PAR1")
    change(rows, 5)
    assert copy_again(tmp_path, lake, rows, "copy-2") is None
    assert own(lake_rows(lake)) == present(rows)
    assert identity(tmp_path, form) == first


def test_a_copy_that_cannot_be_read(
    tmp_path: Path, rng: random.Random, form: str
) -> None:
    """The table stays as it is if the damaged file is one of the copy."""
    rows = rows_of(kept(PLAIN, form), rng, ((n, "v") for n in range(100)))
    lake = first_copy(tmp_path, rows)
    before, known = present(rows), parquet(tmp_path)
    change(rows, 5)
    files = write_copy(tmp_path, copied_rows(rows), "copy-2")
    (file, *_) = (tmp_path / name for name in sorted(parquet(tmp_path) - known))
    file.write_bytes(b"PAR1 not any more PAR1")
    with pytest.raises(LakeError):
        lake.publish("copy-2", lake_schema(rows.table), files, rows.seq + 1, {})
    assert own(lake_rows(lake)) == before


def test_rows_without_a_key_are_counted(
    tmp_path: Path, rng: random.Random, form: str
) -> None:
    """Of equal rows, as many are added or removed as the copy has more or fewer."""
    rows = rows_of(kept(KEYLESS, form), rng, ((1, v) for v in "aaaaabbbc"))
    lake = first_copy(tmp_path, rows)
    set_rows(rows, ((1, v) for v in "aabbbbbbdd"))
    assert copy_again(tmp_path, lake, rows, "copy-2") == Applied(5, 4)
    assert sorted(row["v"] for row in lake_rows(lake)) == list("aabbbbbbdd")


def test_rows_that_are_marked_as_deleted(
    tmp_path: Path, rng: random.Random, form: str
) -> None:
    """They stay; a row that the copy lacks is marked; one that it has is live again."""
    rows = rows_of(kept(replace(PLAIN, deletes="soft"), form), rng, enumerate("abcd"))
    lake = first_copy(tmp_path, rows)
    deleted = rows.change("delete", {"id": 0, "v": "a"})
    lake.apply(COPY, rows.as_changes([deleted]), rows.seq + 1, {})
    for values, marked in (("xbc", {3}), ("b", {0, 2, 3}), ("", {0, 1, 2, 3})):
        ids = {"xbc": (0, 1, 2), "b": (1,), "": ()}[values]
        set_rows(rows, zip(ids, values, strict=True))
        copy_again(tmp_path, lake, rows, f"copy-{values}-{rows.seq}")
        found = lake_rows(lake)
        assert {row["id"] for row in found if row["_deleted"]} == marked
        assert len(found) == 4


def test_much_differs(
    tmp_path: Path, rng: random.Random, monkeypatch, form: str
) -> None:
    """The files of a copy that differs in many rows replace those of the table."""
    rows = filled(kept(PLAIN, form), rng)
    lake = published(tmp_path, rows)
    first = identity(tmp_path, form)
    for limit, copy in (("ROWS_MAX", "copy-2"), ("BYTES_MAX", "copy-3")):
        with monkeypatch.context() as patch:
            patch.setattr(copy_difference, limit, 3)
            before = set(own(lake_rows(lake)))
            while len(set(present(rows)) - before) <= 3:
                rows.random_changes(80)
            assert copy_again(tmp_path, lake, rows, copy) is None
        assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
    assert identity(tmp_path, form) == first


def test_other_columns(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A copy with other columns replaces them; the table is the same."""
    lake = published(tmp_path, filled(kept(PLAIN, form), rng))
    first = identity(tmp_path, form)
    for number, columns in enumerate(
        (
            [("id", "int"), ("v", "varchar(20)"), ("more", "bigint")],
            [("id", "bigint"), ("v", "varchar(20)")],
            [("n", "decimal(38,10)"), ("d", "date")],
        )
    ):
        table = lake_table(columns, (columns[0][0],))
        rows = filled(kept(table, form), rng)
        lake.use_definition(kept(table, form))
        assert copy_again(tmp_path, lake, rows, f"copy-{number + 2}") is None
        assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
        assert lake.arrow_schema() == lake_schema(table)
    assert identity(tmp_path, form) == first


def test_a_key_that_is_not_one(tmp_path: Path, rng: random.Random, form: str) -> None:
    """Rows that share a new key in the lake cannot be compared: all are replaced."""
    columns = [("id", "int"), ("v", "int")]
    table = lake_table(columns, ("id",))
    rows = rows_of(kept(table, form), rng, ((n, n // 2) for n in range(9)))
    lake = first_copy(tmp_path, rows)
    other = kept(lake_table(columns, ("v",)), form)
    by_v = rows_of(other, rng, ((n, n // 2) for n in (0, 2, 4)))
    lake.use_definition(other)
    assert copy_again(tmp_path, lake, by_v, "copy-2") is None
    assert own(lake_rows(lake)) == present(by_v)


@pytest.mark.parametrize("table", [PLAIN, KEYLESS], ids=["key", "keyless"])
def test_empty_tables(tmp_path: Path, rng: random.Random, table, form: str) -> None:
    """A table without rows or files is compared like another, on either side."""
    rows = rows_of(kept(table, form), rng, [])
    lake = first_copy(tmp_path, rows)
    assert copy_again(tmp_path, lake, rows, "copy-2") == Applied(0, 0)
    set_rows(rows, [(1, "a")])
    assert copy_again(tmp_path, lake, rows, "copy-3") == Applied(1, 0)
    set_rows(rows, [])
    assert copy_again(tmp_path, lake, rows, "copy-4") == Applied(0, 1)
    assert lake_rows(lake) == []


def test_a_stop_ends_the_comparison(
    tmp_path: Path, tmp_path_factory, rng: random.Random, monkeypatch, form: str
) -> None:
    """Nothing is visible, no file of hashes stays; the copy can be published later."""
    hashes = tmp_path_factory.mktemp("hashes")
    monkeypatch.setattr(tempfile, "tempdir", str(hashes))
    monkeypatch.setattr(copy_difference, "BUCKET_ROWS", 7)
    rows = filled(kept(PLAIN, form), rng)
    lake = published(tmp_path, rows)
    rows.random_changes(9)
    stop = Stop()
    stop.request()
    before = lake_rows(lake)
    with pytest.raises(ConnectionLost, match="interrupted by a stop"):
        copy_again(tmp_path, lake, rows, "copy-2", stop=stop)
    assert lake_rows(lake) == before
    assert not [*hashes.iterdir()]
    copy_again(tmp_path, lake, rows, "copy-3")
    assert not [*hashes.iterdir()]
    assert own(lake_rows(lake)) == present(rows)
