"""Delta tables of the mirror beside other writers of their log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable
from fix_lake import COPY, filled, lake_table, published

from canal_server.mirror.lake.delta.delta import DeltaLakeTable

if TYPE_CHECKING:
    import random
    from pathlib import Path

PLAIN = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",))


def test_position_after_others(tmp_path: Path, rng: random.Random) -> None:
    """Commits of other writers have no position; the number is known without ours."""
    rows = filled(PLAIN, rng)
    lake = published(tmp_path, rows)
    changes = (rows.seq + 1, {"from": "copy"})
    other = DeltaTable(str(tmp_path))
    for _ in range(12):
        other.alter.set_table_properties({"delta.checkpointInterval": "50"})
    assert lake.position() == changes
    other.create_checkpoint()
    for commit in (tmp_path / "_delta_log").glob("*0.json"):
        commit.unlink()
    assert DeltaLakeTable(str(tmp_path), PLAIN).position() == (changes[0], {})
    assert lake.applied(COPY) == changes[0]
