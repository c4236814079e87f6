"""Reads what changed in a table since its copy began, outside the stream.

The driver reads it itself, as one of Spark's tasks would: one table's changes, in
order. Memory holds no more of them than the follower collects.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from canal_server.errors import ClientError
from canal_server.mirror.follow.follower import (
    is_about,
)
from canal_server.mirror.follow.leaving import (
    CopyNeededError,
)
from canal_server.mirror.state.xa import PreparedXa, is_of_xa
from canal_server.spark.columns.spark_schema import packed_schema
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel
from canal_server.spark.packed.packed_rows import PART, ROWS, STATEMENT, unpack
from canal_server.spark.reading.range_tasks import (
    LossError,
    Range,
    cut,
    is_lost,
    loss_message,
)
from canal_server.spark.row_batches import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.follow.follower import Follower
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.runtime.lifecycle import Stop
    from canal_server.spark.options.source_options import SourceOptions
    from canal_server.spark.packed.packed_rows import Packed

log = logging.getLogger(__name__)

NOBODY_KNOWS: Final = 1 << 62  # a number after every position
NEAR_ROWS = 5_000  # fewer rows are read while the stream waits


class CatchUp:
    """Applies one table's changes from a position to the end of the binlog."""

    def __init__(
        self,
        options: SourceOptions,
        destination: str,
        mirror: str,
        note: Callable[[RangePosition], Mapping[str, str]],
        stop: Stop,
        *,
        name: TableName,
        continues: bool = False,
    ) -> None:
        """Read for a mirror, by options whose filter selects one table.

        `continues`: an earlier read has seen transactions that this one does not see.
        """
        self._xa = PreparedXa(forgotten={name: NOBODY_KNOWS} if continues else {})
        self._options = options
        self._mirror = mirror
        self._channel = Channel(options, destination, stop=stop)
        self._note = note
        self._stop = stop

    def latest(self) -> RangePosition:
        """Return the current end of the source's binlog.

        It includes the executed GTID set, which finds the position on another server
        when the source is replaced.
        """
        name = self._channel.destination
        return self._channel.call(lambda c: c.locate(name, "latest", self._mirror))

    def read(
        self,
        follower: Follower,
        start: RangePosition,
        end: RangePosition,
    ) -> int:
        """Apply the table's changes between two positions; returns the number of rows.

        Ends early when a stop is requested. Raises what `Follower.feed` raises,
        CopyNeededError if changes are lost, ClientError and OSError.
        """
        if version_of(start) >= version_of(end):
            return 0
        follower.begin("")
        follower.reached(version_of(start))
        try:
            return self._read(follower, start, end)
        except (LossError, ClientError) as error:
            if isinstance(error, ClientError) and not is_lost(error):
                raise
            raise CopyNeededError(
                f"changes after {start}, where its copy began, are no longer available "
                f"({loss_message(str(error))})"
            ) from error
        finally:
            follower.is_ahead = True  # of the stream

    def _read(
        self, follower: Follower, start: RangePosition, end: RangePosition
    ) -> int:
        rows, name = 0, follower.table.source
        whole = Range(self._channel.destination, start, end)
        note = self._note(end)
        for part in cut(self._channel, self._options, whole, None):
            for batch in read_rows(self._options, packed_schema(), part, self._channel):
                for item in unpack(pa.Table.from_batches([batch])):
                    if item.kind == ROWS:
                        rows += item.count
                    rolled_back = self._xa.accept(item)
                    if is_of_xa(item):
                        concerns = name in rolled_back
                    else:
                        concerns = item.kind == PART or is_about(item, name)
                    if concerns:
                        follower.feed(item, note)
                if self._stop.requested():
                    follower.drop_gathered()
                    return rows
            follower.flush(version_of(part.end), note)
        return rows

    def statements(
        self, name: TableName, start: RangePosition, end: RangePosition
    ) -> Iterator[Packed]:
        """Yield the statements about the table between two positions.

        Raises what `read` raises while reading.
        """
        if version_of(start) >= version_of(end):
            return
        whole = Range(self._channel.destination, start, end)
        for part in cut(self._channel, self._options, whole, None):
            for batch in read_rows(self._options, packed_schema(), part):
                for item in unpack(pa.Table.from_batches([batch])):
                    is_statement = item.kind == STATEMENT and not is_of_xa(item)
                    if is_statement and is_about(item, name):
                        yield item

    def close(self) -> None:
        """Close the connection to the server."""
        self._channel.close()
