"""Ranges of a destination: split into parts for tasks, and read by them.

Everything here may be repeated any number of times, in any process, with the same
result.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.client.range_client import (
    NOT_HERE,
    OTHER_EPOCH,
    PARTS_MAX,
    PURGED,
    REFUSED,
    RangePosition,
    Wire,
)
from canal_server.core.crc32 import checksum
from canal_server.errors import ClientError, PositionError, ProtocolError
from canal_server.messages import spark_messages
from canal_server.spark.options.source_options import DESTINATION, KEYHASH
from canal_server.spark.reading.raw_rows import rendered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.client.range_client import RangedClient, RangePart
    from canal_server.spark.options.servers import Channel
    from canal_server.spark.options.source_options import SourceOptions

log = logging.getLogger(__name__)

# For a part whose rows are all buffered by the writer; a transaction may be larger than
# a batch should be.
PACKED_BYTES_MAX: Final = 64 << 20
_NOWHERE: Final = RangePosition()
# A mirror recognizes the error by this text, as it arrives through the JVM.
LOST: Final = "are no longer available"
_RELOAD: Final = ". Reload the missing changes"


class LossError(PositionError):
    """Changes are no longer in the binlog of the source."""


@dataclass(frozen=True, slots=True)
class Range:
    """The range of one destination that one task reads.

    If the range ends inside a transaction, `commit` is the end of that transaction and
    `commit_ms` its time. `is_cut`: other tasks read the rest of a batch. If rows are
    distributed by key, several tasks have the same range; `keys` is the number of this
    task and their count.
    """

    destination: str
    start: RangePosition
    end: RangePosition
    commit: RangePosition = _NOWHERE
    commit_ms: int = 0
    keys: tuple[int, int] = (0, 1)
    is_cut: bool = False

    def __str__(self) -> str:
        number, count = self.keys
        keys = f", keys {number + 1} of {count}" if count > 1 else ""
        return f"{self.destination} from {self.start} to {self.end}{keys}"


def is_lost(error: ClientError) -> bool:
    """Return whether a refusal means that changes are no longer available."""
    return error.code in (OTHER_EPOCH, PURGED)


def loss(
    options: SourceOptions,
    destination: str,
    lost: tuple[RangePosition, RangePosition | None],
    earliest: RangePosition,
    why: object,
) -> LossError:
    """Return the error for lost changes between two positions."""
    name = f"subscription {options.subscription} of " if options.subscription else ""
    start, end = lost
    until = f" up to {end}" if end else ""
    return LossError(
        f"{name}destination {destination}: changes after {start}{until} {LOST} "
        f"({why}); the earliest available ones are after {earliest}"
        f"{_RELOAD} and start with a new checkpoint and a new "
        "subscription, or set failOnDataLoss = false to resume from there without them"
    )


def loss_message(text: str) -> str:
    """Return a message of `loss` without its remedies, which fit only Spark."""
    return text.partition(_RELOAD)[0]


def skipped_loss(
    destination: str,
    lost: tuple[RangePosition, RangePosition | None],
    earliest: RangePosition,
    why: object,
) -> str:
    """Return the message for skipped lost changes if the query may resume."""
    start, end = lost
    until = f" up to {end}" if end else ""
    return (
        f"destination {destination}: changes after {start}{until} are lost ({why}); "
        f"resuming after {earliest} without them, as failOnDataLoss is false"
    )


def begin_at_earliest(
    options: SourceOptions, destination: str, why: ClientError
) -> str:
    """Return the start of a stream whose own start is purged, if that is allowed.

    Raises PositionError unless changes may be lost.
    """
    where = f"destination {destination}: startingPosition = {options.starting_position}"
    if options.fail_on_data_loss:
        raise PositionError(
            f"{where}: {why}. Or set failOnDataLoss = false to start at `earliest`"
        ) from why
    spark_messages.SPARK_START_PURGED.log(log, where, why)
    return "earliest"


def earliest_of(channel: Channel) -> RangePosition:
    """Return the first position after which changes are available."""
    return channel.call(lambda c: c.locate(channel.destination, "earliest"))


class Size(NamedTuple):
    """The content of a range."""

    rows: int
    bytes: int  # of the binlog, or of entries in memory, as reported by the server


def cut(
    channel: Channel, options: SourceOptions, whole: Range, size: Size | None
) -> list[Range]:
    """Split a range into parts of at least `minPartitionRows`, as `partitionBy` sets.

    Packed, a part has about 64 MB of the binlog, as far as the server can split it, and
    there may be more parts than `maxPartitions`. `size` is None if it is unknown.
    Raises ClientError, also if changes of the range are lost.
    """
    most = _most(options, size)
    if most == 1 and not (options.is_packed and size is None):
        return [whole]
    if options.partition_by == KEYHASH:
        if size is None:
            most = _most(options, _size(_planned(channel, options, whole, 1)))
        return [replace(whole, keys=(number, most)) for number in range(most)]
    parts = _planned(channel, options, whole, most)
    if size is None and (requested := _most(options, _size(parts))) > most:
        parts = _planned(channel, options, whole, requested)
    found = _merged(whole, parts, options)
    # Packed, each part reports its end, even if it has no changes.
    return found or ([whole] if options.is_packed else [])


def _most(options: SourceOptions, size: Size | None) -> int:
    """Return the maximum number of tasks of a range."""
    if options.partition_by == DESTINATION:
        return 1
    if size is None:
        return options.max_partitions
    most = min(options.max_partitions, max(1, size.rows // options.min_partition_rows))
    if not options.is_packed:
        return most
    return min(PARTS_MAX, max(most, -(-size.bytes // PACKED_BYTES_MAX)))


def _size(parts: Sequence[RangePart]) -> Size:
    return Size(sum(part.rows for part in parts), sum(part.bytes for part in parts))


def parts_of_now(channel: Channel, options: SourceOptions, part: Range) -> list[Range]:
    """Return a range of a replaced source as parts of its current binlog.

    Raises ClientError if that is impossible.
    """
    return [
        Range(part.destination, each.start, each.end, keys=part.keys)
        for each in _planned(channel, options, part, 1)
    ]


def _planned(
    channel: Channel, options: SourceOptions, whole: Range, most: int
) -> Sequence[RangePart]:
    def plan(client: RangedClient) -> Sequence[RangePart]:
        return client.plan(
            whole.destination,
            options.subscription,
            whole.start,
            whole.end,
            most,
            filter=options.wire_filter,
        )

    return channel.call(plan)


def _merged(
    whole: Range, parts: Sequence[RangePart], options: SourceOptions
) -> list[Range]:
    """Return parts of at least `minPartitionRows`, except the last one."""
    ranges: list[Range] = []
    # A part of an older epoch may start elsewhere now.
    start, rows, size = parts[0].start if parts else whole.start, 0, 0
    for part in parts:
        rows += part.rows
        size += part.bytes
        is_large = options.is_packed and size >= PACKED_BYTES_MAX
        if rows >= options.min_partition_rows or is_large or part is parts[-1]:
            ranges.append(
                Range(whole.destination, start, part.end, part.commit, part.commit_ms)
            )
            start, rows, size = part.end, 0, 0
    if len(ranges) > 1:
        return [replace(each, is_cut=True) for each in ranges]
    return ranges


def pieces(
    channel: Channel, options: SourceOptions, part: Range
) -> Iterator[memoryview]:
    """Yield the entries of a range, whole entries in each piece.

    A broken connection is replaced, on another server if necessary. Pieces that were
    received already are compared and skipped: they are the same, in either form. Raises
    DecodeError for rows that cannot be decoded.
    """
    delivered = _Delivered()
    patience = channel.patience()
    wire = Wire.BINLOG if options.wire == "binlog" else Wire.ENTRY
    while True:
        before = delivered.size
        # Connects, and fails if no server is available.
        client = channel.call(lambda client: client)
        asked = wire if channel.relays else Wire.ENTRY
        reading = client.read(
            part.destination,
            options.subscription,
            part.start,
            part.end,
            filter=options.wire_filter,
            wire=asked,
        )
        answer = _Answer(reading)
        try:
            with closing(reading):
                yield from delivered.new_of(rendered(answer))
        except (OSError, ClientError) as error:
            if isinstance(error, ClientError) and error.code != NOT_HERE:
                if (error.code, asked) == (REFUSED, Wire.BINLOG) and answer.is_empty:
                    # An older server without that form, or an error that will recur.
                    channel.relays = False
                    continue
                raise
            if delivered.size > before:
                patience.renew()
            channel.leave(error)
            if not patience.wait_to_retry():
                raise
            log.info("resuming %s after %d bytes", part, delivered.size)
        else:
            return


class _Answer:
    """The pieces of one answer, and whether any were received."""

    def __init__(self, reading: Iterator[memoryview]) -> None:
        self._reading = reading
        self.is_empty = True

    def __iter__(self) -> Iterator[memoryview]:
        for piece in self._reading:
            self.is_empty = False
            yield piece


class _Delivered:
    """The delivered part of a range: the number of bytes, and their checksum."""

    def __init__(self) -> None:
        self.size = 0
        self._sum = 0

    def new_of(self, reading: Iterator[memoryview]) -> Iterator[memoryview]:
        """Yield the pieces that were not delivered yet.

        Raises ProtocolError if a repeated piece differs from the delivered one.
        """
        again, again_sum = self.size, 0
        for piece in reading:
            known = min(again, len(piece))
            if known:
                again_sum = checksum(piece[:known], again_sum)
                again -= known
                if not again and again_sum != self._sum:
                    break
            rest = piece[known:]
            if rest:
                self.size += len(rest)
                self._sum = checksum(rest, self._sum)
                yield rest
        else:
            if not again:
                return
        raise ProtocolError(
            f"a range differs when it is read again after {self.size} bytes; the task"
            " must be restarted"
        )
