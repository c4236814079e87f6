"""Queries in the tests' session of Spark, on a pipeline, and what Spark called."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from fix_pipeline import DESTINATION, FILE_WIRING, UNIT_S, write_properties
from fix_spark import STARTS_MAX, TOO_BUSY, was_late
from spark_sink import Sink, expected_rows

from canal_server.client.range_client import RangedClient

NAME = "lake"
SECOND = "second"  # destination
PATIENCE_S = 9 * UNIT_S
POLL_S = 0.05


class Stream:
    """Queries on one pipeline, with one sink, one checkpoint and one trace."""

    def __init__(self, spark, pipeline, folder) -> None:
        from spark_trace import TracedSource  # noqa: PLC0415  # needs pyspark

        spark.dataSource.register(TracedSource)
        self.spark = spark
        self.pipeline = pipeline
        self.folder = folder
        self.sink = Sink(folder / "sink.db")
        self.trace_file = folder / "trace"
        self.faults = folder / "faults"
        self.faults.touch()
        self.trace_file.touch()
        self.begin = ""
        self._queries: list[Any] = []

    def frame(self, **options):
        """Return a stream of the traced source, from the first call's moment on."""
        if not self.begin:
            file, offset = self.pipeline.source.binlog_position()
            self.begin = f"file:{file}:{offset}"
        return (
            self.spark.readStream.format("traced")
            .options(
                servers=f"127.0.0.1:{self.pipeline.server_port}",
                destination=DESTINATION,
                subscription=NAME,
                startingPosition=self.begin,
                pollTimeoutMs="100",
                _trace=str(self.trace_file),
                _faults=str(self.faults),
                _busy_s="0.5",
            )
            .options(**options)
            .load()
        )

    def start(self, frame=None, apply=None, trigger=None, **options):
        """Start a query into the sink; returns when Spark has asked the source."""
        frame = self.frame(**options) if frame is None else frame
        writer = (
            frame.writeStream.foreachBatch(apply or self.sink.apply)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
        )
        for _ in range(STARTS_MAX):
            looks, query = self.count("latestOffset"), writer.start()
            self._queries.append(query)
            self.wait(
                lambda query=query, looks=looks: (
                    not query.isActive or self.count("latestOffset") > looks
                )
            )
            if not was_late(query):
                return query
        raise AssertionError(TOO_BUSY)

    def stop_all(self) -> None:
        """Stop all queries."""
        for query in self._queries:
            with contextlib.suppress(Exception):  # one that failed says it again
                query.stop()

    def wait(self, done, query=None) -> None:
        """Wait until something is so, while the query runs."""
        give_up_at = time.monotonic() + PATIENCE_S
        while not done():
            if query is not None and not query.isActive:
                raise AssertionError(f"the query ended: {query.exception()}")
            assert time.monotonic() < give_up_at, (
                f"it never happened; {self.calls()[-20:]}"
            )
            time.sleep(POLL_S)

    def wait_for(self, writer, query) -> None:
        """Wait until all that was written has come, and compare it."""
        self.wait(lambda: self.sink.count() >= expected_rows(writer), query)
        self.sink.check(writer)

    def settle(self, query) -> None:
        """Wait until all that arrived is in Spark's commit log."""
        looks = self.count("latestOffset")
        self.wait(lambda: self.count("latestOffset") > looks, query)

    def trace(self):
        """Return the calls so far."""
        return [json.loads(line) for line in self.trace_file.read_text().splitlines()]

    def calls(self):
        """Return the names of the calls of Spark."""
        return [each["call"] for each in self.trace() if "." not in each["call"]]

    def count(self, call):
        """Return how often something was called."""
        return self.calls().count(call)

    def commits(self):
        """Return how many micro-batches are in Spark's commit log."""
        folder = self.folder / "checkpoint" / "commits"
        return sum(each.name.isdigit() for each in folder.iterdir())


def add_destination(pipeline, source) -> None:
    """Add a destination to the server of a pipeline; counts from a start on.

    It has the settings of the first one, and begins at the end of its own source.
    """
    file, offset = source.binlog_position()
    write_properties(
        pipeline.conf / "canal.properties",
        {
            "canal.ip": "127.0.0.1",
            "canal.port": pipeline.server_port_requested,
            "canal.destinations": f"{DESTINATION},{SECOND}",
            "canal.instance.global.spring.xml": FILE_WIRING,
        },
    )
    properties = pipeline.conf / SECOND / "instance.properties"
    if properties.exists():
        return
    of_source = {
        "canal.instance.master.address": f"{source.host}:{source.port}",
        "canal.instance.dbUsername": source.user,
        "canal.instance.dbPassword": source.password,
        "canal.instance.master.journal.name": file,
        "canal.instance.master.position": offset,
    }
    write_properties(properties, pipeline.settings | of_source)


def subscribe_here(pipeline) -> None:
    """Make subscriptions that begin where the sources of two destinations end now."""
    with RangedClient("127.0.0.1", pipeline.server_port) as client:
        for name in (DESTINATION, SECOND):
            client.subscribe(name, NAME, "", "latest")
