"""Tables of a lake, as a connector of Spark reads them, as one Parquet file each.

Reads an object of JSON a line: which table, by its `path` and its `form`, and the
folder `to` of the file. Answers with one that has the `error`, or an empty one. Parquet
has the same values and types as the table, which a text would not show.
"""

import json
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

FOLDER, JARS = sys.argv[1:]
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": (
        "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
}


def session() -> SparkSession:
    """Return a session of the connector that is there."""
    builder = SparkSession.builder.master("local[1]").config("spark.jars", JARS)
    for name, value in (DELTA if "delta-spark" in JARS else {}).items():
        builder = builder.config(name, value)
    return (
        builder.config("spark.ui.enabled", "false")
        .config("spark.local.dir", FOLDER)
        .config("spark.sql.warehouse.dir", f"{FOLDER}/warehouse")
        .config("spark.sql.session.timeZone", "UTC")
        # As the values are, whatever the year: other forms end in 2262.
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )


def answer(spark: SparkSession, asked: dict[str, Any]) -> dict[str, str]:
    """Read a table; returns the answer."""
    try:
        table = spark.read.format(asked["form"]).load(asked["path"])
        table.coalesce(1).write.parquet(asked["to"])
    except PySparkException as failure:
        return {"error": str(failure)}
    return {}


def main() -> None:
    """Answer until the input ends."""
    spark = session()
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        print(json.dumps({"error": ""} | answer(spark, json.loads(line))), flush=True)


main()
