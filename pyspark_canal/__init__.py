"""The name under which Spark finds the data source `canal`.

Spark imports every package whose name starts with `pyspark_` and uses its attribute
`DefaultSource`, so there is nothing to register. The source is `canal_server.spark`.
`CanalQueryListener` exports metrics of queries; it is loaded when it is asked for, as
Spark imports this package in each of its processes.
"""

from typing import Any

from canal_server.spark.data_source import CanalDataSource as DefaultSource

__all__ = ["CanalQueryListener", "DefaultSource"]


def __getattr__(name: str) -> Any:
    if name != "CanalQueryListener":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from canal_server.spark.query_listener import CanalQueryListener  # noqa: PLC0415

    return CanalQueryListener
