"""The stream of all tables: micro-batches of Spark, dealt out to the tables' followers.

Spark calls `take` with each micro-batch in the driver. A batch that was begun before a
crash comes again; followers know what they have of it. A table joins between two
batches, when it has come as far as the stream.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import CanalError
from canal_server.mirror.follow.follower import (
    CopyNeededError,
    TableDroppedError,
    TableStoppedError,
    committed_ms,
    is_about,
)
from canal_server.mirror.follow.table_faults import fault_of
from canal_server.mirror.follow.table_statements import is_moved_beside
from canal_server.mirror.state.lake_tables import OtherCopyError, UnusableTableError
from canal_server.mirror.state.xa import PreparedXa, is_of_xa
from canal_server.spark.options.offsets import offset_to_json, version_of
from canal_server.spark.packed.packed_rows import PART, STATEMENT, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.follow.follower import Columns, Follower
    from canal_server.mirror.follow.reread import Rereading
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.feed import Feed
    from canal_server.mirror.state.xa import Seqs
    from canal_server.spark.packed.packed_rows import Packed

log = logging.getLogger(__name__)

PLACE_NOTE: Final = "canal.place"  # of a commit: where it is in the binlog
HELD_BYTES_MAX: Final = 64 << 20  # of runs of rows, compressed, before they are written
UNUSABLE_TRIES: Final = 3  # of a batch, before the table that it fails for is left

_LEAVING: Final = (
    CopyNeededError,
    TableStoppedError,
    TableDroppedError,
    OtherCopyError,
)


class StreamClosedError(CanalError):
    """A batch came when none is taken any more."""


class GapError(CanalError):
    """A batch does not follow on from what the lake has."""


@dataclass(slots=True)
class BatchReport:
    """What came of a micro-batch."""

    number: int
    end: RangePosition | None
    rows: int = 0  # that were written to the lake
    came: int = 0  # rows of all tables
    seconds: float = 0.0
    newest_ms: int = 0  # when the last of its changes was committed
    written: dict[TableName, int] = field(default_factory=dict)
    feed: Feed | None = None  # where the stream is with it


class ChangeStream:
    """Takes micro-batches; for Spark's thread, but for `joining` and what it guards."""

    def __init__(
        self,
        destination: str,
        at_once: int,
        *,
        parts_max: int,
        on_statement: Callable[[Packed], None],
        on_left: Callable[[TableName, CanalError], None],
        on_batch: Callable[[BatchReport], None],
    ) -> None:
        """Deal out to so many tables at once, batches of so many parts in one job.

        `on_statement` gets statements about tables that are not followed, `on_left`
        a table that is not followed any more, and why (TableFaultError for what nobody
        expected, UnusableTableError for what it met several times); both while no
        batch ends. What they raise ends the batch, which comes
        again.
        """
        self._destination = destination
        self._at_once = at_once
        self._parts_max = parts_max
        self._on_statement = on_statement
        self._on_left = on_left
        self._on_batch = on_batch
        self._followers: dict[TableName, Follower] = {}
        self.joining = threading.Lock()  # held while a batch is taken
        self.feed: Feed | None = None  # where the lake is; set before it is opened
        self.gap = ""  # why no batch is taken any more, if one did not follow on
        self._query = ""  # the checkpoint's identity: batches are numbered in it
        self._is_open = False
        self.rereading: Rereading | None = None  # set before there are tables
        self.statements = 0  # that came, so that others see when there are more
        self._unusable: Counter[TableName] = Counter()  # times in a row
        self._moved: Seqs = {}  # as in the feed, with the batch that is not noted yet

    # --------------------------------------------------------------------------------
    # Tables
    # --------------------------------------------------------------------------------

    def join(self, follower: Follower) -> None:
        """Have a table's changes go to its follower; `joining` is held."""
        self._followers[follower.table.source] = follower
        if self.rereading is not None:
            self.rereading.joined(follower.table.source)
        self._unusable.pop(follower.table.source, None)

    def leave(self, name: TableName) -> Follower | None:
        """Follow a table no more; `joining` is held."""
        return self._followers.pop(name, None)

    def follower(self, name: TableName) -> Follower | None:
        """Return who follows for a table; `joining` is held while it is used."""
        return self._followers.get(name)

    def is_moved_since(self, name: TableName, begun: int) -> bool:
        """Tell whether a statement on another table moved rows of this one.

        That is behind the number of a place. Who reads the table alone is not told.
        """
        noted = {} if self.feed is None else self.feed.moved
        return max(self._moved.get(name, -1), noted.get(name, -1)) >= begun

    def columns(self) -> dict[TableName, Columns]:
        """Return the columns that followed tables have where the stream is."""
        # As it is at one moment: another thread may have a table join.
        return {name: each.columns for name, each in list(self._followers.items())}

    @property
    def tables(self) -> list[TableName]:
        """The tables that are followed."""
        return list(self._followers)

    def open(self, query: str) -> None:
        """Take batches of a query from now on; `joining` is held."""
        self._query, self._is_open = query, True
        if self.feed is not None and self.feed.query != query:
            # Batches have other names now: a table that is ahead is not told by them.
            for follower in self._followers.values():
                follower.is_ahead = follower.applied > version_of(self.feed.place)

    def close(self) -> None:
        """Take no batch any more; one that is being taken is ended first."""
        with self.joining:
            self._is_open = False

    # --------------------------------------------------------------------------------
    # Batches
    # --------------------------------------------------------------------------------

    def take(self, frame: Any, number: int) -> None:
        """Bring a micro-batch into the lake: what `foreachBatch` calls.

        Raises CanalError where the lake or the source fails as a whole.
        """
        begun = time.monotonic()
        report = BatchReport(number, None)
        with self.joining, ThreadPoolExecutor(self._at_once) as pool:
            if not self._is_open:
                raise StreamClosedError("the mirror stops; the batch comes again")
            self._begin(f"{self._query}/{number}")
            rereading = self._rereads()
            held: dict[TableName, list[Packed]] = {}
            size = 0
            part: Packed | None = None
            told: dict[TableName, Packed] = {}  # the parts that followers know of
            xa = PreparedXa() if self.feed is None else self.feed.xa.copy()
            moved = dict(self._moved if self.feed is None else self.feed.moved)
            for item in self._items(frame, report):
                if item.kind == PART:
                    part = item
                    continue
                self._note(item, moved, rereading)
                for name in self._concerned(item, xa):
                    items = held.setdefault(name, [])
                    if part is not None and told.get(name) is not part:
                        told[name] = part
                        items.append(part)
                    items.append(item)
                size += item.arrow.size if item.arrow is not None else 0
                if size >= HELD_BYTES_MAX:
                    self._write(pool, held, report, None)
                    held, size = {}, 0
            assert report.end is not None or not report.came, "each task has a part"
            self._end(pool, held, report, rereading)
            if self.feed is not None and report.end is not None:
                place, query = report.end, self._query
                report.feed = replace(
                    self.feed,
                    place=place,
                    query=query,
                    batch=number,
                    xa=xa,
                    moved=moved,
                )
            # Before another table may join, which is later than any batch can be noted.
            self._moved = moved
        report.seconds = time.monotonic() - begun
        self._on_batch(report)
        self.feed = report.feed or self.feed

    def _note(self, item: Packed, moved: Seqs, rereading: Rereading | None) -> None:
        """Take note of what else a change means than rows of its table."""
        if rereading is not None:
            rereading.take(item)
        if is_moved(item):
            moved[item.table] = max(item.seq, moved.get(item.table, 0))

    def _end(
        self,
        pool: ThreadPoolExecutor,
        held: dict[TableName, list[Packed]],
        report: BatchReport,
        rereading: Rereading | None,
    ) -> None:
        """Write what is left of a batch, and what foreign keys changed besides."""
        if rereading is None:
            self._write(pool, held, report, report.end)
            return
        self._write(pool, held, report, None)
        rereading.find()  # while the lake has what was before
        self._write(pool, {}, report, report.end)
        if report.end is not None:
            self._settle(rereading, report.end)
        self._count(report)

    def _settle(self, rereading: Rereading, end: RangePosition) -> None:
        for name, why in rereading.settle(end).items():
            self._leave(name, why)

    def settle(self) -> None:
        """Read rows again that wait for it, unless a batch is taken now.

        Raises what the lake raises.
        """
        rereading = self.rereading
        if rereading is None or not rereading.has_suspects or self.feed is None:
            return
        if not self.joining.acquire(blocking=False):
            return  # the batch does it
        try:
            rereading.begin()
            rereading.find()
            self._settle(rereading, self.feed.place)
        finally:
            self.joining.release()

    def _rereads(self) -> Rereading | None:
        """Return who reads rows again in the batch that begins, if that is wanted."""
        rereading = self.rereading
        if rereading is None or not rereading.is_active:
            return None
        rereading.begin()
        return rereading

    def _count(self, report: BatchReport) -> None:
        """Count rows that followers wrote."""
        for name, follower in self._followers.items():
            if follower.rows:
                report.rows += follower.rows
                report.written[name] = report.written.get(name, 0) + follower.rows
                follower.rows = 0

    def _begin(self, batch: str) -> None:
        """Have followers look whether they have a batch; some may leave for that."""
        for name, follower in list(self._followers.items()):
            try:
                follower.begin(batch)
            except BaseException as error:
                fault = self._fault_of(name, error)
                if fault is None:
                    raise
                self._leave(name, fault)

    def _leave(self, name: TableName, why: CanalError) -> None:
        # Noted first: else it would be followed on after what it missed.
        self._on_left(name, why)
        del self._followers[name]
        self._unusable.pop(name, None)

    def _concerned(self, item: Packed, xa: PreparedXa) -> list[TableName]:
        """Return the tables that are to get an item; tells of statements for none."""
        rolled_back = xa.take(item)
        self.statements += item.kind == STATEMENT
        if is_of_xa(item):
            return [
                name
                for name, seq in rolled_back.items()
                if name in self._followers and seq >= self._followers[name].begun
            ]
        followed = self._followed(item)
        if not followed and item.kind == STATEMENT:
            self._on_statement(item)
        return followed

    def _followed(self, item: Packed) -> list[TableName]:
        """Return the tables that are followed and that an item is about."""
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
            report.came += item.count
            report.newest_ms = max(report.newest_ms, committed_ms(item))
            yield item

    def _check_follows_on(self, number: int, first: Packed) -> None:
        """Raise GapError for a batch that leaves out what tables have to have."""
        feed, start = self.feed, first.start[self._destination]
        if feed is None or feed.follows_on(self._query, number, start):
            return
        self.gap = (
            f"the stream would go on at {start}, and what is in the lake goes up to "
            f"{feed.place}: what was changed in between would be missing"
        )
        raise GapError(self.gap)

    def _check_same_binlog(self, end: RangePosition) -> None:
        """Raise GapError for changes of a database that took another one's place."""
        feed = self.feed
        if feed is None or not feed.is_in_another(end):
            return
        self.gap = (
            f"the stream would go on up to {end}, and what is in the lake goes up to "
            f"{feed.place}, a place of another binlog: the source was replaced, or its "
            "binlog begun anew, and canal-server does not know since when; what was "
            "changed in between would be missing"
        )
        raise GapError(self.gap)

    def _rows(self, frame: Any) -> Iterator[Any]:
        if frame.rdd.getNumPartitions() > self._parts_max:
            # A transaction that is larger than any batch: one job for each part.
            yield from frame.toLocalIterator()
            return
        # One job, so that all cores read. What it holds, the limits of a batch limit.
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
        """Have followers take what is held for them; at a batch's end, all of them."""
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
        """Have a follower take items; returns why its table leaves, if it does."""
        follower = self._followers[name]
        try:
            for item in items:
                follower.feed(item, note)
            if upto is not None:
                follower.flush(upto, note, ends_batch=True)
        except _LEAVING as error:
            follower.drop_gathered()
            return error
        except BaseException as error:
            follower.drop_gathered()
            fault = self._fault_of(name, error)
            if fault is None:
                raise
            return fault
        if upto is not None:
            self._unusable.pop(name, None)
        return None

    def _fault_of(self, name: TableName, error: BaseException) -> CanalError | None:
        """Return why a table leaves for an error; None where the batch fails for it."""
        if not isinstance(error, UnusableTableError):
            return fault_of(error)
        self._unusable[name] += 1
        return error if self._unusable[name] >= UNUSABLE_TRIES else None


def is_moved(item: Packed) -> bool:
    """Tell whether a statement on another table moves rows of the item's."""
    return (
        item.kind == STATEMENT
        and item.is_ddl
        and is_moved_beside(item.sql, item.table, item.table.schema)
    )


def note_of(place: RangePosition | None, destination: str) -> dict[str, str]:
    """Return what a commit of the lake says about its place in the binlog."""
    if place is None:
        return {}
    return {PLACE_NOTE: json.dumps(offset_to_json({destination: place}))}
