"""The name under which Spark finds the data source `canal`.

Spark imports every package whose name starts with `pyspark_` and uses its attribute
`DefaultSource`, so there is nothing to register. The source is `canal_server.spark`.
"""

from canal_server.spark.data_source import CanalDataSource as DefaultSource

__all__ = ["DefaultSource"]
