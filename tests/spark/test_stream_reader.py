"""A stream in Spark, from a real MySQL through a real server: each change once."""

from __future__ import annotations

import pytest
from fix_pipeline import DESTINATION
from fix_spark import finish
from spark_stream import NAME, PATIENCE_S, Stream


@pytest.fixture
def stream(spark, make_pipeline, mysql_server, database, tmp_path):
    """Give a pipeline from the shared MySQL, and queries on it."""
    pipeline = make_pipeline(mysql_server, database)
    pipeline.start()
    made = Stream(spark, pipeline, tmp_path)
    yield made
    made.stop_all()


def without_idling(trace):
    """Return the calls without those that found nothing, and without parameters."""
    found = []
    ended = {}
    for each in trace:
        if each["call"] == "latestOffset.done":
            ended[each["number"]] = each["start"] == each["end"]
    skip_report = False
    for each in trace:
        call = each["call"]
        if call == "latestOffset":
            skip_report = ended.get(each["number"], True)
            if skip_report:
                continue
        if call == "reportLatestOffset" and skip_report:
            continue
        if "." not in call:
            found.append(call)
    return found


def test_the_order_of_calls(stream, rng) -> None:
    """Spark calls in the order that the source is built on; then it idles in peace."""
    writer = stream.pipeline.writer(rng)
    frame = stream.frame()
    writer.write(1)  # else Spark begins with an empty batch
    query = stream.start(frame)
    for batch in range(3):
        if batch:
            writer.write(1)
        stream.wait_for(writer, query)
        stream.wait(lambda batch=batch: stream.commits() > batch, query)
    idle = stream.count("latestOffset")
    stream.wait(lambda: stream.count("latestOffset") > idle + 5, query)
    query.stop()
    assert stream.commits() == 3
    assert stream.sink.batches() == [len(changes) for changes in writer.transactions]
    # fmt: off
    assert without_idling(stream.trace()) == [
        "getDefaultReadLimit", "initialOffset",
        "latestOffset", "reportLatestOffset", "initialOffset",
        "partitions", "read",
        "latestOffset", "reportLatestOffset", "commit", "partitions", "read",
        "latestOffset", "reportLatestOffset", "commit", "partitions", "read",
    ]
    # fmt: on
    assert acked(stream) == stream.trace()[-1]["start"]


def acked(stream):
    """Return the cursor of this subscription on the server, as an offset."""
    from canal_server.client.range_client import RangedClient  # noqa: PLC0415
    from canal_server.spark.options.offsets import offset_to_json  # noqa: PLC0415

    with RangedClient("127.0.0.1", stream.pipeline.server_port) as client:
        position = client.locate(DESTINATION, "acked", NAME)
    return offset_to_json({DESTINATION: position})


def test_a_restart_goes_on_from_the_checkpoint(stream, rng) -> None:
    """Neither the cursor nor `startingPosition` matters then."""
    writer = stream.pipeline.writer(rng)
    query = stream.start()
    writer.write(3)
    stream.wait_for(writer, query)
    stream.settle(query)
    query.stop()
    stream.trace_file.write_text("")
    writer.write(3)
    query = stream.start(startingPosition="latest")
    stream.wait_for(writer, query)
    query.stop()
    assert "initialOffset" not in stream.calls()
    assert not stream.sink.repeated()


def test_what_the_sink_has_comes_again_the_same(stream, rng) -> None:
    """A query that ends between the sink and Spark's commit log repeats its batch."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    writer = stream.pipeline.writer(rng)

    def apply(frame, batch):
        stream.sink.apply(frame, batch)
        if len(stream.sink.batches()) == 2 and not stream.sink.repeated():
            raise RuntimeError("after the sink")

    query = stream.start(apply=apply, maxRowsPerTrigger="10")
    writer.write(8, rows=5)
    with pytest.raises(StreamingQueryException, match="after the sink"):
        query.awaitTermination(PATIENCE_S)
    assert stream.commits() == 1
    query = stream.start(apply=apply, maxRowsPerTrigger="10")
    stream.wait_for(writer, query)
    query.stop()
    assert stream.sink.repeated() == [1]


def test_reading_a_batch_again_changes_nothing(stream, rng) -> None:
    """Two actions, a union, a task that failed or died read again: the same rows."""
    writer = stream.pipeline.writer(rng)
    stream.faults.write_text("read.batch 1 fail\nread 3 fail\nread.batch 5 die\n")
    counts = []

    def apply(frame, batch):
        counts.append((frame.count(), frame.union(frame).count()))
        stream.sink.apply(frame, batch)

    query = stream.start(apply=apply)
    for _ in range(2):
        writer.write(2)
        stream.wait_for(writer, query)
    query.stop()
    assert all(twice == 2 * once for once, twice in counts)
    assert stream.count("read") > 2 * 4


def test_available_now_reads_what_is_there_and_ends(stream, rng) -> None:
    """In batches of the given size; the next run reads later changes."""
    writer = stream.pipeline.writer(rng)
    query = stream.start(trigger={"availableNow": True})
    assert query.awaitTermination(PATIENCE_S)
    for _ in range(2):
        writer.write(4, rows=5)
        options = {"maxRowsPerTrigger": "10"}
        query = stream.start(trigger={"availableNow": True}, **options)
        assert query.awaitTermination(PATIENCE_S)
        stream.sink.check(writer)
    # A stream that begins with nothing has one empty batch, which is Spark's way.
    assert stream.sink.batches() == [0, 10, 10, 10, 10]


def run_now(stream) -> None:
    """Run a query to the end of the source."""
    query = stream.start(trigger={"availableNow": True})
    assert query.awaitTermination(PATIENCE_S)


def test_available_now_on_a_source_that_was_rotated_last(stream, rng) -> None:
    """It ends even if the last event is not a transaction; so does the next run.

    In between the server is restarted, while the source is quiet.
    """
    writer = stream.pipeline.writer(rng)
    stream.pipeline.keep_port()
    run_now(stream)  # so that the subscription is there
    for rows in (5, 0):
        if rows:
            writer.write(1, rows=rows)
        stream.pipeline.source.execute("FLUSH BINARY LOGS")
        run_now(stream)
        stream.sink.check(writer)
        stream.pipeline.stop()
        stream.pipeline.start()
        run_now(stream)
        stream.sink.check(writer)


def test_a_second_query_is_refused(stream, rng) -> None:
    """The error contains the remedy; the first query continues."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    writer = stream.pipeline.writer(rng)
    first = stream.start()
    writer.write(1)
    stream.wait_for(writer, first)
    second = (
        stream.frame()
        .writeStream.format("noop")
        .option("checkpointLocation", str(stream.folder / "other"))
    )
    with pytest.raises(StreamingQueryException, match="is read by another query"):
        finish(second, PATIENCE_S)
    writer.write(1)
    stream.wait_for(writer, first)


def test_a_server_killed_in_mid_stream(stream, rng) -> None:
    """The query waits for it, and nothing is lost or doubled."""
    writer = stream.pipeline.writer(rng)
    query = stream.start(maxRowsPerTrigger="20")
    stream.pipeline.keep_port()
    for _ in range(2):
        writer.write(20)
        stream.wait(lambda: stream.sink.count() > 0, query)
        stream.pipeline.kill()
        writer.write(5)
        stream.pipeline.start()
        stream.wait_for(writer, query)


def test_options_that_are_wrong_are_reported_at_once(stream) -> None:
    """Before anything runs; options that only a stream needs when it starts."""
    from pyspark.errors import (  # noqa: PLC0415
        AnalysisException,
        StreamingQueryException,
    )

    with pytest.raises(AnalysisException, match="did you mean table"):
        stream.frame(tabel="a.b")
    options = {"destination": "example", "endingPosition": "latest"}
    frame = stream.spark.readStream.format("canal").options(**options).load()
    with pytest.raises(StreamingQueryException) as caught:
        stream.start(frame).awaitTermination(PATIENCE_S)
    for words in ("option subscription is missing", "is only for batch reads"):
        assert words in str(caught.value)
