"""Streams of MariaDB, of two sources, and of a source to which something happens."""

from __future__ import annotations

import pytest
from fix_pipeline import DESTINATION, write_properties
from purge import purge
from spark_sink import wanted_rows
from spark_stream import PATIENCE_S, Stream

SECOND = "second"


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
    return pipeline, pipeline.writer(rng), second_writer(pipeline, mariadb_server, rng)


def test_two_destinations(streams, writers) -> None:
    """One query reads a MySQL and a MariaDB: of each all comes, in its order."""
    pipeline, *place = writers
    stream = streams(pipeline)
    options = {
        "destination": f"{DESTINATION},{SECOND}",
        "startingPosition": "earliest",
        "maxRowsPerTrigger": "30",
    }
    query = stream.start(**options)
    for count in (1, 6):
        for writer in place:
            writer.write(count)
        wanted = sum(map(wanted_rows, place))
        stream.wait(lambda wanted=wanted: stream.sink.count() >= wanted, query)
    place[1].write(3)  # alone
    wanted = sum(map(wanted_rows, place))
    stream.wait(lambda: stream.sink.count() >= wanted, query)
    query.stop()
    stream.sink.check(place[0], DESTINATION)
    stream.sink.check(place[1], SECOND)
    assert max(stream.sink.batches()) <= 30 + 12  # one transaction more at most


def second_writer(pipeline, source, rng):
    """Add a destination to the server of a pipeline; return a writer to its source."""
    from ledger import Writer  # noqa: PLC0415

    file, offset = source.binlog_position()
    write_properties(
        pipeline.conf / "canal.properties",
        {
            "canal.ip": "127.0.0.1",
            "canal.port": 0,
            "canal.destinations": f"{DESTINATION},{SECOND}",
            "canal.instance.global.spring.xml": "classpath:spring/file-instance.xml",
        },
    )
    write_properties(
        pipeline.conf / SECOND / "instance.properties",
        pipeline.settings
        | {
            "canal.instance.master.address": f"{source.host}:{source.port}",
            "canal.instance.dbUsername": source.user,
            "canal.instance.dbPassword": source.password,
            "canal.instance.master.journal.name": file,
            "canal.instance.master.position": offset,
        },
    )
    return Writer(source, pipeline.schema, rng)


def test_a_union_of_a_stream_with_itself(
    streams, make_pipeline, mysql_server, database, rng
) -> None:
    """Spark plans and reads each range twice: every row comes twice in its batch."""
    stream = streams(make_pipeline(mysql_server, database))
    writer = stream.pipeline.writer(rng)
    frame = stream.frame()
    came = []
    query = stream.start(
        frame.union(frame), apply=lambda batch, _: came.append(sorted(seqs(batch)))
    )
    for _ in range(2):
        writer.write(2)
        rows = 2 * wanted_rows(writer)
        stream.wait(lambda rows=rows: sum(map(len, came)) >= rows, query)
    query.stop()
    for batch in came:
        assert batch[::2] == batch[1::2]
    once = [order for batch in came for order in batch[::2]]
    assert len(once) == len(set(once)) == wanted_rows(writer)


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
    came: list[dict[str, object]] = []

    def apply(frame, _):
        came.extend(row.asDict() for row in frame.collect())

    source.execute(f"INSERT INTO {table} VALUES (1)")
    query = stream.start(apply=apply, table=table, startingPosition="earliest")
    stream.wait(lambda: came, query)
    source.execute(
        f"ALTER TABLE {table} ADD COLUMN body TEXT",
        f"INSERT INTO {table} VALUES (2, 'new')",
    )
    with pytest.raises(StreamingQueryException, match=r"other columns since.*body"):
        query.awaitTermination(PATIENCE_S)
    query = stream.start(apply=apply, table=table)
    source.execute(f"INSERT INTO {table} VALUES (3, NULL)")
    stream.wait(lambda: len(came) > 2, query)
    query.stop()
    assert [(row["id"], row.get("body", "")) for row in came] == [
        (1, ""),
        (2, "new"),
        (3, None),
    ]


def test_a_purged_range(streams, make_pipeline, own_server, rng) -> None:
    """The query fails with both places; if that is allowed, it goes on behind."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    source = own_server("mysql")
    source.execute("CREATE DATABASE shop")
    stream = streams(make_pipeline(source, "shop"))
    stream.pipeline.keep_port()
    writer = stream.pipeline.writer(rng)
    query = stream.start()
    writer.write(2)
    stream.wait_for(writer, query)
    looks = stream.count("latestOffset")  # not before a batch is in the commit log
    stream.wait(lambda: stream.count("latestOffset") > looks, query)
    query.stop()
    writer.write(1)
    stream.pipeline.stop()
    stream.pipeline.configure({"canal.instance.master.journal.name": "oldest"})
    purge(source)
    stream.pipeline.start()
    query = stream.start()
    with pytest.raises(StreamingQueryException, match="cannot be read any more"):
        query.awaitTermination(PATIENCE_S)
    query = stream.start(failOnDataLoss="false")
    lost = len(writer.transactions.pop())
    before = wanted_rows(writer)
    writer.write(2)
    stream.wait(lambda: stream.sink.count() >= wanted_rows(writer), query)
    query.stop()
    assert lost > 0
    assert wanted_rows(writer) > before
    stream.sink.check(writer)
