"""Copies of Delta tables again: what their readers see of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from fix_lake import (
    LakeRows,
    copied_rows,
    filled,
    in_order,
    lake_rows,
    lake_table,
    opened,
    published,
    write_copy,
)
from lake_copies import Keyless, copy_again, keyless_copy, rows_of, set_rows

from canal_server.mirror.lake.delta import delta_log
from canal_server.mirror.state.lake_tables import NOWHERE, Applied, lake_schema

if TYPE_CHECKING:
    import random
    from pathlib import Path

PLAIN = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",))
KEYLESS = lake_table([("id", "int"), ("v", "varchar(20)")], ())


def first_copy(folder: Path, rows: LakeRows):
    """Return the lake's table with a copy of the rows."""
    if isinstance(rows, Keyless):
        return keyless_copy(folder, rows)
    return published(folder, rows)


def feed(folder: Path, since: int) -> list[tuple[str, int]]:
    """Return the kinds and ids of the change feed from a version on."""
    reader = DeltaTable(str(folder)).load_cdf(starting_version=since)
    found = [row for batch in reader for row in batch.to_struct_array().to_pylist()]
    return sorted((row["_change_type"], row["id"]) for row in found)


@pytest.mark.parametrize("table", [PLAIN, KEYLESS], ids=["key", "keyless"])
def test_one_difference_is_one_change(
    tmp_path: Path, rng: random.Random, table
) -> None:
    """The change feed has a change for each row that differed, and nothing else."""
    values: dict[int, str | None] = {n: f"v{n}" for n in range(1000)}
    rows = rows_of(table, rng, values.items())
    lake = first_copy(tmp_path, rows)
    since = DeltaTable(str(tmp_path)).version() + 1
    for changed, effect in (
        ({7: "other"}, Applied(1, int(not table.key))),
        ({8: None}, Applied(0, 1)),
        ({2000: "new"}, Applied(1, 0)),
    ):
        values.update(changed)
        set_rows(rows, ((n, v) for n, v in values.items() if v is not None))
        assert copy_again(tmp_path, lake, rows, f"copy-{next(iter(changed))}") == effect
    kinds = (
        ["update_postimage", "update_preimage"] if table.key else ["insert", "delete"]
    )
    assert feed(tmp_path, since) == sorted(
        [*((kind, 7) for kind in kinds), ("delete", 8), ("insert", 2000)]
    )


def test_settings_of_the_table(tmp_path: Path, rng: random.Random) -> None:
    """A copy of an unchanged table brings changed settings, too."""
    rows = filled(PLAIN, rng)
    published(tmp_path, rows)
    options = {"change_feed": False, "kept_hours": 5}
    published(tmp_path, rows, "copy-2", **options)
    found = DeltaTable(str(tmp_path)).metadata().configuration
    assert found["delta.enableChangeDataFeed"] == "false"
    assert found["delta.logRetentionDuration"] == "interval 5 hours"


@pytest.mark.parametrize("more", ["datetime(6)", "int"])
def test_a_copy_with_another_column(
    tmp_path: Path, rng: random.Random, more: str
) -> None:
    """The table can be read, and changed, whatever the type of a new column is."""
    plain = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",))
    wider = lake_table([("id", "int"), ("v", "varchar(20)"), ("m", more)], ("id",))
    published(tmp_path, filled(plain, rng))
    rows = filled(wider, rng)
    lake = published(tmp_path, rows, "copy-2")
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
    changes = rows.as_changes(rows.random_changes(20))
    lake.apply("copy-2", changes, rows.seq + 1, {})
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def earlier_copy(folder: Path, rows: LakeRows, copy: str) -> None:
    """Publish the rows as versions do that name a copy in the description only."""
    files = write_copy(folder, copied_rows(rows), copy)
    create_table_with_add_actions(
        str(folder),
        Schema.from_arrow(lake_schema(rows.table)),
        [AddAction(f.path, f.size, {}, 0, True, f.stats) for f in files],
        mode="overwrite",
        description=delta_log.description(copy),
        commit_properties=delta_log.commit(copy, rows.seq + 1, {"from": "copy"}),
    )


def test_copies_of_an_earlier_version(tmp_path: Path, rng: random.Random) -> None:
    """A table continues with whatever copy was the last, by either version."""
    rows = filled(PLAIN, rng)
    lake = opened(tmp_path, PLAIN)

    def continues_with(copy: str) -> None:
        changes = rows.as_changes(rows.random_changes(20))
        lake.apply(copy, changes, rows.seq + 1, {})
        lake.compact()
        assert lake.applied(copy) == rows.seq + 1
        assert in_order(lake_rows(lake)) == in_order(rows.rows.values())

    earlier_copy(tmp_path, rows, "earlier-1")
    continues_with("earlier-1")
    copy_again(tmp_path, lake, rows, "copy-2")
    continues_with("copy-2")
    assert lake.applied("earlier-1") == NOWHERE
    earlier_copy(tmp_path, rows, "earlier-3")
    continues_with("earlier-3")
    assert lake.applied("earlier-1") == NOWHERE
    copy_again(tmp_path, lake, rows, "copy-4")
    continues_with("copy-4")
    assert lake.applied("earlier-3") == lake.applied("copy-2") == NOWHERE
