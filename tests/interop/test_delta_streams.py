"""Streams of Spark's own Delta connector continue when a table is copied again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from fix_delta_streams import in_order, is_old
from fix_interop import SWITCH
from fix_lake import LakeRows, lake_rows, lake_table
from lake_copies import copy_again, rows_of

from canal_server.mirror.lake import copy_difference
from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.lake.lake_table import ADDED

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from fix_delta_streams import DeltaStreams

LEFT_OUT = {*ADDED, "_change_type", "_commit_version", "_commit_timestamp"}
COLUMNS = [("id", "int"), ("v", "varchar(20)")]
TABLE = lake_table(COLUMNS, ("id",))
WIDER = lake_table([*COLUMNS, ("more", "bigint")], ("id",))
OTHER = lake_table([("id", "int"), ("v", "int"), ("more", "bigint")], ("id",))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"{SWITCH}=1 runs it"),
]


class Reader:
    """Both streams of a table, and the rows that the change feed gives."""

    def __init__(self, streams: DeltaStreams, path: Path) -> None:
        self._streams, self._path = streams, path
        self.rows: dict[int, dict[str, Any]] = {}

    def read(self) -> tuple[str, str, int]:
        """Read both; return how they ended, and the changes that the feed had."""
        fed = self._streams.read(self._path, f"{self._path.name}-feed", feed=True)
        changes = in_order(fed["rows"])
        for row in changes:
            own = {n: row[n] for n in row if n not in LEFT_OUT}
            if is_old(row):
                del self.rows[own["id"]]
            else:
                self.rows[own["id"]] = own
        plain = self._streams.read(self._path, f"{self._path.name}-plain", feed=False)
        return fed["error"], plain["error"], len(changes)


@pytest.fixture
def reader(delta_streams, tmp_path) -> Reader:
    """Give the readers of a table in `tmp_path`."""
    return Reader(delta_streams, tmp_path)


def by_id(lake: DeltaLakeTable) -> dict[int, dict[str, Any]]:
    """Return the rows of the lake without the mirror's columns."""
    rows = ({n: row[n] for n in row if n not in ADDED} for row in lake_rows(lake))
    return {row["id"]: row for row in rows}


def first_copy(path: Path, rows: LakeRows) -> DeltaLakeTable:
    """Return the lake's table with a copy of the rows."""
    lake = DeltaLakeTable(str(path), rows.table)
    copy_again(path, lake, rows, "copy-1")
    return lake


def test_copies_and_changes(reader, tmp_path: Path, rng: random.Random) -> None:
    """Both streams continue after copies, small and large, and after changes."""
    rows = rows_of(TABLE, rng, ((n, f"v{n}") for n in range(1000)))
    lake = first_copy(tmp_path, rows)
    assert reader.read() == ("", "", 1000)
    rows.put("update_postimage", {"id": 7, "v": "other"})
    copy_again(tmp_path, lake, rows, "copy-2")
    assert reader.read() == ("", "", 2)  # the row before and after
    copy_again(tmp_path, lake, rows, "copy-3")
    assert reader.read() == ("", "", 0)
    lake.apply("copy-3", rows.as_changes(rows.random_changes(50)), rows.seq + 1, {})
    assert reader.read()[:2] == ("", "")
    assert reader.rows == by_id(lake)
    rows.random_changes(50)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_difference, "ROWS_MAX", 3)
        copy_again(tmp_path, lake, rows, "copy-4")
    assert reader.read()[:2] == ("", "")
    assert reader.rows == by_id(lake)
    lake.apply("copy-4", rows.as_changes(rows.random_changes(50)), rows.seq + 1, {})
    assert reader.read()[:2] == ("", "")
    assert reader.rows == by_id(lake)


def test_more_columns(reader, tmp_path: Path, rng: random.Random) -> None:
    """Streams that are started again after a copy with additional columns continue."""
    rows = rows_of(TABLE, rng, ((n, f"v{n}") for n in range(20)))
    lake = first_copy(tmp_path, rows)
    assert reader.read() == ("", "", 20)
    rows = rows_of(WIDER, rng, ((n, f"v{n}", n) for n in range(20)))
    copy_again(tmp_path, lake, rows, "copy-2")
    assert reader.read() == ("", "", 40)  # all rows were replaced
    assert reader.rows == by_id(lake)


@pytest.mark.parametrize(
    ("table", "values"),
    [(OTHER, (1, 2, 3)), (TABLE, (1, "v"))],
    ids=["another type", "a column less"],
)
def test_other_columns(reader, tmp_path: Path, rng, table, values) -> None:
    """Another type, or a column less, ends both streams for good, as Delta has it."""
    lake = first_copy(tmp_path, rows_of(WIDER, rng, [(1, "v", 3)]))
    assert reader.read() == ("", "", 1)
    copy_again(tmp_path, lake, rows_of(table, rng, [values]), "copy-2")
    for _ in range(2):
        feed, plain, changes = reader.read()
        assert feed
        assert plain
        assert not changes
