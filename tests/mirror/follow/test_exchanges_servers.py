"""Partitions that real servers exchange with tables, as canal-server delivers that.

Without Spark: the test passes what a task would read to the stream.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from deltalake import DeltaTable
from fix_mirror_process import MirrorProcess, by_key, plain
from fix_pipeline import DESTINATION
from fix_random import longer
from fix_source_access import access_of
from packed_frames import Row

from canal_server.errors import CanalError, LakeError
from canal_server.mirror.follow.follower import Follower
from canal_server.mirror.follow.micro_batches import ChangeStream
from canal_server.mirror.follow.partition_watch import PARTITIONS, partitions_of
from canal_server.mirror.follow.source_columns import columns_at
from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.lake.lake_table import lake_schema
from canal_server.mirror.session.spark_session import source_options
from canal_server.mirror.settings.mirror_settings import TableRule
from canal_server.mirror.settings.selected_tables import table_by_rule
from canal_server.mirror.settings.settings_file import load
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.feed import Feed
from canal_server.mirror.state.table_shape import Columns, Partitions
from canal_server.mysql.control_connection import ControlConnection
from canal_server.runtime.lifecycle import Stop
from canal_server.spark.columns.spark_schema import packed_schema
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel
from canal_server.spark.options.source_options import read_options
from canal_server.spark.reading.range_tasks import Range, cut
from canal_server.spark.row_batches import read_rows

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa
    from fix_pipeline import Pipeline
    from servers import Server

    from canal_server.client.range_client import RangePosition

RULE = TableRule(match=".*")
P_ROWS = "INSERT INTO p VALUES ({0}, 'of p'), ({0} + 1500, 'stays')"
EXCHANGE = "ALTER TABLE p EXCHANGE PARTITION one WITH TABLE t"


class _KilledTable(DeltaLakeTable):
    """A table that a killed process did not get to."""

    def exchange(self, *_: Any) -> int:
        raise LakeError("killed")


class Mirrored:
    """Two tables of a source, and a stream that follows them."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self.pipeline = pipeline
        self.folder = folder
        self.left: list[tuple[str, CanalError]] = []
        self._names = [TableName(pipeline.schema, each) for each in ("p", "t")]
        mirror = MirrorProcess(pipeline, folder)
        mirror.write_conf()
        self._truth = mirror.truth
        options = source_options(load(str(mirror.conf), {}))
        schema = pipeline.schema
        self._options = read_options(options | {"filter": rf"{schema}\.(p|t)"})
        self.channel = Channel(self._options, DESTINATION, stop=Stop())
        self._at = self._latest()
        self._copied_at = self._at
        self._feed = Feed(DESTINATION, self._at)
        self._batches = 0

    def _latest(self) -> RangePosition:
        return self.channel.call(lambda c: c.locate(DESTINATION, "latest", "m"))

    def _stream(self) -> ChangeStream:
        """Return a stream of a process that has just started."""
        stream = ChangeStream(
            DESTINATION,
            2,
            parts_max=8,
            on_statement=print,
            on_leave=lambda name, why: self.left.append((name.table, why)),
            on_batch=lambda _: None,
        )
        stream.feed = self._feed
        with stream.joining:
            stream.open("q")
            for name in self._names:
                stream.join(self._follower(name))
        return stream

    def _follower(self, name: TableName) -> Follower:
        known = columns_at(self.channel, name, self._copied_at)
        with ControlConnection(access_of(self.pipeline.source)) as control:
            partitions = partitions_of(control.query(PARTITIONS))
        plan = partial(table_by_rule, name, rule=RULE)
        table = plan(known)
        lake = DeltaLakeTable(str(self.folder / name.table), table)
        at = version_of(self._copied_at)
        if not lake.exists():
            lake.publish("c1", lake_schema(table), [], at, {})
        return Follower(
            table,
            Columns(known, (), partitions.get(name, Partitions())),
            lake,
            "c1",
            plan=plan,
            rule=RULE,
            is_mariadb=self.pipeline.source.flavour == "mariadb",
            copied_at=at,
        )

    def follow(self, *, killed: str = "") -> None:
        """Apply what is new; a process may be killed before it changes a table."""
        end = self._latest()
        rows = list(self._rows(end))
        stream = self._stream()
        if killed:
            follower = stream.follower(TableName(self.pipeline.schema, killed))
            assert follower is not None
            follower.lake.__class__ = _KilledTable
            with pytest.raises(LakeError, match="killed"):
                stream.apply(_frame(rows), self._batches)
            stream = self._stream()
        stream.apply(_frame(rows), self._batches)
        assert stream.feed is not None
        self._feed, self._at = stream.feed, end
        self._batches += 1

    def _rows(self, end: RangePosition) -> Any:
        whole = Range(DESTINATION, self._at, end)
        for part in cut(self.channel, self._options, whole, None):
            for batch in read_rows(self._options, packed_schema(), part, self.channel):
                for number in range(len(batch)):
                    yield _row_of(batch, number)

    def check(self) -> None:
        """Compare both tables with the source."""
        assert self.left == []
        for name in self._names:
            found = DeltaTable(str(self.folder / name.table)).to_pyarrow_table()
            rows = [
                {n: plain(value) for n, value in row.items() if n[0] != "_"}
                for row in found.to_pylist()
            ]
            assert by_key(rows, ("id",)) == self._truth(name.table, "id")


def _row_of(batch: pa.RecordBatch, number: int) -> Row:
    """Return a row as Spark hands it over."""
    names = [name for name in batch.schema.names if name != "arrow"]
    row: dict[str, Any] = {name: batch[name][number].as_py() for name in names}
    row["arrow"] = batch["arrow"][number].as_buffer()
    return Row(asDict=lambda: row, row=row)


def _frame(rows: list[Row]) -> Any:
    """Return a micro-batch of rows."""
    return SimpleNamespace(
        rdd=SimpleNamespace(getNumPartitions=lambda: 1), collect=rows.copy
    )


@pytest.fixture
def mirrored(
    source_server: Server,
    database: str,
    make_pipeline: Callable[..., Pipeline],
    tmp_path: Path,
) -> Any:
    """Give a partitioned table and another one, both empty and followed."""
    source_server.execute(
        f"USE {database}",
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(100))",
        "CREATE TABLE p LIKE t",
        "ALTER TABLE p PARTITION BY RANGE (id) (PARTITION one VALUES LESS THAN (1000),"
        " PARTITION two VALUES LESS THAN (3000))",
    )
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    found = Mirrored(pipeline, tmp_path)
    yield found
    found.channel.close()


def test_exchanged(mirrored: Mirrored, rng: random.Random) -> None:
    """Both tables equal the source after each batch, whatever is killed in between."""
    source, schema = mirrored.pipeline.source, mirrored.pipeline.schema
    for round_ in range(longer(4)):
        first = 10 * round_
        statements = [
            P_ROWS.format(first + 1),
            f"INSERT INTO t VALUES ({first + 2}, 'of t'), ({first + 3}, 'of t')",
            f"UPDATE t SET a = CONCAT(a, '!') WHERE id % 3 = {round_ % 3}",
            EXCHANGE,
            f"UPDATE p SET a = 'then' WHERE id % 2 = {round_ % 2}",
            f"DELETE FROM t WHERE id % 7 = {round_ % 7}",
        ]
        if rng.random() < 0.5:
            statements += [EXCHANGE, f"DELETE FROM p WHERE id = {first + 2}"]
        source.execute(f"USE {schema}", *statements)
        mirrored.follow(killed=rng.choice(("", "p", "t")))
        mirrored.check()


def test_a_table_that_becomes_a_partition(mirrored: Mirrored) -> None:
    """MariaDB's CONVERT: its rows are those of the partition, and it is dropped."""
    source, schema = mirrored.pipeline.source, mirrored.pipeline.schema
    if source.flavour != "mariadb":
        pytest.skip("MySQL has no such statement")
    source.execute(
        f"USE {schema}",
        P_ROWS.format(1),
        "INSERT INTO t VALUES (3001, 'of t'), (3002, 'of t')",
        "ALTER TABLE p CONVERT TABLE t TO PARTITION three VALUES LESS THAN (4000)",
        "UPDATE p SET a = 'then' WHERE id = 3002",
    )
    mirrored.follow()
    assert [name for name, _ in mirrored.left] == ["t"]
    found = DeltaTable(str(mirrored.folder / "p")).to_pyarrow_table()
    rows = zip(found["id"].to_pylist(), found["a"].to_pylist(), strict=True)
    assert sorted(rows) == [
        (1, "of p"), (1501, "stays"), (3001, "of t"), (3002, "then"),
    ]  # fmt: skip
