"""`verify` on a live source: what is equal, what is not, and what changed meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fix_mirror import table_on
from fix_pipeline import DESTINATION
from fix_source_access import access_of

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from deltalake import DeltaTable

from canal_server.client.ranged import RangedClient
from canal_server.lifecycle import Stop
from canal_server.mirror.copying import CopyJob
from canal_server.mirror.lake import open_table
from canal_server.mirror.model import Mask
from canal_server.mirror.settings import (
    CanalSettings,
    CopySettings,
    LakeSettings,
    MirrorSettings,
    SourceSettings,
)
from canal_server.mirror.verify import Wishes, verify
from canal_server.mirror.verify_places import PLACE
from canal_server.mirror.verify_report import DIFFERENT, EQUAL, FAILED, TableReport
from canal_server.spark.offsets import offset_to_json

if TYPE_CHECKING:
    from pathlib import Path

    from fix_pipeline import Pipeline

    from canal_server.mirror.model import MirrorTable

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
        self.settings = MirrorSettings(
            name="m",
            canal=CanalSettings(
                destination=DESTINATION, servers=f"127.0.0.1:{self.port}"
            ),
            source=SourceSettings(access=access_of(self.source)),
            lake=LakeSettings(path=str(lake)),
            tables=(),
            copy=CopySettings(connections=2, chunk_rows=100),
        )

    def execute(self, *statements: str) -> None:
        """Run statements in the schema."""
        self.source.execute(f"USE {self.schema}", *statements)

    def copy(self, table: MirrorTable) -> None:
        """Copy a table, and tell its place as the mirror does."""
        with RangedClient("127.0.0.1", self.port) as client:
            place = client.locate(DESTINATION, "latest")
        done = CopyJob(self.spark, self.settings, table, "c1", place)
        copied = done.run(lambda _: None, Stop())
        note = {PLACE: json.dumps(offset_to_json({DESTINATION: place}))}
        lake = open_table(self.settings.lake.path, table)
        lake.publish("c1", copied.schema, copied.files, copied.seq, note)

    def delta(self, table: MirrorTable) -> DeltaTable:
        """Return the copy, to do something to it that no mirror does."""
        return DeltaTable(f"{self.settings.lake.path}/{table.target}")

    def verify(self, table: MirrorTable) -> TableReport:
        """Compare it."""
        (report,) = verify(self.spark, self.settings, [table], Wishes(wait_s=0))
        return report


@pytest.fixture
def mirrored(spark: Any, pipeline: Pipeline, tmp_path: Path) -> Mirrored:
    """Give a live source with canal-server on it, and a lake."""
    return Mirrored(spark, pipeline, tmp_path / "lake")


def test_with_a_key(mirrored: Mirrored) -> None:
    """A copy is equal; what changed behind it is left out, what was damaged is told."""
    mirrored.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), secret VARCHAR(20), "
        "d DOUBLE)",
        f"INSERT INTO t {SERIES} SELECT n, CONCAT('row ', n), CONCAT('pin ', n), n / 7 "
        "FROM r",
    )
    table = table_on(mirrored.source, mirrored.schema, "t")
    masked = replace(table.columns[2], target="pin", mask=Mask("hash", salt="pepper"))
    table = replace(table, columns=(*table.columns[:2], masked, table.columns[3]))
    mirrored.copy(table)
    report = mirrored.verify(table)
    assert (report.problem, report.outcome) == ("", EQUAL)
    assert report.source == report.copy
    assert report.source
    assert (report.source.rows, report.left_out) == (ROWS, 0)

    # The copy does not follow: these are not its fault.
    mirrored.execute(
        "UPDATE t SET v = 'new' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (1000, 'new', NULL, NULL)",
        "UPDATE t SET id = 1001 WHERE id = 3",
    )
    delta = mirrored.delta(table)
    delta.update({"v": "'wrong'"}, predicate="id = 5")
    delta.update({"pin": "'wrong'"}, predicate="id = 6")
    delta.delete("id = 7")
    report = mirrored.verify(table)
    assert (report.problem, report.outcome) == ("", DIFFERENT)
    assert report.left_out == 5
    assert report.differing == 3
    told = {row.key: (row.what, row.cells) for row in report.first}
    what, (cell,) = told["id=5"]
    assert (what, cell.column) == ("is not the same", "v")
    assert (cell.source, cell.copy) == ("'row 5'", "'wrong'")
    ((secret,),) = [told["id=6"][1]]
    assert secret.column == "pin"
    assert "pin 6" not in str(secret)
    assert told["id=7"] == ("is in the source only", ())


def test_without_a_key(mirrored: Mirrored) -> None:
    """Rows are counted; changes behind the copy are added to it."""
    mirrored.execute(
        "CREATE TABLE t (v VARCHAR(20), n FLOAT)",
        f"INSERT INTO t {SERIES} SELECT n % 3, n % 2 FROM r",
    )
    table = table_on(mirrored.source, mirrored.schema, "t")
    mirrored.copy(table)
    mirrored.execute(
        "UPDATE t SET v = 'new' WHERE v = '1' AND n = 1 LIMIT 3",
        "DELETE FROM t WHERE v = '2' LIMIT 5",
        "INSERT INTO t VALUES (NULL, NULL), (NULL, NULL)",
    )
    report = mirrored.verify(table)
    assert (report.problem, report.outcome, report.left_out) == ("", EQUAL, 0)
    assert report.source
    assert report.source.rows == ROWS - 5 + 2

    mirrored.execute("INSERT INTO t VALUES ('seen', 1)")
    mirrored.delta(table).delete("v = '0' AND n = 0")
    report = mirrored.verify(table)
    assert (report.problem, report.outcome) == ("", DIFFERENT)
    (row,) = report.first
    assert row.key == "v='0', n=0.0"
    assert row.what == "is 50 times in the source, 0 in the copy"


def test_what_cannot_be_compared(mirrored: Mirrored) -> None:
    """A table without a copy, or whose columns are other ones now, is told."""
    mirrored.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    table = table_on(mirrored.source, mirrored.schema, "t")
    report = mirrored.verify(table)
    assert report.outcome == FAILED
    assert "has no copy at" in report.problem
    mirrored.copy(table)
    mirrored.execute("ALTER TABLE t ADD COLUMN v INT")
    report = mirrored.verify(table_on(mirrored.source, mirrored.schema, "t"))
    assert report.outcome == FAILED
    assert "no column v" in report.problem
