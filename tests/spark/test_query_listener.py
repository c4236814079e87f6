"""Metrics of queries in Spark, by the listener, on a real source and server."""

from __future__ import annotations

import time

import pytest
from prometheus_client import CollectorRegistry
from spark_stream import PATIENCE_S, Stream


@pytest.fixture
def registry() -> CollectorRegistry:
    """Give a registry, as that of a program."""
    return CollectorRegistry()


@pytest.fixture
def listener(spark, registry):
    """Give a listener of the session."""
    from pyspark_canal import CanalQueryListener  # noqa: PLC0415  # an extra

    made = CanalQueryListener(registry)
    spark.streams.addListener(made)
    yield made
    spark.streams.removeListener(made)


@pytest.fixture
def stream(spark, make_pipeline, mysql_server, database, tmp_path):
    """Give a pipeline from the shared MySQL, and queries on it."""
    pipeline = make_pipeline(mysql_server, database)
    pipeline.start()
    made = Stream(spark, pipeline, tmp_path)
    yield made
    made.stop_all()


def test_a_query_is_exported(stream, listener, registry, rng) -> None:
    """Rows, batches, the newest change and lags, while it runs and after it ended."""

    def value(name, **labels):
        return registry.get_sample_value(f"canal_spark_{name}", labels)

    writer = stream.pipeline.writer(rng)
    frame = listener.observed(stream.frame())
    before_s = time.time()
    writer.write(4)
    query = stream.start(frame)
    stream.wait_for(writer, query)
    query_name = query.name or str(query.id)
    one = {"query": query_name}
    rows = sum(len(changes) for changes in writer.transactions)
    stream.wait(lambda: (value("rows_total", **one) or 0) >= rows)
    assert value("running", **one) == 1
    assert value("batch_seconds_count", **one) >= 1
    assert value("batch_seconds_sum", **one) > 0
    newest_s = value("newest_change_timestamp_seconds", **one)
    # The times of the binlog are whole seconds.
    assert before_s - 1 <= newest_s <= time.time()
    both = one | {"destination": "example"}
    assert value("lag_seconds", **both) is not None
    # Spark reports an idle query after a while: then there is nothing left.
    stream.wait(lambda: value("lag_seconds", **both) == 0)
    assert value("lag_transactions", **both) == 0
    query.stop()
    stream.wait(lambda: value("running", **one) == 0)
    assert value("failures_total", **one) == 0


def test_a_query_that_fails(stream, listener, registry, rng) -> None:
    """A failure is counted, and the count continues after a restart."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415  # an extra

    def apply(frame, batch):
        if batch == 1 and not failed:
            failed.append(batch)
            raise RuntimeError("the sink is full")
        stream.sink.apply(frame, batch)

    failed: list[int] = []
    writer = stream.pipeline.writer(rng)
    frame = stream.frame()
    writer.write(1)
    query = stream.start(frame, apply=apply)
    stream.wait_for(writer, query)
    stream.settle(query)
    writer.write(1)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(PATIENCE_S)
    name = query.name or str(query.id)

    def value(metric):
        return registry.get_sample_value(f"canal_spark_{metric}", {"query": name})

    stream.wait(lambda: value("failures_total") == 1)
    assert value("running") == 0
    query = stream.start(apply=apply)
    stream.wait_for(writer, query)
    stream.wait(lambda: value("running") == 1)
    assert value("failures_total") == 1
    query.stop()
