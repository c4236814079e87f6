"""Random changes of rows and tables, read packed: the rows equal the tables.

Without Spark's JVM: what its tasks do is done here.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from fix_pipeline import DESTINATION
from fix_random import longer
from shifting_load import END, ShiftingLoad, apply_statement

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("pyspark", reason="pyspark is not installed")

from canal_server.spark.batch_reader import CanalBatchReader  # noqa: E402
from canal_server.spark.columns.spark_schema import packed_schema  # noqa: E402
from canal_server.spark.options.source_options import read_options  # noqa: E402
from canal_server.spark.packed.packed_rows import unpack  # noqa: E402


class Folded:
    """Tables as packed changes leave them, in texts."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, dict[str, str | None]]] = {}
        self._last_statement = -1

    def take(self, found: list[Any]) -> None:
        """Apply received items in order; each must match the previous state."""
        for each in found:
            assert each.kind != "problem", each.sql
            if each.kind == "statement" and each.table.table:
                self._apply(each)
            elif each.kind == "rows":
                self._change(each)

    def _apply(self, statement) -> None:
        if statement.seq != self._last_statement:
            apply_statement(self.tables, statement.sql)
            self._last_statement = statement.seq
        is_there = statement.table.table in self.tables
        assert is_there == bool(statement.columns), statement

    def _change(self, run) -> None:
        rows = self.tables[run.table.table]
        names = [each.name for each in run.columns]
        for values in run.data.to_pylist():
            row = {n: None if values[n] is None else str(values[n]) for n in names}
            key = row["id"]
            assert key is not None
            was = rows.pop(key, None)
            if values["_change_type"] == "insert":
                assert was is None, f"{row} comes where {was} was left"
            elif values["_change_type"] == "delete":
                assert was == row, f"{row} goes where {was} was left"
                continue
            else:
                assert was is not None, f"{row} was not there"
            rows[key] = row


def read(pipeline, rng, start: str, end: str) -> list[Any]:
    """Return the result of a batch read between two positions, split at random."""
    options = read_options(
        {
            "servers": f"127.0.0.1:{pipeline.server_port}",
            "destination": DESTINATION,
            "payload": "arrow",
            "filter": rf"{pipeline.schema}\..*",
            "startingPosition": start,
            "endingPosition": end,
            "minPartitionRows": "1",
            "maxPartitions": rng.choice(("1", "3", "20")),
            "wire": rng.choice(("binlog", "entry")),
        },
        streaming=False,
    )
    reader = CanalBatchReader(options, packed_schema())
    parts = list(reader.partitions())
    found: dict[int, list[Any]] = {}
    # Tasks run in any order; their rows are put into that of the binlog.
    for n in rng.sample(range(len(parts)), len(parts)):
        found[n] = [*reader.read(parts[n])]
    return unpack(
        pa.Table.from_batches([batch for n in sorted(found) for batch in found[n]])
    )


def position_of(server) -> str:
    """Return where a binlog ends."""
    file, offset = server.binlog_position()
    return f"file:{file}:{offset}"


def test_random_changes(make_pipeline, source_server, database, rng) -> None:
    """Read in random pieces, repeatedly: each row is there once."""
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    positions = [position_of(source_server)]
    load = ShiftingLoad(source_server, database, rng)
    for _ in range(longer(8)):
        for _ in range(rng.randrange(1, 12)):
            load.step()
        positions.append(position_of(source_server))
    load.end()
    positions.append(position_of(source_server))
    for _ in range(2):
        folded = Folded()
        kept = rng.sample(range(1, len(positions) - 1), len(positions) // 2)
        cuts = [positions[n] for n in sorted({0, *kept, len(positions) - 1})]
        for start, end in itertools.pairwise(cuts):
            folded.take(read(pipeline, rng, start, end))
        assert END in folded.tables
        assert folded.tables == load.truth()
