"""Tables of a real source that a stream follows, without Spark.

The test passes what a task of Spark would read to the stream. Leaves out copies: tables
are empty when they are followed first.

::

    tables = FollowedTables(pipeline, folder, ("p", "t"))
    ...                                   # change rows
    tables.follow(killed="p")
    tables.check()
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fix_lake import opened
from fix_mirror_process import MirrorProcess, by_key, plain
from fix_pipeline import DESTINATION
from fix_source_access import access_of
from packed_frames import Row

from canal_server.errors import CanalError, LakeError
from canal_server.mirror.follow.follower import Follower
from canal_server.mirror.follow.micro_batches import ChangeStream
from canal_server.mirror.follow.partition_watch import PARTITIONS, partitions_of
from canal_server.mirror.follow.source_columns import columns_at
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
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa
    from fix_pipeline import Pipeline

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.state.lake_tables import LakeTable
    from canal_server.model.columns_known import ColumnMeta

RULE = TableRule(match=".*")


class FollowedTables:
    """Tables of a source, and a stream that follows them."""

    def __init__(
        self,
        pipeline: Pipeline,
        folder: Path,
        tables: Sequence[str],
        rule: TableRule = RULE,
    ) -> None:
        """Follow tables by a rule; `folder` is for the lake."""
        self.pipeline = pipeline
        self.folder = folder
        self.left: list[tuple[str, CanalError]] = []
        self._names = [TableName(pipeline.schema, each) for each in tables]
        self._rule = rule
        mirror = MirrorProcess(pipeline, folder)
        mirror.write_conf()
        self._truth = mirror.truth
        options = source_options(load(str(mirror.conf), {}))
        schema = pipeline.schema
        names = "|".join(tables)
        self._options = read_options(options | {"filter": rf"{schema}\.({names})"})
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

    def _columns(self, name: TableName) -> tuple[ColumnMeta, ...]:
        return columns_at(self.channel, name, self._copied_at)

    def _follower(self, name: TableName) -> Follower:
        known = self._columns(name)
        with ControlConnection(access_of(self.pipeline.source)) as control:
            partitions = partitions_of(control.query(PARTITIONS))
        plan = partial(table_by_rule, name, rule=self._rule)
        table = plan(known)
        lake = opened(self.path(name.table), table)
        at = version_of(self._copied_at)
        if not lake.exists():
            lake.publish("c1", lake_schema(table), [], at, {})
        return Follower(
            table,
            Columns(known, (), partitions.get(name, Partitions())),
            lake,
            "c1",
            plan=plan,
            rule=self._rule,
            is_mariadb=self.pipeline.source.flavour == "mariadb",
            copied_at=at,
        )

    def path(self, table: str) -> Path:
        """Return the folder of a table in the lake."""
        return self.folder / "lake" / table

    def follow(
        self, *, killed: str = "", method: str = "apply", done: bool = False
    ) -> None:
        """Apply what is new; a process may be killed while it changes a table.

        `method`: of the lake's table, before which it is killed, or after it (`done`).
        """
        end = self._latest()
        rows = list(self._rows(end))
        stream = self._stream()
        if killed:
            follower = stream.follower(TableName(self.pipeline.schema, killed))
            assert follower is not None
            _kill_at(follower.lake, method, done=done)
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

    def truth(self, table: str) -> dict[tuple[object, ...], dict[str, Any]]:
        """Return the rows of a table of the source, by their ids."""
        return self._truth(table, "id")

    def check(self) -> None:
        """Compare all tables with the source."""
        assert self.left == []
        for name in self._names:
            scanned = self._follower(name).lake.scan()
            columns = [each.name for each in self._columns(name)]
            rows = [
                {column: plain(row[column]) for column in columns}
                for batch in scanned
                for row in batch.to_pylist()
            ]
            assert by_key(rows, ("id",)) == self.truth(name.table)

    def close(self) -> None:
        """Close the connection to the server."""
        self.channel.close()


def _kill_at(lake: LakeTable, method: str, *, done: bool) -> None:
    """Let a method of a table fail, before or after it has changed the table."""
    kind: Any = type(lake)

    def killed(self: Any, *given: Any, **named: Any) -> Any:
        if done:
            getattr(kind, method)(self, *given, **named)
        raise LakeError("killed")

    lake.__class__ = type("Killed", (kind,), {method: killed})


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
