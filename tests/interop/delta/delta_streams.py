"""Streams of Spark's Delta connector, each read to its end when asked.

Reads an object of JSON a line: `path` of a table, `name` of the stream, whose
checkpoint is kept below the folder that is the program's argument, and whether the
change `feed` is read. Answers with `rows`, and with `error`, the condition by which
the stream ended.
"""

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

FOLDER = Path(sys.argv[1])
JARS = sys.argv[2]


def read(spark: SparkSession, path: str, name: str, *, feed: bool) -> dict[str, object]:
    """Read a stream from its checkpoint to the table's end."""
    rows: list[dict[str, object]] = []
    reader = spark.readStream.format("delta")
    if feed:
        reader = reader.option("readChangeFeed", "true")
    else:
        reader = reader.option("skipChangeCommits", "true")
    error = ""
    try:
        query = (
            reader.load(path)
            .writeStream.option("checkpointLocation", str(FOLDER / name))
            .foreachBatch(
                lambda batch, _: rows.extend(r.asDict() for r in batch.collect())
            )
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    except PySparkException as failure:
        error = failure.getCondition() or str(failure)
    return {"rows": rows, "error": error}


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
    for line in sys.stdin:
        asked = json.loads(line)
        answer = read(spark, asked["path"], asked["name"], feed=asked["feed"])
        print(json.dumps(answer, default=str), flush=True)


main()
