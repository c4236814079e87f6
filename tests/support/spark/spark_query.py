"""A query in a process of its own, to be killed: `python spark_query.py <job.json>`.

The job has `options` of the source, and `checkpoint`, `sink` and `local`, folders and
files; the query runs until it is killed, or `rows` have come (of one `table`) and are
acked.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from fix_spark import STARTS_MAX, make_session, was_late
from spark_sink import Sink
from spark_trace import Trace, TracedSource

POLL_S = 0.05


def main(job: dict[str, Any]) -> int:
    """Run the query; returns 1 when it failed by itself."""
    spark = make_session(Path(job["local"]))
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(TracedSource)
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    options = job["options"] | {"_victims": f"{os.getpid()} {jvm}"}
    sink, trace = Sink(Path(job["sink"])), Trace(options)

    def apply(frame: Any, batch: int) -> None:
        trace.note("sink", batch=batch)
        sink.apply(frame, batch)
        trace.note("sink.done", batch=batch)

    frame = spark.readStream.format("traced").options(**options).load()
    writer = frame.writeStream.foreachBatch(apply)
    writer = writer.option("checkpointLocation", job["checkpoint"])
    query, starts, ends_at = writer.start(), 1, 0
    while query.isActive or (was_late(query) and starts < STARTS_MAX):
        if not query.isActive:
            query, starts = writer.start(), starts + 1
        looks = trace.count("latestOffset")
        if not ends_at and sink.count(job.get("table", "%")) >= job["rows"]:
            ends_at = looks + 3  # two more looks ack the last batch
        if ends_at and looks >= ends_at:
            query.stop()
            return 0
        time.sleep(POLL_S)
    print(query.exception(), file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main(json.loads(Path(sys.argv[1]).read_text())))
