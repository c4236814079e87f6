"""Where a stream or a batch read starts, and resuming from an older offset."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from dataclasses import replace

import pytest
from fix_pipeline import DESTINATION, UNIT_S
from purge import purge

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from canal_server.errors import PositionError
from canal_server.spark.batch_reader import CanalBatchReader
from canal_server.spark.columns.spark_schema import generic_schema
from canal_server.spark.driver import StreamDriver
from canal_server.spark.options.source_options import read_options
from canal_server.spark.stream_reader import CanalStreamReader

pytestmark = pytest.mark.slow


def options_of(pipeline, **more):
    """Return options for a pipeline: of a stream, where they name a subscription."""
    options = {
        "servers": f"127.0.0.1:{pipeline.server_port}",
        "destination": DESTINATION,
        "retryTimeoutMs": str(round(3000 * UNIT_S)),
    }
    return read_options(options | more, streaming="subscription" in more)


@pytest.fixture
def mysql_pipeline(make_pipeline, mysql_server, database):
    """Give a running pipeline from the shared MySQL."""
    made = make_pipeline(mysql_server, database)
    made.start()
    return made


def test_a_time_before_a_purged_binlog(own_server, make_pipeline, caplog) -> None:
    """It is reported, or reading starts at the oldest file if that is allowed."""
    source = own_server("mysql")
    source.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (a INT)")
    pipeline = make_pipeline(source, "shop")
    pipeline.start()
    time = {"startingPosition": "time:1700000000000"}
    text = r"binlog starts with .*0002, at 20.* between 2023-11-14T22:13:20\+00:00"

    def begin(name, **more):
        options = options_of(pipeline, subscription=name, **time, **more)
        with closing(StreamDriver(options)) as driver:
            return driver.initial()[DESTINATION]

    assert begin("first").position == 4
    source.execute("FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (1)")
    file, _ = source.binlog_position()
    purge(source, file)
    with pytest.raises(PositionError, match=text) as caught:
        begin("second")
    later = re.search(r"time:(\d+) or later", str(caught.value))
    assert later
    assert begin("third", failOnDataLoss="false").journal == file
    assert "begins at `earliest`, without the earlier changes" in caplog.text
    time["startingPosition"] = f"time:{later[1]}"
    assert begin("fourth").journal == file
    time["startingPosition"] = "time:1700000000000"
    batch = options_of(pipeline, **time)
    with pytest.raises(PositionError, match=text):
        CanalBatchReader(batch, generic_schema("map")).partitions()
    going_on = replace(batch, fail_on_data_loss=False)
    assert CanalBatchReader(going_on, generic_schema("map")).partitions()


def test_an_idle_stream_with_an_offset_of_before_sets(
    mysql_pipeline, database, rng
) -> None:
    """An offset without the set that the server reports now is the same text again.

    Another text would be a batch, and an empty one. So also from the binlog, after a
    restart of the server, and while only others change something.
    """
    options = options_of(
        mysql_pipeline,
        subscription="lake",
        filter=rf"{database}\..*",
        pollTimeoutMs="300",
    )
    reader = CanalStreamReader(options, generic_schema("map"))
    new = reader.initialOffset()
    assert new["d"][DESTINATION]["g"]
    old = json.loads(json.dumps(new))
    del old["d"][DESTINATION]["g"]
    for restarts in (False, True):
        if restarts:
            mysql_pipeline.keep_port()
            mysql_pipeline.stop()
            mysql_pipeline.start()
        for _ in range(2):
            found = reader.latestOffset(old, ReadAllAvailable())
            assert json.dumps(found) == json.dumps(old)
            mysql_pipeline.source.execute("FLUSH BINARY LOGS")
    writer = mysql_pipeline.writer(rng)
    writer.write(1)
    give_up_at = time.monotonic() + 3 * UNIT_S
    while (end := reader.latestOffset(old, ReadAllAvailable())) == old:
        assert time.monotonic() < give_up_at, "no change arrived"
    assert end["d"][DESTINATION]["g"]
    assert reader.partitions(old, end)
    reader.stop()
