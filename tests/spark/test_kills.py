"""Driver and JVM killed at each step of a micro-batch: each change comes once."""

from __future__ import annotations

import signal

import pytest
from fix_pipeline import DESTINATION, UNIT_S
from fix_random import LONGER
from fix_spark import run_job, skip_without_spark
from spark_sink import Sink, expected_rows

# Each of them takes a Spark of its own twenty seconds; everyday tests kill one, at any
# of these steps (`test_random`), and fail after the sink (`test_stream`).
pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(LONGER == 1, reason="CANAL_TEST_LONGER=2 runs it"),
]
PATIENCE_S = 30 * UNIT_S
NAME = "lake"

# Where the processes of one run are killed, and what Spark had done by then.
KILLS = {
    "partitions": "the first batch is in the log of offsets, nothing was read",
    "read.batch": "a task has handed on some rows",
    "sink": "all was read, the sink has nothing",
    "sink.done": "the sink has the batch, the commit log has not",
    "latestOffset": "the batch is in the commit log, and not acked",
    "latestOffset.done": "the batch is acked, and the next one is not planned",
    "commit": "the next batch is in the log of offsets, before the ack",
    "commit.done": "and after it",
}


@pytest.fixture
def pipeline(make_pipeline, mysql_server, database):
    """Give a running pipeline from the shared MySQL."""
    skip_without_spark()
    made = make_pipeline(mysql_server, database)
    made.start()
    return made


@pytest.mark.parametrize("ack_on", ["latestOffset", "commit"])
def test_killed_at_each_step(pipeline, rng, tmp_path, ack_on) -> None:
    """Each run resumes from the state that the killed one left."""
    writer = pipeline.writer(rng)
    sink = Sink(tmp_path / "sink.db")
    faults, trace = tmp_path / "faults", tmp_path / "trace"
    options = {
        "servers": f"127.0.0.1:{pipeline.server_port}",
        "destination": DESTINATION,
        "subscription": NAME,
        "startingPosition": position_of(pipeline),
        "ackOn": ack_on,
        "maxRowsPerTrigger": "10",
        "pollTimeoutMs": "100",
        "_trace": str(trace),
        "_faults": str(faults),
    }
    job = {
        "options": options,
        "checkpoint": str(tmp_path / "checkpoint"),
        "sink": str(sink.file),
        "local": str(tmp_path / "local"),
    }
    for call in KILLS:
        writer.write(6)
        # The second of these calls, so that a batch was done before, as a rule.
        faults.write_text(f"{call} {1 if call == 'partitions' else 2} kill\n")
        trace.write_text("")
        status = run(job | {"rows": expected_rows(writer)}, tmp_path)
        assert status == -signal.SIGKILL, f"{call} never happened: status {status}"
    faults.write_text("")
    trace.write_text("")
    assert run(job | {"rows": expected_rows(writer)}, tmp_path) == 0
    sink.check(writer)
    assert sink.repeated(), "no batch arrived again, so nothing was proven"


def position_of(pipeline):
    """Return the end of the binlog as a position for an option."""
    return "file:{}:{}".format(*pipeline.source.binlog_position())


def run(job, folder):
    """Run a query in its own process; return how it ended."""
    return run_job("spark_query.py", job, folder, PATIENCE_S)
