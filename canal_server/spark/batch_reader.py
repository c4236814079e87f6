"""The batch reader: the changes between two positions, read once.

The positions are resolved when the query is planned; it needs no subscription and moves
no cursor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from canal_server.errors import ClientError, PositionError
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel
from canal_server.spark.reading.range_tasks import (
    Range,
    begin_at_earliest,
    cut,
    earliest_of,
    is_lost,
    loss,
)
from canal_server.spark.stream_reader import RangePartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from canal_server.client.range_client import RangePosition
    from canal_server.spark.options.source_options import SourceOptions

FROM: Final = "earliest"  # the default
TO: Final = "latest"


class CanalBatchReader(DataSourceReader):
    """Reads the changes between `startingPosition` and `endingPosition`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[RangePartition]:
        """Resolve the positions, and split the range between them."""
        return [
            RangePartition(part)
            for name in self._options.destinations
            for part in self._parts(Channel(self._options, name))
        ]

    def _parts(self, channel: Channel) -> list[Range]:
        try:
            start = self._start(channel)
            end = self._locate(channel, self._options.ending_position or TO)
            self._check_order(channel.destination, start, end)
            if version_of(start) == version_of(end):
                # Packed, each part reports its end, even if it has no changes.
                here = Range(channel.destination, start, start)
                return [here] if self._options.is_packed else []
            whole = Range(channel.destination, start, end)
            try:
                return cut(channel, self._options, whole, None)
            except ClientError as error:
                if not is_lost(error):
                    raise
                name, lost = channel.destination, (start, end)
                raise loss(
                    self._options, name, lost, earliest_of(channel), error
                ) from error
        finally:
            channel.close()

    def _check_order(
        self, destination: str, start: RangePosition, end: RangePosition
    ) -> None:
        """Raise PositionError if the end is before the start."""
        if version_of(start) > version_of(end):
            options = self._options
            raise PositionError(
                f"destination {destination}: endingPosition ="
                f" {options.ending_position or TO} is {end}, which is before"
                f" startingPosition = {options.starting_position or FROM}, {start};"
                " swap the two"
            )

    def _start(self, channel: Channel) -> RangePosition:
        try:
            return self._locate(channel, self._options.starting_position or FROM)
        except ClientError as error:
            if not is_lost(error):
                raise
            name = channel.destination
            return self._locate(channel, begin_at_earliest(self._options, name, error))

    def _locate(self, channel: Channel, text: str) -> RangePosition:
        name = self._options.subscription
        return channel.call(lambda c: c.locate(channel.destination, text, name))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; in an executor."""
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark passes this if there are no partitions
        from canal_server.spark.row_batches import read_rows  # noqa: PLC0415  # pyarrow

        return read_rows(self._options, self._schema, partition.part)
