"""Packed reads while the source is replaced: each change once, as its table was there.

Without Spark's JVM: what its driver and tasks do is done here.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import Any

import pytest
from fix_failover import BY_SET, GTID_MODE
from fix_pipeline import DESTINATION, UNIT_S

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("pyspark", reason="pyspark is not installed")

from canal_server.client.range_client import RangedClient  # noqa: E402
from canal_server.spark.columns.spark_schema import packed_schema  # noqa: E402
from canal_server.spark.options.offsets import version_of  # noqa: E402
from canal_server.spark.options.servers import Channel  # noqa: E402
from canal_server.spark.options.source_options import read_options  # noqa: E402
from canal_server.spark.packed.packed_rows import unpack  # noqa: E402
from canal_server.spark.reading.range_tasks import Range, cut  # noqa: E402
from canal_server.spark.row_batches import read_rows  # noqa: E402

REPLICA_OPTIONS = ("--log-bin=second",)
NAME = "lake"


class Reads:
    """Ranges between positions, each split and read as a query does."""

    def __init__(self, pipeline: Any) -> None:
        self._options = read_options(
            {
                "servers": f"127.0.0.1:{pipeline.server_port}",
                "destination": DESTINATION,
                "payload": "arrow",
                "filter": rf"{pipeline.schema}\..*",
                "retryTimeoutMs": str(round(20_000 * UNIT_S)),
            },
            streaming=False,
        )
        self.channel = Channel(self._options, DESTINATION)

    def begin(self) -> Any:
        """Return where a subscription begins."""
        ask = partial(RangedClient.subscribe, destination=DESTINATION, name=NAME)
        return self.channel.call(ask).cursor

    def ends_after(self, start: Any) -> Any:
        """Return where everything before is, once that is after a position."""
        latest = self.channel.call(lambda c: c.locate(DESTINATION, "latest"))
        give_up_at = time.monotonic() + 3 * UNIT_S
        while version_of(start) < version_of(latest):
            assert time.monotonic() < give_up_at, f"{latest} is not after {start}"
            at = start
            # Nothing may have been read yet of what is there.
            start = self.channel.call(
                lambda c: c.head(DESTINATION, NAME, at, wait_ms=1000)  # noqa: B023
            ).end
        return start

    def plan(self, start: Any, end: Any) -> list[Range]:
        """Return the parts of a range as they are now."""
        whole = Range(DESTINATION, start, end)
        return cut(self.channel, self._options, whole, None)

    def read(self, parts: list[Range]) -> list[Any]:
        """Return what is in parts, however long ago they were planned."""
        batches = [
            batch
            for part in parts
            for batch in read_rows(self._options, packed_schema(), part)
        ]
        return unpack(pa.Table.from_batches(batches))


def plain(found: list[Any]) -> list[tuple[Any, ...]]:
    """Return received rows with their columns, statements with those after them."""
    plain: list[tuple[Any, ...]] = []
    for each in found:
        assert each.kind != "problem", each.sql
        names = " ".join(column.name for column in each.columns)
        if each.kind == "rows":
            plain.append((each.table.table, names, each.data["id"].to_pylist()))
        elif each.kind == "statement":
            plain.append((each.table.table, names, each.event_type))
    return plain


@pytest.mark.parametrize("settings", [GTID_MODE, BY_SET], ids=["gtid", "set"])
def test_the_source_is_replaced(replicas, make_scene, settings) -> None:
    """What was planned of the one is read of the other, with the columns of there."""
    scene = make_scene(settings)
    reads = Reads(scene.pipeline)
    with contextlib.closing(reads.channel):
        follow(scene, reads)


def follow(scene: Any, reads: Reads) -> None:
    """Read a range of the one, and again of the other, and what follows."""
    schema = scene.pipeline.schema
    scene.replicas.source.execute(f"CREATE TABLE {schema}.a (id INT PRIMARY KEY)")
    start = reads.begin()
    scene.replicas.source.execute(
        f"CREATE TABLE {schema}.b (id INT PRIMARY KEY, x INT)",
        f"INSERT INTO {schema}.a VALUES (1), (2)",
        f"ALTER TABLE {schema}.a ADD y INT",
        f"INSERT INTO {schema}.a VALUES (11, 1), (12, 2)",
        f"TRUNCATE {schema}.a",
        f"INSERT INTO {schema}.a VALUES (3, 3)",
        f"INSERT INTO {schema}.b VALUES (1, 1)",
    )
    middle = reads.ends_after(start)
    before = [
        ("b", "id x", "CREATE"), ("a", "id", [1, 2]), ("a", "id y", "ALTER"),
        ("a", "id y", [11, 12]), ("a", "id y", "TRUNCATE"), ("a", "id y", [3]),
        ("b", "id x", [1]),
    ]  # fmt: skip
    planned = reads.plan(start, middle)
    assert plain(reads.read(planned)) == before
    scene.die()
    scene.replicas.source.execute(
        f"RENAME TABLE {schema}.a TO {schema}.c, {schema}.b TO {schema}.a",
        f"INSERT INTO {schema}.c VALUES (4, 4)",
        f"INSERT INTO {schema}.a VALUES (2, 2)",
    )
    scene.wait_until_reads("standby")
    again = reads.read(planned)
    assert plain(again) == before
    end = reads.ends_after(middle)
    assert end.epoch > middle.epoch
    later = reads.read(reads.plan(middle, end))
    assert sorted(plain(later), key=str) == sorted(
        [
            ("c", "id y", "RENAME"), ("a", "id x", "RENAME"), ("b", "", "RENAME"),
            ("c", "id y", [4]), ("a", "id x", [2]),
        ],
        key=str,
    )  # fmt: skip
    assert min(each.seq for each in later) >= max(
        each.seq for each in again if each.kind != "part"
    )
    scene.replicas.rejoin()
