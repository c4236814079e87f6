"""The Spark stream's own process: `python -m soak.spark_job JOB.json`.

The job has `options` of the source, and `folder`, where the sink and the checkpoint
are. It ends when it is killed, or when its query fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from spark_session import make_session
from stream_sink import StreamSink


def main(job: dict[str, Any]) -> None:
    """Stream until the query ends."""
    folder = Path(job["folder"])
    spark = make_session(folder)
    sink = str(folder / "sink.db")

    def apply(frame: Any, batch: int) -> None:
        StreamSink(Path(sink)).apply(frame, batch)

    frame = spark.readStream.format("canal").options(**job["options"]).load()
    query = (
        frame.writeStream.foreachBatch(apply)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="2 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
