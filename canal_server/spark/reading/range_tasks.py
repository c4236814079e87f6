"""Ranges of a destination: cut into parts for tasks, and read by them.

Everything here may be done any number of times, in any process, with the same result.
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

# Of a part whose rows are all held where they are written; a transaction may have more
# than a batch is to have.
PACKED_BYTES_MAX: Final = 64 << 20
_NOWHERE: Final = RangePosition()
_BEGIN_ANEW: Final = ". Load what is missing anew"


class LossError(PositionError):
    """Changes are not in the source's binlog any more."""


@dataclass(frozen=True, slots=True)
class Range:
    """What one task reads of one destination.

    `commit` is where a transaction ends that the range ends inside of, and
    `commit_ms` when it did. `is_cut`: other tasks read the rest of a batch. Where rows
    are dealt out by key, several tasks have the same range, and `keys` is which of them
    this is, and how many they are.
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
    """Tell whether a refusal says that changes are not to be had any more."""
    return error.code in (OTHER_EPOCH, PURGED)


def loss(
    options: SourceOptions,
    destination: str,
    lost: tuple[RangePosition, RangePosition | None],
    earliest: RangePosition,
    why: object,
) -> LossError:
    """Return the error that tells of changes between two positions that are gone."""
    name = f"subscription {options.subscription} of " if options.subscription else ""
    start, end = lost
    until = f" up to {end}" if end else ""
    return LossError(
        f"{name}destination {destination}: changes behind {start}{until} cannot be "
        f"read any more ({why}); the earliest that can are behind {earliest}"
        f"{_BEGIN_ANEW} and begin with a new checkpoint and a new "
        "subscription, or set failOnDataLoss = false to go on from there without them"
    )


def told_of_loss(text: str) -> str:
    """Return what `loss` tells without its remedies, which are those of the source."""
    return text.partition(_BEGIN_ANEW)[0]


def stepped_over(
    destination: str,
    lost: tuple[RangePosition, RangePosition | None],
    earliest: RangePosition,
    why: object,
) -> str:
    """Return what tells of changes that are gone where the query may go on."""
    start, end = lost
    until = f" up to {end}" if end else ""
    return (
        f"destination {destination}: changes behind {start}{until} are lost ({why}); "
        f"going on behind {earliest} without them, as failOnDataLoss is false"
    )


def begin_at_earliest(
    options: SourceOptions, destination: str, why: ClientError
) -> str:
    """Return the start of a stream whose own is gone from the binlog, if it may be.

    Raises PositionError unless changes may be lost.
    """
    told = f"destination {destination}: startingPosition = {options.starting_position}"
    if options.fail_on_data_loss:
        raise PositionError(
            f"{told}: {why}. Or set failOnDataLoss = false to begin at `earliest`"
        ) from why
    spark_messages.SPARK_START_PURGED.log(log, told, why)
    return "earliest"


def earliest_of(channel: Channel) -> RangePosition:
    """Return the first position behind which changes can be read."""
    return channel.call(lambda c: c.locate(channel.destination, "earliest"))


class Size(NamedTuple):
    """What a range holds."""

    rows: int
    bytes: int  # of the binlog, or of entries in memory, as the server told


def cut(
    channel: Channel, options: SourceOptions, whole: Range, size: Size | None
) -> list[Range]:
    """Cut a range into parts of `minPartitionRows` or more, as `partitionBy` says.

    Packed, a part has about 64 MB of the binlog, as far as the server can cut it, and
    there may be more parts than `maxPartitions`. `size` is None where it is not known.
    Raises ClientError, also when changes of it are lost.
    """
    most = _most(options, size)
    if most == 1 and not (options.is_packed and size is None):
        return [whole]
    if options.partition_by == KEYHASH:
        if size is None:
            most = _most(options, _size(_planned(channel, options, whole, 1)))
        return [replace(whole, keys=(number, most)) for number in range(most)]
    parts = _planned(channel, options, whole, most)
    if size is None and (wanted := _most(options, _size(parts))) > most:
        parts = _planned(channel, options, whole, wanted)
    found = _merged(whole, parts, options)
    # Packed, a batch tells how far it reaches, also where nothing is in it.
    return found or ([whole] if options.is_packed else [])


def _most(options: SourceOptions, size: Size | None) -> int:
    """Return how many tasks a range may have."""
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
    """Return a range whose source was replaced as what it is in the binlog of now.

    Raises ClientError where that cannot be told.
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
    """Return parts of `minPartitionRows` at least, the last one excepted."""
    ranges: list[Range] = []
    # Of an older epoch it may begin elsewhere now.
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
    """Yield the entries of a range, whole ones in each piece.

    A connection that breaks is opened anew, on another server if need be, and what
    came already is stepped over, after a look whether it is the same: it is, in
    whichever form it comes. Raises DecodeError for rows that cannot be read.
    """
    taken = _Taken()
    patience = channel.patience()
    wire = Wire.BINLOG if options.wire == "binlog" else Wire.ENTRY
    while True:
        before = taken.size
        # Connects, and fails when no server can be had.
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
                yield from taken.new_of(rendered(answer))
        except (OSError, ClientError) as error:
            if isinstance(error, ClientError) and error.code != NOT_HERE:
                if (error.code, asked) == (REFUSED, Wire.BINLOG) and answer.is_empty:
                    # A server of before that form, or another reason, told again then.
                    channel.relays = False
                    continue
                raise
            if taken.size > before:
                patience.renew()
            channel.leave(error)
            if not patience.bear():
                raise
            log.info("reading %s on behind %d bytes", part, taken.size)
        else:
            return


class _Answer:
    """The pieces of one answer, and whether any of them came."""

    def __init__(self, reading: Iterator[memoryview]) -> None:
        self._reading = reading
        self.is_empty = True

    def __iter__(self) -> Iterator[memoryview]:
        for piece in self._reading:
            self.is_empty = False
            yield piece


class _Taken:
    """What of a range has been handed on: how many bytes, and their checksum."""

    def __init__(self) -> None:
        self.size = 0
        self._sum = 0

    def new_of(self, reading: Iterator[memoryview]) -> Iterator[memoryview]:
        """Yield what was not taken yet.

        Raises ProtocolError when what comes again is not what was taken.
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
            f"a range was read again after {self.size} bytes and is not the same; "
            "the task has to be done anew"
        )
