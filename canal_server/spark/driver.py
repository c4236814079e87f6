"""The requests of a streaming query to the servers, from the planning process.

It is independent of Spark: positions in and out, `stream_reader` converts them to
offsets. One object lives as long as the query, and is called by one thread.

The cursor on the server may move only to positions in Spark's commit log. Spark calls
`latestOffset` with a start and `commit` with an end that are both in it, so both may be
acked; the former is also called while a stream is idle.
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
    skipped_loss,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.client.range_client import RangedClient, RangeEnds, RangePosition
    from canal_server.spark.options.source_options import SourceOptions

    Positions = Mapping[str, RangePosition]

log = logging.getLogger(__name__)

TURN_MS_MAX: Final = 100  # maximum wait per destination if there are several
TURN_MS_MIN: Final = 10


class StreamDriver:
    """The positions of a query in its destinations, and how far it may read."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        # Identifies this query, so that two queries cannot share a subscription.
        self._query = uuid.uuid4().hex
        self._cursors: dict[str, RangePosition] = {}  # at the time of subscription
        self._channels = {
            name: Channel(options, name, self._greeting(name))
            for name in options.destinations
        }
        self._targets: dict[str, RangePosition] = {}  # of Trigger.AvailableNow
        self._latest: dict[
            str, RangePosition
        ] = {}  # positions up to which the servers have read
        # For the last batch: its size, if that is known from its start on.
        self._sizes: dict[tuple[str, RangePosition, RangePosition], Size] = {}
        self._losses: set[str] = set()

    def initial(self) -> Positions:
        """Return the cursors of the subscriptions, which are created if necessary.

        The result is the same until something is acked.
        """
        return {name: self._cursor(name) for name in self._options.destinations}

    def latest(
        self, start: Positions, rows_max: int = 0, bytes_max: int = 0
    ) -> dict[str, RangePosition]:
        """Return the end of the next batch, and ack `start`.

        Limits of 0 mean none. Waits `pollTimeoutMs` for changes, and returns `start` if
        there are none. A new destination starts at its cursor; a removed one stays
        where it was.
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
                waits.continue_for(self._targets, self._latest)
            acking = False

    def take_targets(self) -> None:
        """Set the current ends of the sources as the end of the query."""
        self._targets = {
            name: channel.call(partial(self._locate_end, name))
            for name, channel in self._channels.items()
        }

    def reported(self) -> Positions | None:
        """Return the positions up to which the servers had read at the last request."""
        return self._latest or None

    def plan(self, start: Positions, end: Positions) -> list[Range]:
        """Return the parts of a batch; may be called again."""
        return [
            part
            for name in sorted(end)
            if name in self._channels
            for part in self._plan(name, start.get(name), end[name])
        ]

    def committed(self, end: Positions) -> None:
        """Ack what Spark has committed. Failures are logged; the next ack makes up."""
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
        """Release the subscriptions."""
        for channel in self._channels.values():
            channel.close()

    # ----------------------------------------------------------------------------
    # Requests
    # ----------------------------------------------------------------------------

    def _greeting(self, name: str) -> Callable[[RangedClient], None]:
        """Return a function that checks the subscription on a new connection."""
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
        """Return the current cursor of the subscription, as reported by the server."""
        self._channels[name].close()
        self._channels[name].call(lambda client: client)  # greets
        return self._cursors[name]

    def _round(
        self,
        begin: Positions,
        limits: tuple[int, int],
        wait_ms: int,
        *,
        acking: bool,
    ) -> dict[str, RangePosition]:
        """Ask each destination for the end of its batch, within common limits."""
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
                # If one destination has changes, do not wait for the others.
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
                # Somebody removed the subscription; it no longer holds our position.
                self._cursor(name)
                return channel.call(ask)
            if not is_lost(error):
                raise
            start = self._after_loss(name, (start, None), error)
            acking = False  # this position is not in Spark's log
            return channel.call(ask)

    def _after_loss(
        self,
        name: str,
        lost: tuple[RangePosition, RangePosition | None],
        why: ClientError,
    ) -> RangePosition:
        """Return where to resume after lost changes, if that is allowed."""
        earliest = earliest_of(self._channels[name])
        if self._options.fail_on_data_loss:
            raise loss(self._options, name, lost, earliest, why) from why
        spark_messages.SPARK_CHANGES_LOST.log(
            log, skipped_loss(name, lost, earliest, why)
        )
        self._losses.add(name)
        return earliest

    def _clamped(
        self, name: str, start: RangePosition, end: RangePosition
    ) -> RangePosition:
        """Return an end that is not after the end of the query."""
        target = self._targets.get(name)
        if target is None or version_of(end) <= version_of(target):
            return end
        return max(start, target, key=version_of)

    def _is_over(self, positions: Positions) -> bool:
        """Return whether nothing is left before the end of the query."""
        return bool(self._targets) and all(
            version_of(target) <= version_of(self._latest.get(name, positions[name]))
            or version_of(target) <= version_of(positions[name])
            for name, target in self._targets.items()
        )

    def _past_files(self, positions: Positions) -> dict[str, RangePosition]:
        """Return positions at the end of the query, moved past the end of a file.

        There are no matching changes in between, but the source may purge that file
        before the next query starts.
        """
        ends = dict(positions)
        for name, target in self._targets.items():
            position = positions[name]
            if position.epoch == target.epoch and position.journal != target.journal:
                ends[name] = max(position, target, key=version_of)
        return ends

    def _plan(
        self, name: str, start: RangePosition | None, end: RangePosition
    ) -> list[Range]:
        if start is None:  # a new destination, whose cursor has not moved
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
    """The time each request waits, and whether the servers get closer to a target."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._deadline = Deadline(options.poll_timeout_ms / 1000)
        self._is_first = True
        self._seen: dict[str, RangePosition] = {}
        self._stuck = Deadline(options.retry_timeout_ms / 1000)

    def next_ms(self) -> int:
        """Return how long each destination may wait in the next round.

        A single destination uses the whole time, several take turns.
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
        """Return whether there is no time left to wait."""
        return self._deadline.passed()

    def continue_for(self, targets: Positions, latest: Positions) -> None:
        """Continue to wait, because the servers have not read up to the targets.

        Raises PositionError if the servers have read nothing for too long.
        """
        self._deadline = Deadline(max(TURN_MS_MAX, self._options.poll_timeout_ms) / 1e3)
        if latest != self._seen:
            self._seen = dict(latest)
            self._stuck = Deadline(self._options.retry_timeout_ms / 1000)
        elif self._stuck.passed():
            where = "; ".join(
                f"{name} is at {latest.get(name)}, expected {target}"
                for name, target in targets.items()
            )
            seconds = self._options.retry_timeout_ms / 1000
            raise PositionError(
                f"the server has not read from its source for {seconds:g} s "
                f"(retryTimeoutMs): {where}; check `canal-server status`"
            )
