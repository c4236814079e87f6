"""The name under which Spark finds the data source `canal`.

Spark imports every package whose name begins with `pyspark_` and takes its attribute
`DefaultSource`; there is nothing to register. The source is `canal_server.spark`.
"""

from canal_server.spark.data_source import CanalDataSource as DefaultSource

__all__ = ["DefaultSource"]
