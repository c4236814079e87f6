"""Reads the partitions of tables from the source, where they are not known yet.

::

    partitions of the source ──► end of its binlog ··· the stream is there ──► used

They are used once the stream has reached where the binlog ended after they were read,
if it had no statement on the table meanwhile: so they are as of that position. Leaves
out what they are for (`partitions`).
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.errors import CanalError, ConnectionLost
from canal_server.messages.mirror import mirror_stream_messages
from canal_server.mirror.rows.copy_positions import OLD_S, await_visible, latest
from canal_server.mirror.session.spark_session import table_options
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.table_shape import Partition, Partitions
from canal_server.mysql.control_connection import ControlConnection
from canal_server.runtime.backoff import Backoff
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from canal_server.mirror.follow.follower import Follower
    from canal_server.mirror.follow.micro_batches import ChangeStream
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

EVERY_S: Final = 1.0  # at most
RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 60.0

PARTITIONS: Final = """SELECT TABLE_SCHEMA, TABLE_NAME, PARTITION_METHOD,
    PARTITION_EXPRESSION, PARTITION_NAME, PARTITION_DESCRIPTION
  FROM information_schema.PARTITIONS
  WHERE PARTITION_NAME IS NOT NULL
    AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema',
      'performance_schema')
  ORDER BY TABLE_SCHEMA, TABLE_NAME, PARTITION_ORDINAL_POSITION"""


class _Found(NamedTuple):
    """Partitions of all tables, and the number of a position after they were read."""

    tables: dict[TableName, Partitions]
    at: int


class PartitionWatch:
    """Keeps partitions known; for one thread, except for the query."""

    def __init__(
        self,
        settings: MirrorSettings,
        stop: Stop,
        stream: ChangeStream,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set what is read; nothing is read yet."""
        self._settings = settings
        self._stop = stop
        self._stream = stream
        self._now = now
        self._asked: dict[TableName, tuple[Follower, int]] = {}
        self._answer: Future[_Found] | None = None
        self._found: _Found | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="partitions")
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        self._due = 0.0

    def begin(self) -> None:
        """Query now and wait for the answer, before the end of the stream is set."""
        self._ask()
        if self._answer is not None:
            wait([self._answer])
            self._collect()

    def poll(self) -> None:
        """Start a query if one is needed, or use its answer."""
        if self._answer is not None:
            if self._answer.done():
                self._collect()
        elif self._found is not None:
            feed = self._stream.feed
            if (
                feed is not None
                and version_of(feed.position) >= self._found.at
                and self._stream.joining.acquire(blocking=False)
            ):
                try:
                    self._use(self._found)
                finally:
                    self._stream.joining.release()
                self._found = None
        elif self._now() >= self._due:
            self._ask()

    def close(self) -> None:
        """End the query's thread; the stop was requested before."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _ask(self) -> None:
        known = self._stream.columns().values()
        if all(_are_known(each.partitions) for each in known):
            return
        if not self._stream.joining.acquire(blocking=False):
            return  # a batch is applied: the next turn asks
        try:
            self._asked = {
                name: (follower, follower.statements)
                for name in self._stream.tables
                if (follower := self._stream.follower(name)) is not None
                and not _are_known(follower.columns.partitions)
            }
        finally:
            self._stream.joining.release()
        self._due = self._now() + EVERY_S
        if self._asked:
            self._answer = self._pool.submit(self._query, next(iter(self._asked)))

    def _query(self, name: TableName) -> _Found:
        settings, stop = self._settings, self._stop
        options = table_options(settings, name)
        channel = Channel(options, settings.canal.destination, stop=stop)
        try:
            # What the stream has applied so far must be visible to the query: a server
            # shows a statement in its binlog first.
            if not await_visible(settings, latest(settings, channel), stop) and (
                stop.wait(OLD_S)
            ):
                raise ConnectionLost("the stop was requested")
            with ControlConnection(settings.source.access, stop) as connection:
                tables = partitions_of(connection.query(PARTITIONS))
            return _Found(tables, version_of(latest(settings, channel)))
        finally:
            channel.close()

    def _collect(self) -> None:
        assert self._answer is not None
        answer, self._answer = self._answer, None
        try:
            self._found = answer.result()
        except (CanalError, OSError) as error:
            now = self._now()
            delay_s = self._backoff.delay_s(now)
            self._due = now + delay_s
            mirror_stream_messages.MIRROR_PARTITIONS_NOT_LISTED.log(log, error, delay_s)
        else:
            self._backoff.reset()

    def _use(self, found: _Found) -> None:
        for name, (follower, statements) in self._asked.items():
            is_same = self._stream.follower(name) is follower
            if is_same and follower.statements == statements:
                follower.use_partitions(found.tables.get(name, Partitions()))


def partitions_of(rows: Iterable[tuple[object, ...]]) -> dict[TableName, Partitions]:
    """Return the partitions of tables, from rows of the source's catalog in order.

    A partition with subpartitions has several rows.
    """
    found: dict[TableName, Partitions] = {}
    for schema, table, method, expression, part, values in rows:
        name = TableName(str(schema), str(table))
        parts = found[name].parts if name in found else ()
        if not parts or parts[-1].name != str(part):
            parts += (Partition(str(part), str(values or "")),)
        found[name] = Partitions(str(method or ""), str(expression or ""), parts)
    return found


def _are_known(partitions: Partitions | None) -> bool:
    return partitions is not None and partitions.are_complete
