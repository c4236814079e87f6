"""`verify` on a live source: what is equal, what is not, and what changed meanwhile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fix_pipeline import DESTINATION

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from deltalake import DeltaTable
from some_settings import settings_for

from canal_server.client.range_client import RangedClient
from canal_server.mirror.copy.copying import CopyJob
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.settings.mirror_settings import (
    CopySettings,
    TableRule,
)
from canal_server.mirror.settings.table_values import Mask, TableName
from canal_server.mirror.state.lake_tables import open_table
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.mirror.verify.verify import Wishes, mirrored, verify
from canal_server.mirror.verify.verify_positions import POSITION_NOTE, Positions
from canal_server.mirror.verify.verify_report import (
    DIFFERENT,
    DROPPED,
    EQUAL,
    FAILED,
    TableReport,
    exit_status,
)
from canal_server.runtime.lifecycle import Stop
from canal_server.spark.options.offsets import offset_to_json, version_of

if TYPE_CHECKING:
    from pathlib import Path

    from fix_pipeline import Pipeline


ROWS = 300
SERIES = (
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 300) "
)


class Mirrored:
    """A table of a live source, and its copy."""

    def __init__(self, spark: Any, pipeline: Pipeline, lake: Path) -> None:
        self.spark = spark
        self.source = pipeline.source
        self.schema = pipeline.schema
        self.port = pipeline.server_port
        self.settings = settings_for(
            pipeline,
            lake,
            tables=(
                TableRule(
                    match=rf"{pipeline.schema}\..*",
                    rename={"secret": "pin"},
                    masks={"secret": Mask("hash", salt="pepper")},
                ),
            ),
            copy=CopySettings(connections=2, chunk_rows=100),
        )

    def execute(self, *statements: str) -> None:
        """Run statements in the schema."""
        self.source.execute(f"USE {self.schema}", *statements)

    @property
    def name(self) -> TableName:
        """The table that there is."""
        return TableName(self.schema, "t")

    def copy(self) -> None:
        """Copy the table, and write the state of one that follows."""
        with RangedClient("127.0.0.1", self.port) as client:
            position = client.locate(DESTINATION, "latest")
        with Positions(self.settings, self.name) as positions:
            table = positions.table()
        done = CopyJob(self.spark, self.settings, table, "c1", position)
        copied = done.run(lambda _: None, Stop())
        position = copied.position
        note = {POSITION_NOTE: json.dumps(offset_to_json({DESTINATION: position}))}
        lake = open_table(self.settings, table)
        lake.publish("c1", copied.schema, copied.files, version_of(position), note)
        state = TableState(self.name, table.target, copy_id="c1", position=position)
        self.states.write(state.moved(Phase.FOLLOWING))

    @property
    def states(self) -> States:
        """What the mirror knows of its tables."""
        return States(open_folder(self.settings.lake, self.settings.folder))

    @property
    def delta(self) -> DeltaTable:
        """The copy, to do something to it that no mirror does."""
        return DeltaTable(f"{self.settings.lake.path}/{self.schema}/t")

    def verify(self) -> TableReport:
        """Compare it."""
        wishes = Wishes(wait_s=0)
        (report,) = verify(self.spark, self.settings, [self.name], wishes)
        return report


@pytest.fixture
def mirror(spark: Any, pipeline: Pipeline, tmp_path: Path) -> Mirrored:
    """Give a live source with canal-server on it, and a lake."""
    return Mirrored(spark, pipeline, tmp_path / "lake")


def test_with_a_key(mirror: Mirrored) -> None:
    """A copy is equal; later changes are left out, and damaged rows are reported."""
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), secret VARCHAR(20), "
        "d DOUBLE)",
        f"INSERT INTO t {SERIES} SELECT n, CONCAT('row ', n), CONCAT('pin ', n), n / 7 "
        "FROM r",
    )
    mirror.copy()
    report = mirror.verify()
    assert (report.problem, report.outcome) == ("", EQUAL)
    assert report.source == report.copy
    assert report.source
    assert (report.source.rows, report.left_out) == (ROWS, 0)

    # The copy does not follow: these are not its fault.
    mirror.execute(
        "UPDATE t SET v = 'new' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (1000, 'new', NULL, NULL)",
        "UPDATE t SET id = 1001 WHERE id = 3",
    )
    delta = mirror.delta
    delta.update({"v": "'wrong'"}, predicate="id = 5")
    delta.update({"pin": "'wrong'"}, predicate="id = 6")
    delta.delete("id = 7")
    report = mirror.verify()
    assert (report.problem, report.outcome) == ("", DIFFERENT)
    assert report.left_out == 5
    assert report.differing == 3
    found = {row.key: (row.what, row.cells) for row in report.first}
    what, (cell,) = found["id=5"]
    assert (what, cell.column) == ("differs", "v")
    assert (cell.source, cell.copy) == ("'row 5'", "'wrong'")
    ((secret,),) = [found["id=6"][1]]
    assert secret.column == "pin"
    assert "pin 6" not in str(secret)
    assert found["id=7"] == ("is in the source only", ())


def test_without_a_key(mirror: Mirrored) -> None:
    """Rows are counted; changes after the copy's position are added to it."""
    mirror.execute(
        "CREATE TABLE t (v VARCHAR(20), n FLOAT)",
        f"INSERT INTO t {SERIES} SELECT n % 3, n % 2 FROM r",
    )
    mirror.copy()
    mirror.execute(
        "UPDATE t SET v = 'new' WHERE v = '1' AND n = 1 LIMIT 3",
        "DELETE FROM t WHERE v = '2' LIMIT 5",
        "INSERT INTO t VALUES (NULL, NULL), (NULL, NULL)",
    )
    report = mirror.verify()
    assert (report.problem, report.outcome, report.left_out) == ("", EQUAL, 0)
    assert report.source
    assert report.source.rows == ROWS - 5 + 2

    mirror.execute("INSERT INTO t VALUES ('seen', 1)")
    mirror.delta.delete("v = '0' AND n = 0")
    report = mirror.verify()
    assert (report.problem, report.outcome) == ("", DIFFERENT)
    (row,) = report.first
    assert row.key == "v='0', n=0.0"
    assert row.what == "is 50 times in the source, 0 in the copy"


def test_what_cannot_be_compared(mirror: Mirrored) -> None:
    """Missing, stopped and emptied copies, and other columns, are reported."""
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    assert mirrored(mirror.settings) == []
    assert "has no copy" in mirror.verify().problem
    mirror.copy()
    assert mirrored(mirror.settings) == [mirror.name]
    mirror.execute("TRUNCATE t", "INSERT INTO t VALUES (2)")
    report = mirror.verify()
    assert report.outcome == FAILED
    assert "or it was emptied: let the mirror run" in report.problem
    mirror.execute("ALTER TABLE t ADD COLUMN v INT")
    assert "no column v" in mirror.verify().problem
    state = mirror.states.read(mirror.name)
    assert state is not None
    mirror.states.write(state.moved(Phase.STOPPED, "a reason"))
    assert "stopped it (stopped): a reason" in mirror.verify().problem


def test_a_table_that_was_dropped(mirror: Mirrored) -> None:
    """A dropped table is not a difference in any phase; an unknown table is."""
    assert mirror.verify().outcome == FAILED
    assert "neither the source nor the mirror has" in mirror.verify().problem
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.copy()
    mirror.execute("DROP TABLE t")
    state = mirror.states.read(mirror.name)
    assert state is not None
    for phase in (Phase.FOLLOWING, Phase.STOPPED, Phase.DROPPED):
        mirror.states.write(state.moved(phase, "a reason"))
        report = mirror.verify()
        assert (report.outcome, report.target) == (DROPPED, state.target)
        assert "no longer has this table; its data in the lake stays" in report.problem
        assert exit_status([report]) == 0
