"""Batch reads and streams in a process of its own: `python spark_job.py <job.json>`.

The job has `session`, the settings of Spark or `remote` for Spark Connect, `options` of
the source, `table` for typed reads, and `folder`, where everything goes. At the end
`result.json` is there; tests compare it with the table.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from fix_spark import finish, make_session
from prometheus_client import CollectorRegistry
from spark_sink import Sink
from spark_trace import TracedSource

from pyspark_canal import CanalQueryListener

PATIENCE_S = 300
POLL_S = 0.1


def main(job: dict[str, Any]) -> None:
    """Do all of it."""
    spark = session_of(job)
    spark.dataSource.register(TracedSource)
    folder, options = Path(job["folder"]), job["options"]
    typed = {"table": job["table"]}
    registry = CollectorRegistry()
    listener = CanalQueryListener(registry)
    spark.streams.addListener(listener)

    def read(**more: str) -> Any:
        return spark.read.format("canal").options(**options, **more).load()

    def stream(name: str, apply: Any, **more: str) -> None:
        frame = (
            spark.readStream.format("traced")
            .options(**options, **more, subscription=name)
            .load()
        )
        frame = listener.observed(frame)
        writer = (
            frame.writeStream.queryName(name)
            .foreachBatch(apply)
            .option("checkpointLocation", str(folder / name))
            .trigger(availableNow=True)
        )
        finish(writer, PATIENCE_S)

    sink = str(folder / "sink.db")

    def apply_generic(frame: Any, batch: int) -> None:
        Sink(Path(sink)).apply(frame, batch)

    rows = str(folder / "rows")

    def apply_typed(frame: Any, batch: int) -> None:
        frame.write.mode("overwrite").parquet(f"{rows}/batch={batch}")

    stream("generic", apply_generic)
    stream("typed", apply_typed, **typed)
    result = {
        "read": plain_rows(folded(read(**typed))),
        "streamed": plain_rows(folded(spark.read.parquet(rows))),
        "generic": read().where("NOT is_ddl").count(),
        "typed": read(**typed, updates="both").count(),
        "metrics": metrics_of(registry, "typed"),
    }
    (folder / "result.json").write_text(json.dumps(result))
    spark.stop()


def session_of(job: dict[str, Any]) -> Any:
    """Return a session, on a cluster or through Spark Connect."""
    settings = dict(job["session"])
    remote = settings.pop("remote", None)
    return make_session(Path(job["folder"]), remote=remote, **settings)


def metrics_of(registry: CollectorRegistry, query: str) -> dict[str, float | None]:
    """Return what the listener shows of a query, after Spark has reported its end."""

    def value(name: str) -> float | None:
        found: float | None = registry.get_sample_value(
            f"canal_spark_{name}", {"query": query}
        )
        return found

    give_up_at = time.monotonic() + PATIENCE_S
    while value("running") != 0:
        assert time.monotonic() < give_up_at, "its end was not reported"
        time.sleep(POLL_S)
    names = ("rows_total", "failures_total", "newest_change_timestamp_seconds")
    return {name: value(name) for name in names}


def folded(frame: Any) -> Any:
    """Return the last image of each key that was not deleted, as the guide says."""
    from pyspark.sql import functions as f  # noqa: PLC0415  # needs pyspark

    last = f.max_by(f.struct("*"), f.struct("_seq", "_row")).alias("last")
    frame = frame.groupBy("id").agg(last).select("last.*")
    return frame.where("_change_type <> 'delete'")


def plain_rows(frame: Any) -> list[list[Any]]:
    """Return rows as JSON has them."""
    return sorted(list(row) for row in frame.select("id", "tx", "n", "text").collect())


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
