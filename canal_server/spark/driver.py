"""What a streaming query asks of the servers, from the process that plans its batches.

Leaves out Spark: places go in and come out, `stream` makes offsets of them. One object
lives as long as the query runs, and is called by one thread.

The server's cursor may move only to what Spark has in its commit log. Spark calls
`latestOffset` with a start that is there, and `commit` with an end that is there, so
both may be acked; the first comes when a stream is idle, too.
"""

from __future__ import annotations

import logging
import uuid
from functools import partial
from typing import TYPE_CHECKING, Final

from canal_server.client.range_client import UNKNOWN_SUBSCRIPTION
from canal_server.errors import CanalError, ClientError, PositionError
from canal_server.messages import spark_messages
from canal_server.runtime.lifecycle import Deadline
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel
from canal_server.spark.reading.range_tasks import (
    Range,
    Size,
    begin_at_earliest,
    cut,
    earliest_of,
    is_lost,
    loss,
    stepped_over,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.client.range_client import RangedClient, RangeEnds, RangePosition
    from canal_server.spark.options.source_options import SourceOptions

    Places = Mapping[str, RangePosition]

log = logging.getLogger(__name__)

TURN_MS_MAX: Final = 100  # how long one of several destinations is waited for at a time
TURN_MS_MIN: Final = 10


class StreamDriver:
    """Where a query stands in its destinations, and how far it may go."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        # Tells this query from others, that two do not take one subscription.
        self._query = uuid.uuid4().hex
        self._cursors: dict[str, RangePosition] = {}  # when they were subscribed
        self._channels = {
            name: Channel(options, name, self._greeting(name))
            for name in options.destinations
        }
        self._targets: dict[str, RangePosition] = {}  # of Trigger.AvailableNow
        self._latest: dict[str, RangePosition] = {}  # how far the servers have read
        # Of the last batch: what it holds, if it holds all from its start on.
        self._sizes: dict[tuple[str, RangePosition, RangePosition], Size] = {}
        self._losses: set[str] = set()

    def initial(self) -> Places:
        """Return where the subscriptions stand; they are made if need be.

        That stays the same until something is acked.
        """
        return {name: self._cursor(name) for name in self._options.destinations}

    def latest(
        self, start: Places, rows_max: int = 0, bytes_max: int = 0
    ) -> dict[str, RangePosition]:
        """Return how far the next batch goes; `start` is acked by that.

        Limits of 0 are none. Waits `pollTimeoutMs` for something to come, and returns
        `start` when nothing did. A destination that is new begins at its cursor, one
        that is not read any more stays where it was.
        """
        begin = dict(start) | {
            name: self._cursor(name)
            for name in self._options.destinations
            if name not in start
        }
        self._sizes.clear()
        self._losses.clear()
        limits = (rows_max, bytes_max)
        acking = self._options.ack_on == "latestOffset"
        waits = Waits(self._options)
        while True:
            ends = self._round(begin, limits, waits.next_ms(), acking=acking)
            if ends != begin:
                return ends
            if not self._targets:
                if waits.are_over():
                    return ends
            elif self._is_over(begin):
                return self._past_files(begin)
            else:
                waits.go_on_for(self._targets, self._latest)
            acking = False

    def take_targets(self) -> None:
        """Have the query end where the sources end now."""
        self._targets = {
            name: channel.call(partial(self._locate_end, name))
            for name, channel in self._channels.items()
        }

    def reported(self) -> Places | None:
        """Return how far the servers had read when they were last asked."""
        return self._latest or None

    def plan(self, start: Places, end: Places) -> list[Range]:
        """Return the parts of a batch; may be called again."""
        return [
            part
            for name in sorted(end)
            if name in self._channels
            for part in self._plan(name, start.get(name), end[name])
        ]

    def committed(self, end: Places) -> None:
        """Ack what Spark says is done. A failure is told; the next ack makes up."""
        if self._options.ack_on == "never":
            return
        for name, position in end.items():
            channel = self._channels.get(name)
            if channel is None:
                continue
            try:
                channel.call(self._acking(name, position))
            except (CanalError, OSError) as error:
                spark_messages.SPARK_ACK_FAILED.log(
                    log, name, self._options.subscription, position, error
                )

    def close(self) -> None:
        """Let go of the subscriptions."""
        for channel in self._channels.values():
            channel.close()

    # ----------------------------------------------------------------------------
    # Requests
    # ----------------------------------------------------------------------------

    def _greeting(self, name: str) -> Callable[[RangedClient], None]:
        """Return what makes sure, on a new connection, that there is a subscription."""
        options = self._options
        start = options.starting_position or "acked"

        def greet(client: RangedClient) -> None:
            subscribe = partial(
                client.subscribe, name, options.subscription, options.wire_filter
            )
            try:
                made = subscribe(start)
            except ClientError as error:
                if not is_lost(error):
                    raise
                made = subscribe(begin_at_earliest(options, name, error))
            if made.created:
                log.info(
                    "%s: subscription %s is new and begins at %s",
                    name,
                    options.subscription,
                    made.cursor,
                )
            self._cursors[name] = made.cursor

        return greet

    def _cursor(self, name: str) -> RangePosition:
        """Return the cursor of the subscription, which is asked for anew."""
        self._channels[name].close()
        self._channels[name].call(lambda client: client)  # greets
        return self._cursors[name]

    def _round(
        self,
        begin: Places,
        limits: tuple[int, int],
        wait_ms: int,
        *,
        acking: bool,
    ) -> dict[str, RangePosition]:
        """Ask each destination how far it goes, within limits for all of them."""
        ends = dict(begin)
        rows_max, bytes_max = limits
        rows = bytes_ = 0
        for name in self._options.destinations:
            if (rows_max and rows >= rows_max) or (bytes_max and bytes_ >= bytes_max):
                break
            found = self._head(
                name,
                begin[name],
                (rows_max and rows_max - rows, bytes_max and bytes_max - bytes_),
                # Where one has something, the others are not waited for.
                wait_ms if ends == begin else 0,
                acking=acking,
            )
            self._latest[name] = max(found.latest, found.end, key=version_of)
            ends[name] = end = self._clamped(name, begin[name], found.end)
            if end == found.end and name not in self._losses:
                self._sizes[name, begin[name], end] = Size(found.rows, found.bytes)
            rows += found.rows
            bytes_ += found.bytes
        return ends

    def _head(
        self,
        name: str,
        start: RangePosition,
        limits: tuple[int, int],
        wait_ms: int,
        *,
        acking: bool,
    ) -> RangeEnds:
        channel = self._channels[name]

        def ask(client: RangedClient) -> RangeEnds:
            return client.head(
                name,
                self._options.subscription,
                start,
                max_rows=limits[0],
                max_bytes=limits[1],
                wait_ms=wait_ms,
                ack=acking,
                query=self._query,
            )

        try:
            return channel.call(ask)
        except ClientError as error:
            if error.code == UNKNOWN_SUBSCRIPTION:
                # Somebody removed it; where we are is not told by it.
                self._cursor(name)
                return channel.call(ask)
            if not is_lost(error):
                raise
            start = self._after_loss(name, (start, None), error)
            acking = False  # this is no place that Spark has in its log
            return channel.call(ask)

    def _after_loss(
        self,
        name: str,
        lost: tuple[RangePosition, RangePosition | None],
        why: ClientError,
    ) -> RangePosition:
        """Return where to go on behind changes that are lost, if that is allowed."""
        earliest = earliest_of(self._channels[name])
        if self._options.fail_on_data_loss:
            raise loss(self._options, name, lost, earliest, why) from why
        spark_messages.SPARK_CHANGES_LOST.log(
            log, stepped_over(name, lost, earliest, why)
        )
        self._losses.add(name)
        return earliest

    def _clamped(
        self, name: str, start: RangePosition, end: RangePosition
    ) -> RangePosition:
        """Return an end that is not behind where the query is to end."""
        target = self._targets.get(name)
        if target is None or version_of(end) <= version_of(target):
            return end
        return max(start, target, key=version_of)

    def _is_over(self, places: Places) -> bool:
        """Tell whether nothing is left before where the query is to end."""
        return bool(self._targets) and all(
            version_of(target) <= version_of(self._latest.get(name, places[name]))
            or version_of(target) <= version_of(places[name])
            for name, target in self._targets.items()
        )

    def _past_files(self, places: Places) -> dict[str, RangePosition]:
        """Return places at the query's end, moved where a file of before has ended.

        Nothing is wanted in between, but the source may purge that file until the next
        query begins.
        """
        ends = dict(places)
        for name, target in self._targets.items():
            place = places[name]
            if place.epoch == target.epoch and place.journal != target.journal:
                ends[name] = max(place, target, key=version_of)
        return ends

    def _plan(
        self, name: str, start: RangePosition | None, end: RangePosition
    ) -> list[Range]:
        if start is None:  # it is new, and its cursor has not moved
            start = self._cursor(name)
        if start == end:
            return []
        channel = self._channels[name]
        size = self._sizes.get((name, start, end))
        try:
            return cut(channel, self._options, Range(name, start, end), size)
        except ClientError as error:
            if not is_lost(error):
                raise
            earliest = self._after_loss(name, (start, end), error)
        if version_of(earliest) >= version_of(end):
            return []
        return cut(channel, self._options, Range(name, earliest, end), None)

    def _acking(
        self, name: str, position: RangePosition
    ) -> Callable[[RangedClient], None]:
        return lambda c: c.ack(name, self._options.subscription, position)

    def _locate_end(self, name: str, client: RangedClient) -> RangePosition:
        return client.locate(name, "latest", self._options.subscription)


class Waits:
    """How long each request waits, and whether the servers come nearer to a target."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._deadline = Deadline(options.poll_timeout_ms / 1000)
        self._is_first = True
        self._seen: dict[str, RangePosition] = {}
        self._stuck = Deadline(options.retry_timeout_ms / 1000)

    def next_ms(self) -> int:
        """Return how long each destination is waited for in the next round.

        One alone is waited for as long as there is time, several in turns.
        """
        left_ms = round((self._deadline.remaining_s() or 0.0) * 1000)
        count = len(self._options.destinations)
        if count == 1:
            return left_ms
        if self._is_first:
            self._is_first = False
            return 0
        return min(left_ms, max(TURN_MS_MIN, min(TURN_MS_MAX, left_ms // count)))

    def are_over(self) -> bool:
        """Tell whether nothing is to be waited for any more."""
        return self._deadline.passed()

    def go_on_for(self, targets: Places, latest: Places) -> None:
        """Wait on, as the targets have not been read up to.

        Raises PositionError when the servers have read nothing for too long.
        """
        self._deadline = Deadline(max(TURN_MS_MAX, self._options.poll_timeout_ms) / 1e3)
        if latest != self._seen:
            self._seen = dict(latest)
            self._stuck = Deadline(self._options.retry_timeout_ms / 1000)
        elif self._stuck.passed():
            where = "; ".join(
                f"{name} is at {latest.get(name)}, wanted is {target}"
                for name, target in targets.items()
            )
            seconds = self._options.retry_timeout_ms / 1000
            raise PositionError(
                f"the server has read nothing of its source for {seconds:g} s "
                f"(retryTimeoutMs): {where}; see `canal-server status`"
            )
