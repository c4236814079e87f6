"""The streaming reader: the methods that Spark calls, in this order.

::

    getDefaultReadLimit, initialOffset        a new query; the second also once more
    latestOffset(start), reportLatestOffset   start is in Spark's commit log
    commit(end of the batch before)           not when idle, and not at the end
    partitions(start, end)                    again after a crash, as the first call
    read(partition)                           in executors; any number of times

One object of the class receives all of these calls except `read`, in a process that
lives as long as the query. Another object, created in another process, is copied into
every task and shares nothing with the first: everything `read` needs is in the options
and in the partition. `stop` is hardly ever called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from canal_server.spark.driver import StreamDriver
from canal_server.spark.options.offsets import offset_from_json, offset_to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from canal_server.spark.options.source_options import SourceOptions
    from canal_server.spark.reading.range_tasks import Range


class RangePartition(InputPartition):
    """The range that one task reads."""

    def __init__(self, part: Range) -> None:
        super().__init__(part)
        self.part = part


class CanalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of one or several destinations as micro-batches."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._driver: StreamDriver | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Omit connections: the copy is for the executors."""
        return self.__dict__ | {"_driver": None}

    def _driving(self) -> StreamDriver:
        if self._driver is None:
            self._driver = StreamDriver(self._options)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the cursors of the subscriptions, the same until the first ack."""
        return offset_to_json(self._driving().initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of option `maxRowsPerTrigger`, else that in bytes."""
        if self._options.max_rows_per_trigger:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return the end of the next batch; acks `start`, waits for changes."""
        rows_max = bytes_max = 0
        if isinstance(limit, ReadMaxRows):
            # Spark supports one limit at a time; ours applies in addition.
            rows_max = limit.max_rows
            bytes_max = self._options.max_bytes_per_trigger
        elif isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        begin = offset_from_json(start)
        end = self._driving().latest(begin, rows_max, bytes_max)
        return start if end == begin else offset_to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the position up to which the server has read, for query progress."""
        positions = self._driving().reported()
        return None if positions is None else offset_to_json(positions)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Set the current end of the source as the end of the query."""
        self._driving().take_targets()

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[RangePartition]:
        """Split a batch into ranges for tasks; changes nothing."""
        begin = offset_from_json(start)
        parts = self._driving().plan(begin, offset_from_json(end))
        return [RangePartition(part) for part in parts]

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; in an executor."""
        from canal_server.spark.row_batches import read_rows  # noqa: PLC0415  # pyarrow

        return read_rows(self._options, self._schema, partition.part)

    def commit(self, end: dict[str, Any]) -> None:
        """Ack a batch that is in Spark's commit log."""
        self._driving().committed(offset_from_json(end))

    def stop(self) -> None:
        """Close connections; usually, Spark kills the process instead."""
        if self._driver is not None:
            self._driver.close()
