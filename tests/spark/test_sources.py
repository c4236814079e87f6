"""Streams of MariaDB, of two sources, and of a source to which something happens."""

from __future__ import annotations

import pytest
from fix_pipeline import DESTINATION
from ledger import Writer
from purge import purge
from spark_sink import expected_rows
from spark_stream import (
    PATIENCE_S,
    SECOND,
    Stream,
    add_destination,
    subscribe_here,
)


@pytest.fixture
def streams(spark, tmp_path):
    """Give `make(pipeline)`, which starts it and returns queries on it."""
    made = []

    def make(pipeline):
        pipeline.start()
        made.append(Stream(spark, pipeline, tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.stop_all()


def test_mariadb(streams, make_pipeline, mariadb_server, database, rng) -> None:
    """Its changes come once, too, with the server killed in the middle."""
    stream = streams(make_pipeline(mariadb_server, database))
    stream.pipeline.keep_port()
    writer = stream.pipeline.writer(rng)
    query = stream.start(maxRowsPerTrigger="20", minPartitionRows="5")
    writer.write(10)
    stream.wait(lambda: stream.sink.count() > 0, query)
    stream.pipeline.kill()
    writer.write(5)
    stream.pipeline.start()
    stream.wait_for(writer, query)


@pytest.fixture
def writers(make_pipeline, mysql_server, mariadb_server, database, rng):
    """Give a pipeline with two destinations, and a writer to the source of each."""
    pipeline = make_pipeline(mysql_server, database)
    add_destination(pipeline, mariadb_server)
    second = Writer(mariadb_server, database, rng)
    return pipeline, pipeline.writer(rng), second


def test_two_destinations(streams, writers) -> None:
    """One query reads a MySQL and a MariaDB: of each all comes, in its order."""
    pipeline, first, second = writers
    stream = streams(pipeline)
    subscribe_here(pipeline)
    both = {"destination": f"{DESTINATION},{SECOND}"}
    query = stream.start(maxRowsPerTrigger="30", **both)
    for counts in ((1, 1), (6, 6), (0, 3)):
        first.write(counts[0])
        second.write(counts[1])
        expected = expected_rows(first) + expected_rows(second)
        stream.wait(lambda expected=expected: stream.sink.count() >= expected, query)
    query.stop()
    stream.sink.check(first, DESTINATION)
    stream.sink.check(second, SECOND)
    assert max(stream.sink.batches()) <= 30 + 12  # one transaction more at most


def test_a_union_of_a_stream_with_itself(
    streams, make_pipeline, mysql_server, database, rng
) -> None:
    """Spark plans and reads each range twice: every row comes twice in its batch."""
    stream = streams(make_pipeline(mysql_server, database))
    writer = stream.pipeline.writer(rng)
    frame = stream.frame()
    received = []
    query = stream.start(
        frame.union(frame), apply=lambda batch, _: received.append(sorted(seqs(batch)))
    )
    for _ in range(2):
        writer.write(2)
        rows = 2 * expected_rows(writer)
        stream.wait(lambda rows=rows: sum(map(len, received)) >= rows, query)
    query.stop()
    for batch in received:
        assert batch[::2] == batch[1::2]
    once = [order for batch in received for order in batch[::2]]
    assert len(once) == len(set(once)) == expected_rows(writer)


def seqs(frame):
    """Return the total order of a batch's rows."""
    return [tuple(row) for row in frame.select("_seq", "_row").collect()]


def test_a_restart_with_an_added_column(
    streams, make_pipeline, mysql_server, database, rng
) -> None:
    """The query ends at the statement; started again it has the column, each row once.

    What an earlier run took before the statement has no value there.
    """
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    stream = streams(make_pipeline(mysql_server, database))
    source, table = mysql_server, f"{database}.goods"
    source.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    received: list[dict[str, object]] = []

    def apply(frame, _):
        received.extend(row.asDict() for row in frame.collect())

    source.execute(f"INSERT INTO {table} VALUES (1)")
    query = stream.start(apply=apply, table=table, startingPosition="earliest")
    stream.wait(lambda: received, query)
    source.execute(
        f"ALTER TABLE {table} ADD COLUMN body TEXT",
        f"INSERT INTO {table} VALUES (2, 'new')",
    )
    with pytest.raises(StreamingQueryException, match=r"different columns since.*body"):
        query.awaitTermination(PATIENCE_S)
    query = stream.start(apply=apply, table=table)
    source.execute(f"INSERT INTO {table} VALUES (3, NULL)")
    stream.wait(lambda: len(received) > 2, query)
    query.stop()
    assert [(row["id"], row.get("body", "")) for row in received] == [
        (1, ""),
        (2, "new"),
        (3, None),
    ]


def test_a_purged_range(streams, make_pipeline, own_server, rng) -> None:
    """The query fails with both positions; if allowed, it resumes after the gap."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    source = own_server("mysql")
    source.execute("CREATE DATABASE shop")
    stream = streams(make_pipeline(source, "shop"))
    stream.pipeline.keep_port()
    writer = stream.pipeline.writer(rng)
    query = stream.start()
    writer.write(2)
    stream.wait_for(writer, query)
    stream.settle(query)
    query.stop()
    writer.write(1)
    stream.pipeline.stop()
    stream.pipeline.configure({"canal.instance.master.journal.name": "oldest"})
    purge(source)
    stream.pipeline.start()
    query = stream.start()
    with pytest.raises(StreamingQueryException, match="are no longer available"):
        query.awaitTermination(PATIENCE_S)
    query = stream.start(failOnDataLoss="false")
    lost = len(writer.transactions.pop())
    before = expected_rows(writer)
    writer.write(2)
    stream.wait(lambda: stream.sink.count() >= expected_rows(writer), query)
    query.stop()
    assert lost > 0
    assert expected_rows(writer) > before
    stream.sink.check(writer)
