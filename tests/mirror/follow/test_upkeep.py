"""When tables of the lake are looked after."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from canal_server.errors import LakeError
from canal_server.mirror.follow import upkeep as upkeep_module
from canal_server.mirror.follow.follower import Follower
from canal_server.mirror.follow.micro_batches import ChangeStream
from canal_server.mirror.follow.upkeep import (
    STORE_EVERY_S,
    VACUUM_EVERY_S,
    Upkeep,
)
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.lake.lake_table import lake_schema
from canal_server.mirror.settings.selected_tables import mirror_table
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_tables import open_table
from canal_server.mirror.state.table_shape import Columns
from canal_server.mirror.state.upkeep_times import UpkeepTimes
from canal_server.model.columns_known import ColumnMeta
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: lake, compact_every: %s, vacuum_after: %s}
tables: [{match: .*%s}]
"""
A, B = TableName("shop", "a"), TableName("shop", "b")
ID = ColumnMeta("id", "int", None, is_key=True)


class Noted(Upkeep):
    """Notes what is done, as what it is: nothing of it is of this test."""

    def __init__(self, settings, stream, now: Callable[[], float]) -> None:
        folder = open_folder(settings.lake, settings.folder)
        super().__init__(settings, stream, UpkeepTimes(folder, now), now)
        self.settings = settings
        self.stream = stream
        self.done: list[tuple[str, str]] = []
        self.fails: Exception | None = None

    def _compact(self, name: TableName) -> None:
        self.done.append(("compact", name.table))
        if self.fails:
            raise self.fails
        super()._compact(name)

    def _vacuum(self, name: TableName) -> None:
        self.done.append(("vacuum", name.table))
        super()._vacuum(name)

    def due(self) -> list[tuple[str, str]]:
        """Run the next job, and return what it did."""
        self.done.clear()
        self.run_next()
        return self.done


@pytest.fixture
def make(tmp_path):
    """Give `make(compact_every, vacuum_after)`: the upkeep of two tables, a clock."""

    def upkeep(every="10m", after="7d", rule=""):
        settings = read(TEXT % (every, after, rule), str(tmp_path / "m.yml"), {})

        def nothing(*_):
            raise AssertionError("no batch comes")

        stream = ChangeStream(
            "example", 1, parts_max=1, on_statement=nothing, on_leave=nothing,
            on_batch=nothing,
        )  # fmt: skip
        for name in (A, B):
            table = mirror_table(name, [ID], settings)
            lake = open_table(settings, table)
            lake.publish("c1", lake_schema(table), [], 10, {})
            follower = Follower(
                table, Columns((ID,)), lake, "c1", plan=nothing,
                rule=settings.tables[0], is_mariadb=False,
            )  # fmt: skip
            stream.join(follower)
        clock = [1_000.0]
        return Noted(settings, stream, lambda: clock[0]), clock

    return upkeep


def test_each_in_its_time(make) -> None:
    """Nothing is due at the start; then one table per call, each once per period."""
    upkeep, clock = make()
    assert upkeep.due() == []
    clock[0] += 600
    assert [upkeep.due()[:], upkeep.due()[:]] == [
        [("compact", "a")], [("compact", "b")],
    ]  # fmt: skip
    assert upkeep.due() == []
    clock[0] += VACUUM_EVERY_S
    found = [upkeep.due()[:] for _ in range(5)]
    assert sorted(found[:4]) == [
        [("compact", "a")], [("compact", "b")], [("vacuum", "a")], [("vacuum", "b")],
    ]  # fmt: skip
    assert found[4] == []


def test_all_of_it_has_its_turn(make) -> None:
    """Old files are deleted even if compaction is always due."""
    upkeep, clock = make(every="1s")
    upkeep.run_next()
    found = []
    clock[0] += VACUUM_EVERY_S
    for _ in range(20):
        clock[0] += 10
        found += upkeep.due()
    assert ("vacuum", "a") in found
    assert ("vacuum", "b") in found


def test_short_runs(make) -> None:
    """The periods count over processes, each of which does what is due at its end."""
    upkeep, clock = make()
    upkeep.run_all(Stop())
    found = []
    for _ in range(14):
        clock[0] += 300
        again = Noted(upkeep.settings, upkeep.stream, lambda: clock[0])
        again.run_all(Stop())
        found.append(len(again.done))
    assert found == [0, 2] * 5 + [0, 4, 0, 2]


def test_a_stop(make) -> None:
    """No job begins after it."""
    upkeep, clock = make()
    upkeep.run_next()
    clock[0] += 600
    stop = Stop()
    stop.request()
    upkeep.run_all(stop)
    assert upkeep.done == []


def test_a_killed_one(make) -> None:
    """Times are stored at intervals, so a kill makes little difference."""
    upkeep, clock = make()
    upkeep.run_next()
    clock[0] += STORE_EVERY_S
    upkeep.run_next()
    clock[0] += 600 - STORE_EVERY_S
    again = Noted(upkeep.settings, upkeep.stream, lambda: clock[0])
    assert again.due() == [("compact", "a")]


def test_never(make) -> None:
    """What is set to 0 s is not done."""
    upkeep, clock = make("0s", "0s")
    upkeep.run_next()
    clock[0] += 10 * VACUUM_EVERY_S
    assert upkeep.due() == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LakeError("the disk is full"), "the disk is full"),
        (KeyError("id"), "internal error: KeyError at upkeep.py:"),
    ],
)
def test_a_failure_is_reported(make, caplog, error, text) -> None:
    """It is retried after its period; other tables have their turn."""
    upkeep, clock = make(after="0s")
    upkeep.run_next()
    upkeep.fails = error
    clock[0] += 600
    assert upkeep.due() == [("compact", "a")]
    assert "shop.a: the upkeep of its copy failed" in caplog.text
    assert f": {text}" in caplog.text
    assert upkeep.due() == [("compact", "b")]
    assert upkeep.due() == []


def test_a_table_that_left(make) -> None:
    """A table that is no longer followed has no upkeep."""
    upkeep, clock = make()
    upkeep.run_next()
    clock[0] += 600
    with upkeep.stream.joining:
        upkeep.stream.leave(A)
    assert upkeep.due() == [("compact", "b")]


def test_many_partitions(make, monkeypatch, caplog) -> None:
    """A table with more partitions than are useful is reported, once."""
    monkeypatch.setattr(upkeep_module, "PARTITIONS_MANY", 2)
    upkeep, clock = make(rule=", partition_by: 'bucket(4, id)'")
    upkeep.run_next()
    rows = [
        {
            "id": number,
            "_change_type": "insert",
            "_seq": 11,
            "_row": number,
            "_commit_timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        }
        for number in range(3)
    ]
    fields = [
        ("id", pa.int32()),
        ("_change_type", pa.string()),
        ("_seq", pa.int64()),
        ("_row", pa.int32()),
        ("_commit_timestamp", pa.timestamp("us", "UTC")),
    ]
    changes = pa.Table.from_pylist(rows, pa.schema(fields))
    upkeep.stream.follower(A).lake.apply("c1", changes, 12, {})
    for _ in range(4):
        clock[0] += 600
        upkeep.due()
    (reported,) = [m for each in caplog.records if "partitions" in (m := each.message)]
    assert reported.startswith("shop.a: its copy has 3 partitions, each with files")
