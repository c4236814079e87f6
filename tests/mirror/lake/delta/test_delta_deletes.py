"""Rows that are deleted by a condition, once, also if there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_lake import COPY, filled, lake_rows, lake_table, opened, published

from canal_server.mirror.lake.delta.delta import DeltaLakeTable

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.state.lake_tables import LakeTable


def live(lake: LakeTable) -> set[int]:
    """Return the keys of rows that are not deleted."""
    return {row["id"] for row in lake_rows(lake) if not row.get("_deleted")}


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_rows_by_a_condition(tmp_path: Path, rng: random.Random, deletes: str) -> None:
    """Each deletion is one commit with its position, which a repetition finds."""
    table = lake_table([("id", "int"), ("n", "bigint")], ("id",), deletes)
    rows = filled(table, rng)
    published(tmp_path, rows)
    lake = opened(tmp_path, table)
    assert isinstance(lake, DeltaLakeTable)
    before, upto = live(lake), rows.seq + 10
    lake.delete(COPY, "(`id` < 10 OR `id` IS NULL)", upto, 5_000, {"at": "1"})
    left = {key for key in before if key >= 10}
    assert live(lake) == left
    assert lake.position() == (upto, {"at": "1"})

    lake.delete(COPY, "(`id` < 10)", upto + 1, 5_000, {"at": "2"})  # there is none
    assert live(lake) == left
    assert lake.position() == (upto + 1, {"at": "2"})
    lake.delete(COPY, "", upto + 1, 5_000, {})  # which was done
    assert live(lake) == left
    lake.empty(COPY, upto + 2, 5_000, {})
    assert live(lake) == set()
    lake.empty(COPY, upto + 3, 5_000, {})
    assert lake.applied(COPY) == upto + 3
    assert not lake.has_null("n") or deletes == "soft"
