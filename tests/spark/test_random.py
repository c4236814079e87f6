"""Random changes of rows and tables, kills in between: the stream equals the tables."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from fix_pipeline import DESTINATION, UNIT_S
from fix_random import longer
from fix_spark import run_job, skip_without_spark
from shifting_load import END, ShiftingLoad, fold
from spark_sink import Sink
from spark_stream import NAME, SECOND, add_destination, subscribe_here

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(0)]
PATIENCE_S = 60 * UNIT_S
POLL_S = 0.05
STEPS = 40
CALLS = (
    "partitions", "read.batch", "sink", "sink.done",
    "latestOffset", "latestOffset.done", "commit", "commit.done",
)  # fmt: skip


class Trouble:
    """Writes, and kills the server, while a query runs in another process."""

    def __init__(self, pipeline, loads, rng, trace) -> None:
        self._pipeline = pipeline
        self._loads = loads
        self._rng = rng
        self._trace = trace
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self):
        try:
            self._make()
        except Exception as error:  # noqa: BLE001  # shown by the test's own thread
            self._error = error

    def _make(self):
        give_up_at = time.monotonic() + PATIENCE_S
        while not self._trace.read_text():
            assert time.monotonic() < give_up_at, "the query never began"
            time.sleep(POLL_S)
        kill_at = self._rng.randrange(STEPS)
        for number in range(STEPS):
            if number == kill_at:
                self._pipeline.kill()
                self._pipeline.start()
            for load in self._loads:
                load.step()


@pytest.fixture
def loads(make_pipeline, mysql_server, mariadb_server, database, rng):
    """Give a pipeline with two destinations, and the load on the source of each."""
    skip_without_spark()
    pipeline = make_pipeline(mysql_server, database)
    add_destination(pipeline, mariadb_server)
    pipeline.start()
    subscribe_here(pipeline)
    pipeline.keep_port()
    add_destination(pipeline, mariadb_server)
    return pipeline, {
        DESTINATION: ShiftingLoad(mysql_server, database, rng),
        SECOND: ShiftingLoad(mariadb_server, database, rng),
    }


def test_folded_by_key_it_equals_the_tables(loads, tmp_path, rng) -> None:
    """Of a MySQL and a MariaDB, with the query and the server killed at some moment."""
    pipeline, of_destination = loads
    sink = Sink(tmp_path / "sink.db")
    faults, trace = tmp_path / "faults", tmp_path / "trace"
    job = {
        "options": {
            "servers": f"127.0.0.1:{pipeline.server_port}",
            "destination": ",".join(of_destination),
            "subscription": NAME,
            "maxRowsPerTrigger": "20",
            "pollTimeoutMs": "100",
            "_trace": str(trace),
            "_faults": str(faults),
        },
        "checkpoint": str(tmp_path / "checkpoint"),
        "sink": str(sink.file),
        "local": str(tmp_path / "local"),
        "table": END,
        "rows": len(of_destination),
    }

    def run(fault):
        faults.write_text(fault)
        trace.write_text("")
        return run_job("spark_query.py", job, tmp_path, PATIENCE_S)

    for _ in range(longer(1)):
        fault = f"{rng.choice(CALLS)} {rng.randint(1, 3)} kill\n"
        print(fault)
        trace.write_text("")
        with Trouble(pipeline, of_destination.values(), rng, trace):
            status = run(fault)
        assert status == -signal.SIGKILL, f"{fault} never happened: status {status}"
    for load in of_destination.values():
        load.end()
    assert run("") == 0
    for name, load in of_destination.items():
        assert fold(sink.rows(name)) == load.truth()
