"""Packed reads in Spark: a stream, and batch reads between all forms of positions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from fix_pipeline import DESTINATION
from spark_stream import Stream


@pytest.fixture
def stream(spark, make_pipeline, mysql_server, database, tmp_path):
    """Give a pipeline from the shared MySQL, and queries on it."""
    pipeline = make_pipeline(mysql_server, database)
    pipeline.start()
    made = Stream(spark, pipeline, tmp_path)
    yield made
    made.stop_all()


def ids_of(found, schema):
    """Return the ids that were inserted into each table of a schema."""
    ids: dict[str, list[int]] = {}
    for each in found:
        if each.kind == "rows" and each.table.schema == schema:
            ids.setdefault(each.table.table, []).extend(each.data["id"].to_pylist())
    return ids


def test_a_stream_into_foreach_batch(stream) -> None:
    """Each micro-batch has its start and end, and each row once."""
    from canal_server.spark.packed.packed_rows import unpack  # noqa: PLC0415  # needs pyarrow

    schema, source = stream.pipeline.schema, stream.pipeline.source
    batches: list[list[Any]] = []
    frame = stream.frame(payload="arrow", filter=rf"{schema}\..*")
    source.execute(
        f"CREATE TABLE {schema}.a (id INT PRIMARY KEY)",
        f"CREATE TABLE {schema}.b (id INT)",
    )

    def so_far():
        return list(itertools.chain.from_iterable(batches))

    query = stream.start(frame, lambda rows, _: batches.append(unpack(rows.toArrow())))
    for number in range(3):
        source.execute(
            f"INSERT INTO {schema}.a VALUES ({number})",
            f"INSERT INTO {schema}.b VALUES ({number})",
        )
        stream.wait(
            lambda number=number: (
                ids_of(so_far(), schema).get("b", [])[-1:] == [number]
            ),
            query,
        )
    query.stop()
    found = so_far()
    assert ids_of(found, schema) == {"a": [0, 1, 2], "b": [0, 1, 2]}
    parts = [each for each in found if each.kind == "part"]
    for before, after in itertools.pairwise(parts):
        assert before.end == after.start


def test_batch_reads_between_positions(spark, stream) -> None:
    """Positions by file and by GTID set give the same ids, packed and typed."""
    from canal_server.spark.packed.packed_rows import unpack  # noqa: PLC0415  # needs pyarrow

    schema, source = stream.pipeline.schema, stream.pipeline.source
    source.execute(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    positions = []
    for number in range(3):
        file, offset = source.binlog_position()
        ((gtids,),) = source.execute("SELECT @@GLOBAL.gtid_executed")
        positions.append((f"file:{file}:{offset}", f"gtid:{gtids}".replace("\n", "")))
        source.execute(f"INSERT INTO {schema}.t VALUES ({number})")
    for start, end in zip(positions[0], positions[2], strict=True):
        if end == "gtid:":
            continue
        options = {
            "servers": f"127.0.0.1:{stream.pipeline.server_port}",
            "destination": DESTINATION,
            "startingPosition": start,
            "endingPosition": end,
        }
        read = spark.read.format("canal").options(**options)
        packed = read.option("payload", "arrow").option("filter", rf"{schema}\.t")
        found = unpack(packed.load().toArrow())
        assert ids_of(found, schema) == {"t": [0, 1]}
        assert unpack(packed.load().collect()) == found
        read = spark.read.format("canal").options(**options)
        typed = read.option("table", f"{schema}.t").load().collect()
        assert [row["id"] for row in typed] == [0, 1]
