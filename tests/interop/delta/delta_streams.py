"""Streams of Spark's Delta connector, each read when asked.

Reads an object of JSON a line: what to `do` with the stream `name`, and answers with
one that has `error`, the condition by which the stream ended, or nothing there. Each
stream keeps its checkpoint in a folder of its name, below the program's argument.

``read``
    Read the table at `path`, or its change `feed`, to the end; answers with the `rows`.
``start``
    Read it on and on; the rows of each batch become a file `<number>.json` in the
    folder `rows` of the stream, the same if the batch is repeated.
``settle``
    Wait until a stream that runs has all that its table has.
``stop``
    End it.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

FOLDER = Path(sys.argv[1])
JARS = sys.argv[2]
Json = dict[str, Any]


class Streams:
    """The streams that run, by their names."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._running: dict[str, StreamingQuery] = {}

    def read(self, asked: Json) -> Json:
        """Read a stream from its checkpoint to the table's end."""
        rows: list[Json] = []
        writer = self._writer(asked).foreachBatch(
            lambda batch, _: rows.extend(r.asDict() for r in batch.collect())
        )
        # Rows that came before an error are in the answer, too.
        answer: Json = {"rows": rows}
        try:
            writer.trigger(availableNow=True).start().awaitTermination()
        except PySparkException as failure:
            answer["error"] = condition(failure)
        return answer

    def start(self, asked: Json) -> Json:
        """Start a stream that goes on."""
        name = asked["name"]
        folder = FOLDER / name / "rows"
        folder.mkdir(parents=True, exist_ok=True)

        def write(batch: DataFrame, number: int) -> None:
            rows = [row.asDict() for row in batch.collect()]
            written = folder / f".{number}"
            written.write_text(json.dumps(rows, default=str))
            written.rename(folder / f"{number}.json")

        writer = self._writer(asked).foreachBatch(write)
        self._running[name] = writer.trigger(processingTime="1 second").start()
        return {}

    def settle(self, asked: Json) -> Json:
        """Wait until a stream has all that its table has."""
        self._running[asked["name"]].processAllAvailable()
        return {}

    def stop(self, asked: Json) -> Json:
        """End a stream."""
        query = self._running.pop(asked["name"])
        query.stop()
        failure = query.exception()
        return {"error": condition(failure)} if failure else {}

    def _writer(self, asked: Json) -> DataStreamWriter:
        reader = self._spark.readStream.format("delta")
        option = "readChangeFeed" if asked["feed"] else "skipChangeCommits"
        table = reader.option(option, "true").load(asked["path"])
        return table.writeStream.option(
            "checkpointLocation", str(FOLDER / asked["name"])
        )


def condition(failure: PySparkException) -> str:
    """Return how a stream ended: Delta's condition, if it is within Spark's."""
    found = re.search(r"\[(DELTA_[A-Z_.]+)\]", str(failure))
    return found[1] if found else failure.getCondition() or str(failure)


def main() -> None:
    """Answer until the input ends."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", JARS)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog",
            "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        )
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    streams = Streams(spark)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(streams, asked["do"])(asked)
        except PySparkException as failure:
            answer = {"error": condition(failure)}
        print(json.dumps({"error": ""} | answer, default=str), flush=True)


main()
