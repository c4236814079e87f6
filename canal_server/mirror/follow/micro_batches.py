"""The stream of all tables: distributes micro-batches of Spark to tables' followers.

Spark calls `apply` with each micro-batch in the driver. A batch that was started before
a crash is delivered again; followers know what they have of it. A table joins between
two batches, when it has caught up with the stream.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import CanalError
from canal_server.mirror.ddl.table_statements import moves_rows_of
from canal_server.mirror.follow.exchanges import Exchanging, exchange_of
from canal_server.mirror.follow.follower import (
    committed_ms,
    is_about,
)
from canal_server.mirror.follow.leaving import (
    CopyNeededError,
    TableDroppedError,
    TableStoppedError,
)
from canal_server.mirror.follow.table_faults import fault_of
from canal_server.mirror.state.lake_tables import OtherCopyError, UnusableTableError
from canal_server.mirror.state.xa import PreparedXa, is_of_xa
from canal_server.spark.options.offsets import offset_to_json, version_of
from canal_server.spark.packed.packed_rows import PART, STATEMENT, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.follow.exchanges import Exchange
    from canal_server.mirror.follow.follower import Follower
    from canal_server.mirror.follow.reread import Rereading
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.feed import Feed
    from canal_server.mirror.state.table_shape import Columns
    from canal_server.mirror.state.xa import Seqs
    from canal_server.spark.packed.packed_rows import Packed

log = logging.getLogger(__name__)

POSITION_NOTE: Final = "canal.place"  # in a commit's note: its position in the binlog
HELD_BYTES_MAX: Final = 64 << 20  # of compressed runs of rows, before they are written
UNUSABLE_TRIES: Final = 3  # of a batch, before the table that fails leaves the stream

_LEAVING: Final = (
    CopyNeededError,
    TableStoppedError,
    TableDroppedError,
    OtherCopyError,
)


class StreamClosedError(CanalError):
    """A batch arrived after the stream was closed."""


class GapError(CanalError):
    """A batch leaves a gap after the lake's position."""


@dataclass(slots=True)
class BatchReport:
    """The result of a micro-batch."""

    number: int
    end: RangePosition | None
    rows: int = 0  # written to the lake
    received: int = 0  # received rows, of all tables
    seconds: float = 0.0
    newest_ms: int = 0  # commit time of its last change
    written: dict[TableName, int] = field(default_factory=dict)
    newest: dict[TableName, int] = field(default_factory=dict)  # as above, by table
    feed: Feed | None = None  # the stream's state after it


class ChangeStream:
    """Applies micro-batches, on Spark's thread, except `joining` and what it guards."""

    def __init__(
        self,
        destination: str,
        at_once: int,
        *,
        parts_max: int,
        on_statement: Callable[[Packed], None],
        on_leave: Callable[[TableName, CanalError], None],
        on_batch: Callable[[BatchReport], None],
    ) -> None:
        """Write `tables_at_once` tables at a time, read `parts_max` parts in one job.

        `on_statement` gets statements about tables that are not followed. `on_leave`
        gets a table that leaves the stream, and the reason (TableFaultError for an
        unexpected error, UnusableTableError for one that was met several times). Both
        are called within a batch. What they raise ends the batch, which is delivered
        again.
        """
        self._destination = destination
        self._at_once = at_once
        self._parts_max = parts_max
        self._on_statement = on_statement
        self._on_leave = on_leave
        self._on_batch = on_batch
        self._followers: dict[TableName, Follower] = {}
        self.joining = threading.Lock()  # held while a batch is applied
        self.feed: Feed | None = None  # the lake's position; set before `open`
        self.gap = ""  # why no further batch is applied, after one with a gap
        self._query = ""  # the checkpoint's identity, which numbers batches
        self._is_open = False
        self.rereading: Rereading | None = None  # set before tables join
        self.statements = 0  # counter, so that others notice new statements
        self._unusable: Counter[TableName] = Counter()  # failures in a row
        self._batch = ""  # that is applied now
        self._moved: Seqs = {}  # as in the feed, plus the batch that is not stored yet

    # --------------------------------------------------------------------------------
    # Tables
    # --------------------------------------------------------------------------------

    def join(self, follower: Follower) -> None:
        """Deliver a table's changes to its follower; `joining` is held.

        During a batch, it gets those that follow in it.
        """
        if self._batch:
            follower.begin(self._batch)
        self._followers[follower.table.source] = follower
        if self.rereading is not None:
            self.rereading.joined(follower.table.source)
        self._unusable.pop(follower.table.source, None)

    def leave(self, name: TableName) -> Follower | None:
        """Stop following a table; `joining` is held."""
        return self._followers.pop(name, None)

    def follower(self, name: TableName) -> Follower | None:
        """Return a table's follower; `joining` is held while it is used."""
        return self._followers.get(name)

    def is_moved_since(self, name: TableName, copied_at: int) -> bool:
        """Check whether a statement on another table moved rows of this one.

        It concerns statements after a position number, which a reader of this table
        alone does not see.
        """
        noted = {} if self.feed is None else self.feed.moved
        return max(self._moved.get(name, -1), noted.get(name, -1)) >= copied_at

    def columns(self) -> dict[TableName, Columns]:
        """Return the columns of followed tables, as of the stream's position."""
        # A snapshot, as another thread may add a table.
        return {name: each.columns for name, each in list(self._followers.items())}

    @property
    def tables(self) -> list[TableName]:
        """The followed tables."""
        return list(self._followers)

    def open(self, query: str) -> None:
        """Apply batches of a query from now on; `joining` is held."""
        self._query, self._is_open = query, True
        if self.feed is not None and self.feed.query != query:
            # Batches have new names, which do not identify a table that is ahead.
            for follower in self._followers.values():
                follower.is_ahead = follower.applied > version_of(self.feed.position)

    def close(self) -> None:
        """Apply no further batch, after the current one has ended."""
        with self.joining:
            self._is_open = False

    # --------------------------------------------------------------------------------
    # Batches
    # --------------------------------------------------------------------------------

    def apply(self, frame: Any, number: int) -> None:
        """Apply a micro-batch to the lake; `foreachBatch` calls this.

        Raises CanalError if the lake or the source fails as a whole.
        """
        started = time.monotonic()
        report = BatchReport(number, None)
        with (
            self.joining,
            ThreadPoolExecutor(self._at_once) as pool,
            ExitStack() as stack,
        ):
            if not self._is_open:
                raise StreamClosedError(
                    "the mirror is stopping; the batch will be delivered again"
                )
            self._batch = f"{self._query}/{number}"
            stack.callback(self._end_batch)
            self._begin(self._batch)
            rereading = self._rereads()
            held: dict[TableName, list[Packed]] = {}
            size = 0
            part: Packed | None = None
            last: Packed | None = None
            informed: dict[
                TableName, Packed
            ] = {}  # the parts that followers were informed of
            xa = PreparedXa() if self.feed is None else self.feed.xa.copy()
            moved = dict(self._moved if self.feed is None else self.feed.moved)
            for item in self._items(frame, report):
                if item.kind == PART:
                    part = item
                    continue
                self._note(item, moved, rereading)
                committed = committed_ms(item)
                for name in self._concerned(item, xa):
                    report.newest[name] = max(report.newest.get(name, 0), committed)
                    items = held.setdefault(name, [])
                    if part is not None and informed.get(name) is not part:
                        informed[name] = part
                        items.append(part)
                    items.append(item)
                pair, last = exchange_of(last, item), item
                if pair is not None:
                    for each in self._followed_of(pair):
                        held[each.table].pop()
                    self._write(pool, held, report, None)
                    held, size = self._exchanged(pair, report), 0
                size += item.arrow.size if item.arrow is not None else 0
                if size >= HELD_BYTES_MAX:
                    self._write(pool, held, report, None)
                    held, size = {}, 0
            assert report.end is not None or not report.received, "each task has a part"
            self._end(pool, held, report, rereading)
            if self.feed is not None and report.end is not None:
                position, query = report.end, self._query
                report.feed = replace(
                    self.feed,
                    position=position,
                    query=query,
                    batch=number,
                    xa=xa,
                    moved=moved,
                )
            # Set before another table may join, that is, before the batch is stored.
            self._moved = moved
        report.seconds = time.monotonic() - started
        self._on_batch(report)
        self.feed = report.feed or self.feed

    def _end_batch(self) -> None:
        self._batch = ""

    def _followed_of(self, pair: Exchange) -> list[Packed]:
        return [each for each in pair.items if each.table in self._followers]

    def _exchanged(
        self, pair: Exchange, report: BatchReport
    ) -> dict[TableName, list[Packed]]:
        """Let two tables exchange rows, after everything before is written.

        Returns the items that have to be passed to followers as if there were no such
        exchange.
        """
        again = self._followed_of(pair)
        why = "only one of the tables follows the stream"
        if len(again) == len(pair.items):
            why, again = self._exchange(pair, report), self._followed_of(pair)
        if not why:
            # A table that became a partition is dropped now.
            again = [each for each in again if each is pair.other and not each.columns]
        for each in again:
            self._followers[each.table].doubt = why
        return {each.table: [each] for each in again}

    def _exchange(self, pair: Exchange, report: BatchReport) -> str:
        """Exchange the rows of two tables; returns why not, if that is not certain."""
        partitioned, other = (each.table for each in pair.items)
        sides = self._followers[partitioned], self._followers[other]
        work = Exchanging(pair, *sides, note_of(report.end, self._destination))
        has_left = self._is_left(partitioned, work.begin_partitioned)
        if self._is_left(other, work.begin_other) or has_left:
            return "the other table has left the stream"
        if why := work.find():
            return why
        self._is_left(partitioned, work.finish_partitioned)
        self._is_left(other, work.finish_other)
        return ""

    def _is_left(self, name: TableName, step: Callable[[], None]) -> bool:
        """Take a step of a table; returns whether it has left the stream for that."""
        problem = self._tried(name, step)
        if problem is not None:
            self._leave(name, problem)
        return problem is not None

    def _note(self, item: Packed, moved: Seqs, rereading: Rereading | None) -> None:
        """Record what a change means beyond the rows of its table."""
        if rereading is not None:
            rereading.accept(item)
        if is_moved(item):
            moved[item.table] = max(item.seq, moved.get(item.table, 0))

    def _end(
        self,
        pool: ThreadPoolExecutor,
        held: dict[TableName, list[Packed]],
        report: BatchReport,
        rereading: Rereading | None,
    ) -> None:
        """Write the rest of a batch, and the rows that foreign keys changed."""
        if rereading is None:
            self._write(pool, held, report, report.end)
            return
        self._write(pool, held, report, None)
        rereading.find()  # while the lake has the old values
        self._write(pool, {}, report, report.end)
        if report.end is not None:
            self._settle(rereading, report.end)
        self._count(report)

    def _settle(self, rereading: Rereading, end: RangePosition) -> None:
        for name, why in rereading.settle(end).items():
            self._leave(name, why)

    def settle(self) -> None:
        """Read waiting rows again, unless a batch is being applied now.

        Raises what the lake raises.
        """
        rereading = self.rereading
        if rereading is None or not rereading.has_suspects or self.feed is None:
            return
        if not self.joining.acquire(blocking=False):
            return  # the batch does this
        try:
            rereading.begin()
            rereading.find()
            self._settle(rereading, self.feed.position)
        finally:
            self.joining.release()

    def _rereads(self) -> Rereading | None:
        """Return what reads rows again in the starting batch, if this is needed."""
        rereading = self.rereading
        if rereading is None or not rereading.is_active:
            return None
        rereading.begin()
        return rereading

    def _count(self, report: BatchReport) -> None:
        """Count the rows that followers wrote."""
        for name, follower in self._followers.items():
            if follower.rows:
                report.rows += follower.rows
                report.written[name] = report.written.get(name, 0) + follower.rows
                follower.rows = 0

    def _begin(self, batch: str) -> None:
        """Let followers check whether they have a batch; some may leave the stream."""
        for name, follower in list(self._followers.items()):
            try:
                follower.begin(batch)
            except BaseException as error:
                fault = self._fault_of(name, error)
                if fault is None:
                    raise
                self._leave(name, fault)

    def _leave(self, name: TableName, why: CanalError) -> None:
        # Stored first: otherwise it would follow the stream with a gap.
        self._on_leave(name, why)
        del self._followers[name]
        self._unusable.pop(name, None)

    def _concerned(self, item: Packed, xa: PreparedXa) -> list[TableName]:
        """Return the tables that get an item; reports statements for other tables."""
        rolled_back = xa.accept(item)
        self.statements += item.kind == STATEMENT
        if is_of_xa(item):
            return [
                name
                for name, seq in rolled_back.items()
                if name in self._followers and seq >= self._followers[name].copied_at
            ]
        followed = self._followed(item)
        if not followed and item.kind == STATEMENT:
            self._on_statement(item)
        return followed

    def _followed(self, item: Packed) -> list[TableName]:
        """Return the followed tables that an item concerns."""
        if item.table.table:
            return [item.table] if item.table in self._followers else []
        return [name for name in self._followers if is_about(item, name)]

    def _items(self, frame: Any, report: BatchReport) -> Iterator[Packed]:
        """Yield the items of a batch in the order of the binlog."""
        for row in self._rows(frame):
            (item,) = unpack([row])
            if item.kind == PART:
                end = item.end[self._destination]
                if report.end is None:
                    self._check_follows_on(report.number, item)
                self._check_same_binlog(end)
                if report.end is None or version_of(end) > version_of(report.end):
                    report.end = end
            report.received += item.count
            report.newest_ms = max(report.newest_ms, committed_ms(item))
            yield item

    def _check_follows_on(self, number: int, first: Packed) -> None:
        """Raise GapError for a batch that omits changes that tables need."""
        feed, start = self.feed, first.start[self._destination]
        if feed is None or feed.follows_on(self._query, number, start):
            return
        self.gap = (
            f"the stream would continue at {start}, but the lake ends at "
            f"{feed.position}: the changes in between would be missing"
        )
        raise GapError(self.gap)

    def _check_same_binlog(self, end: RangePosition) -> None:
        """Raise GapError for changes of a database that replaced another one."""
        feed = self.feed
        if feed is None or not feed.is_in_another(end):
            return
        self.gap = (
            f"the stream would continue up to {end}, but the lake ends at "
            f"{feed.position} of another binlog: the source was replaced or its binlog "
            "was reset at a time that canal-server does not know, so changes in "
            "between would be missing"
        )
        raise GapError(self.gap)

    def _rows(self, frame: Any) -> Iterator[Any]:
        if frame.rdd.getNumPartitions() > self._parts_max:
            # A transaction that is larger than any batch: one job per part.
            yield from frame.toLocalIterator()
            return
        # One job, so that all cores read. The limits of a batch bound its memory.
        rows = frame.collect()
        rows.reverse()
        while rows:
            yield rows.pop()

    def _write(
        self,
        pool: ThreadPoolExecutor,
        held: dict[TableName, list[Packed]],
        report: BatchReport,
        end: RangePosition | None,
    ) -> None:
        """Pass held items to followers; at the end of a batch, to all of them."""
        note = note_of(report.end, self._destination)
        upto = None if end is None else version_of(end)
        names = list(self._followers) if end is not None else list(held)

        def write(name: TableName) -> CanalError | None:
            return self._write_to(name, held.get(name, ()), note, upto)

        for name, problem in zip(names, pool.map(write, names), strict=True):
            follower = self._followers[name]
            if follower.rows:
                report.rows += follower.rows
                report.written[name] = report.written.get(name, 0) + follower.rows
                follower.rows = 0
            if problem is not None:
                self._leave(name, problem)

    def _write_to(
        self,
        name: TableName,
        items: Iterable[Packed],
        note: dict[str, str],
        upto: int | None,
    ) -> CanalError | None:
        """Pass items to a follower; returns why its table leaves, if it does."""
        follower = self._followers[name]

        def write() -> None:
            for item in items:
                follower.feed(item, note)
            if upto is not None:
                follower.flush(upto, note, ends_batch=True)

        problem = self._tried(name, write)
        if problem is None and upto is not None:
            self._unusable.pop(name, None)
        return problem

    def _tried(self, name: TableName, step: Callable[[], None]) -> CanalError | None:
        """Take a step of a table; returns why it leaves, if it does."""
        try:
            step()
        except _LEAVING as error:
            self._followers[name].drop_gathered()
            return error
        except BaseException as error:
            self._followers[name].drop_gathered()
            fault = self._fault_of(name, error)
            if fault is None:
                raise
            return fault
        return None

    def _fault_of(self, name: TableName, error: BaseException) -> CanalError | None:
        """Return why a table leaves after an error; None if the batch fails instead."""
        if not isinstance(error, UnusableTableError):
            return fault_of(error)
        self._unusable[name] += 1
        return error if self._unusable[name] >= UNUSABLE_TRIES else None


def is_moved(item: Packed) -> bool:
    """Check whether a statement on another table moves rows of the item's table."""
    return (
        item.kind == STATEMENT
        and item.is_ddl
        and moves_rows_of(item.sql, item.table, item.table.schema)
    )


def note_of(position: RangePosition | None, destination: str) -> dict[str, str]:
    """Return the note of a commit with its position in the binlog."""
    if position is None:
        return {}
    return {POSITION_NOTE: json.dumps(offset_to_json({destination: position}))}
