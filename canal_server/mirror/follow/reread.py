"""Rows that foreign keys change without an event, read again from the source.

::

    batch ──► removed or changed keys of parents ──► find ──► children's keys
                                                                   │ suspects
    lake ◄── corrections ◄── current rows ◄── settle ◄─────────────┘

A row of a child is stale if a foreign key changed it after its last event. What it
refers to in the lake then is what changed in the parent: so the lake shows which rows
to read again. `find` is called before a batch is written, while the lake still has the
old references, and `settle` after it. No batch is applied meanwhile, so the rows read
are newer than everything in the lake. Later events that are older than these rows set a
row back to its state at their position, as with a copy; the effect of a foreign key on
it arrives later still, with an event of the parent.

If the lake cannot show this, as within a chain of keys with a row that was read ahead
of the stream, or when a copy was made meanwhile, tables are compared as a whole
(`recheck`), which adds suspects. Everything is repeated until the source answers.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from canal_server.errors import DecodeError, SourceError
from canal_server.messages.mirror import mirror_stream_messages
from canal_server.mirror.follow.key_values import (
    KeyValues,
    changed_values,
    distinct,
    matching,
    values_of,
)
from canal_server.mirror.follow.leaving import (
    CopyNeededError,
    TableStoppedError,
)
from canal_server.mirror.lake import fold
from canal_server.mirror.lake.lake_table import (
    ADDED,
    STREAM_TIME,
    OtherCopyError,
    UnusableTableError,
)
from canal_server.mirror.rows.copy_positions import OLD_S, await_visible
from canal_server.mirror.rows.row_reads import OtherColumnsError, read_by
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.xa import is_of_xa
from canal_server.runtime.backoff import Backoff
from canal_server.spark.options.offsets import version_of
from canal_server.spark.packed.packed_rows import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from canal_server.client.range_client import RangePosition
    from canal_server.errors import CanalError
    from canal_server.mirror.follow.follower import Follower
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mysql.silent_foreign_keys import ForeignKey
    from canal_server.runtime.lifecycle import Stop
    from canal_server.spark.packed.packed_rows import Packed

log = logging.getLogger(__name__)

ROUNDS_MAX: Final = 20  # of following references from rows with new keys
ROWS_MAX: Final = 50_000  # per table, read again while the stream waits
_LEAVING: Final = (
    CopyNeededError,
    TableStoppedError,
    OtherCopyError,
    UnusableTableError,
)
RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 60.0


@dataclass(slots=True)
class _Suspects:
    """Rows of one child to read again, by their primary keys in the lake."""

    keys: pa.Table | None = None
    # Rows of the source to search by what they refer to now, as key and values.
    moved: list[tuple[ForeignKey, pa.Table]] = field(default_factory=list)

    def add(self, keys: pa.Table) -> None:
        both = keys if self.keys is None else pa.concat_tables([self.keys, keys])
        self.keys = distinct(both)


class Rereading:
    """Finds and corrects stale rows; used only while no other batch is applied."""

    def __init__(
        self,
        settings: MirrorSettings,
        stop: Stop,
        follower_of: Callable[[TableName], Follower | None],
        recheck: Callable[[Iterable[TableName], float], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read again for followers; `recheck` requests a comparison after a delay."""
        self._settings = settings
        self._stop = stop
        self._follower_of = follower_of
        self._recheck = recheck
        self._now = now
        self._keys: tuple[ForeignKey, ...] = ()
        self._parents: dict[TableName, KeyValues] = {}
        self._suspects: dict[TableName, _Suspects] = {}
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        self._due = 0.0
        self._had_xa = False
        self._broken: dict[TableName, CanalError] = {}
        self._seen: dict[TableName, set[tuple[Any, ...]]] = {}  # in this batch
        self._incoming: deque[tuple[TableName, pa.Table]] = deque()

    @property
    def is_active(self) -> bool:
        """Whether any foreign key has children that are read again."""
        return bool(self._keys)

    @property
    def has_suspects(self) -> bool:
        """Whether rows are waiting to be read again, and it is time for that."""
        return self.is_waiting and self._now() >= self._due

    @property
    def is_waiting(self) -> bool:
        """Whether rows are waiting to be read again."""
        return bool(self._suspects or self._incoming)

    def use(self, keys: Iterable[ForeignKey]) -> None:
        """Set the foreign keys whose children are read again."""
        self._keys = tuple(keys)
        self._parents = {TableName(*key.parent): KeyValues() for key in self._keys}

    def suspect(self, name: TableName, keys: pa.Table) -> None:
        """Add rows to read again, by their keys in the lake; thread-safe."""
        self._incoming.append((name, keys))

    def joined(self, name: TableName) -> None:
        """Request a comparison of a table that joins: it was copied meanwhile.

        The same goes for its children, as changes of its rows until then are unknown.
        """
        both = {
            TableName(*key.child)
            for key in self._keys
            if name in (TableName(*key.child), TableName(*key.parent))
        }
        if both:
            self._recheck(both, 0.0)

    def columns_of(self, follower: Follower) -> tuple[str, ...]:
        """Return the columns of the source by which a child is compared."""
        targets = set(self._columns(follower))
        columns = follower.table.columns
        return tuple(c.name for c in columns if c.target in targets)

    # --- before a batch is written ----------------------------------------------------

    def begin(self) -> None:
        """Start a batch."""
        for each in self._parents.values():
            each.clear()
        self._seen.clear()
        self._had_xa = False

    def accept(self, item: Packed) -> None:
        """Accept an item; only changes of a parent's rows count."""
        if is_of_xa(item):
            self._had_xa = True
        elif item.kind == ROWS and item.table in self._parents:
            data = item.data
            assert data is not None
            names = {
                name
                for key in self._keys
                if TableName(*key.parent) == item.table
                for name in key.referenced
            }
            self._parents[item.table].add(data, names)

    def find(self) -> None:
        """Find the rows that the batch may have changed. Raises LakeError."""
        if self._had_xa:
            # Rows arrive at the prepare, but foreign keys act at the commit, which has
            # no rows.
            self._recheck({TableName(*key.child) for key in self._keys}, 0.0)
        self._collect_added()
        for key, values in self._changed():
            child = TableName(*key.child)
            follower = self._follower_of(child)
            # A table being copied is compared as a whole when it joins.
            if follower is None:
                self._recheck_below(child)
                continue
            with self._noting(child):
                self._spread(child, self._affected(follower, key, values))

    def _collect_added(self) -> None:
        """Collect added suspects, with the rows of other tables that refer to them."""
        while self._incoming:
            name, keys = self._incoming.popleft()
            follower = self._follower_of(name)
            if follower is None:
                continue
            self._suspects.setdefault(name, _Suspects()).add(keys)
            if self._below(name):
                columns = self._columns(follower)
                with self._noting(name):
                    self._spread(name, distinct(matching(follower, columns, keys)))

    @contextmanager
    def _noting(self, name: TableName) -> Iterator[None]:
        """Record a table that cannot be read, so that other tables do not wait."""
        try:
            yield
        except UnusableTableError as error:
            self._broken[name] = error

    def _spread(self, child: TableName, rows: pa.Table) -> None:
        """Add rows of the lake, and rows that refer to them, recursively."""
        left = deque([(child, rows)])
        while left:
            name, rows = left.popleft()
            follower = self._follower_of(name)
            rows = self._fresh(name, rows)
            if follower is None or not rows.num_rows:
                continue
            self._suspects.setdefault(name, _Suspects()).add(
                rows.select(follower.key_in_lake)
            )
            below = self._below(name)
            for key in below:
                other = self._follower_of(TableName(*key.child))
                values = values_of(rows, follower.table, key.referenced, key.columns)
                if other is None:
                    self._recheck_below(TableName(*key.child))
                elif values.num_rows:
                    found = self._affected(other, key, values)
                    left.append((TableName(*key.child), found))
            if below:
                # A row that was read ahead of the stream no longer shows its key at the
                # time when others began to refer to it.
                self._recheck({TableName(*key.child) for key in below}, 0.0)

    def _recheck_below(self, name: TableName) -> None:
        """Request a comparison of tables that refer to one with unknown rows."""
        left, met = [name], {name}
        while left:
            for key in self._below(left.pop()):
                child = TableName(*key.child)
                if self._follower_of(child) is not None:
                    self._recheck({child}, 0.0)
                elif child not in met:
                    met.add(child)
                    left.append(child)

    def _fresh(self, name: TableName, rows: pa.Table) -> pa.Table:
        """Return the rows that are new in this batch."""
        known = self._seen.setdefault(name, set())
        fresh = []
        for number, row in enumerate(zip(*rows.to_pydict().values(), strict=True)):
            if row not in known:
                known.add(row)
                fresh.append(number)
        return rows.take(pa.array(fresh, pa.int64()))

    def _below(self, name: TableName) -> list[ForeignKey]:
        """Return the keys by which others refer to a table."""
        return [key for key in self._keys if TableName(*key.parent) == name]

    def _changed(self) -> Iterator[tuple[ForeignKey, pa.Table]]:
        """Yield foreign keys with values that their parents lost."""
        for key in self._keys:
            parent = TableName(*key.parent)
            arrived = self._parents[parent]
            if arrived.is_empty:
                continue
            follower = self._follower_of(parent)
            if follower is None and not arrived.has_all(key.referenced):
                self._recheck({TableName(*key.child)}, 0.0)
            old, new = changed_values(arrived, key, follower)
            if old.num_rows:
                yield key, old
            follower = self._follower_of(TableName(*key.child))
            if new.num_rows and follower and set(key.columns) & set(follower.table.key):
                # Then the row may have another primary key.
                child = TableName(*key.child)
                self._suspects.setdefault(child, _Suspects()).moved.append((key, new))

    def _affected(
        self, follower: Follower, key: ForeignKey, values: pa.Table
    ) -> pa.Table:
        """Return the rows that refer to values, with all columns that matter."""
        targets = {c.name.lower(): c.target for c in follower.table.columns}
        renamed = values.rename_columns([targets[name.lower()] for name in key.columns])
        return distinct(matching(follower, self._columns(follower), renamed))

    def _columns(self, follower: Follower) -> list[str]:
        """Return the columns of the lake with references."""
        name = follower.table.source
        names = {*follower.table.key}
        for key in self._keys:
            if TableName(*key.child) == name:
                names.update(key.columns)
            if TableName(*key.parent) == name:
                names.update(key.referenced)
        folded = {each.lower() for each in names}
        return [c.target for c in follower.table.columns if c.name.lower() in folded]

    # --- after a batch is written
    # ------------------------------------------------------

    def settle(self, end: RangePosition) -> dict[TableName, CanalError]:
        """Read suspects again and correct the lake; after a failure they remain.

        `end` is the lake's position. Returns tables that cannot continue, and why.
        Raises what the lake raises.
        """
        broken, self._broken = self._broken, {}
        if not self._suspects or self._now() < self._due:
            return broken
        try:
            if not await_visible(self._settings, end, self._stop):
                # Without GTIDs, a slow commit becomes visible only after a while.
                self._recheck(set(self._suspects), OLD_S)
            for _ in range(ROUNDS_MAX):
                for name in list(self._suspects):
                    try:
                        is_done = self._corrected(name, end)
                    except _LEAVING as error:
                        broken[name], is_done = error, True
                    if is_done:
                        del self._suspects[name]
                if not any(each.moved for each in self._suspects.values()):
                    break
            self._backoff.reset()
        except (SourceError, OSError) as error:
            if self._stop.requested():
                return broken
            now = self._now()
            delay_s = self._backoff.delay_s(now)
            self._due = now + delay_s
            mirror_stream_messages.MIRROR_ROWS_NOT_READ_AGAIN.log(log, error, delay_s)
        return broken

    def _corrected(self, name: TableName, end: RangePosition) -> bool:
        """Correct some of a table's rows; true when all are done."""
        follower = self._follower_of(name)
        if follower is None:
            return True  # it left the stream and is copied again
        suspects = self._suspects[name]
        moved, suspects.moved = suspects.moved, []
        keys = left = None
        if suspects.keys is not None:
            keys = suspects.keys.slice(0, ROWS_MAX).select(follower.key_in_lake)
            left = suspects.keys.slice(ROWS_MAX)
        try:
            rows = self._read(follower, keys, moved)
        except OtherColumnsError as error:
            log.info(
                "%s; its rows are compared when the lake has this statement", error
            )
            self._recheck({name}, 0.0)
            return True
        except DecodeError as error:
            raise CopyNeededError(f"a row cannot be read again ({error})") from error
        except BaseException:
            suspects.moved = moved
            raise
        count = self._correct(follower, rows, keys, end)
        if count:
            log.info("%s: reread %d rows that foreign keys changed", name, count)
        suspects.keys = left if left is not None and left.num_rows else None
        return suspects.keys is None and not suspects.moved

    def _read(
        self,
        follower: Follower,
        keys: pa.Table | None,
        moved: Iterable[tuple[ForeignKey, pa.Table]],
    ) -> pa.Table:
        """Return rows of the source by their keys, and by what they refer to."""
        access, table = self._settings.source.access, follower.table
        found = [
            read_by(access, table, key.columns, values, self._stop)
            for key, values in moved
        ]
        if keys is not None:
            names = [c.name for c in table.columns if c.name in table.key]
            renamed = keys.rename_columns(names)
            found.append(read_by(access, table, names, renamed, self._stop))
        return pa.concat_tables(found)

    def _correct(
        self,
        follower: Follower,
        rows: pa.Table,
        keys: pa.Table | None,
        end: RangePosition,
    ) -> int:
        """Correct the lake by current rows; keys without a row are deleted."""
        now = pa.scalar(time.time_ns() // 1000, pa.timestamp("us", tz="UTC"))
        added = {
            "_change_type": pa.scalar("update_postimage"),
            "_seq": pa.scalar(max(version_of(end), follower.applied), pa.int64()),
            "_row": pa.scalar(0, pa.int32()),
            STREAM_TIME: now,
        }
        for column, value in added.items():
            rows = rows.append_column(column, pa.repeat(value, rows.num_rows))
        rows = follower.as_in_lake(rows)
        names = follower.key_in_lake
        touched = rows.select(names)
        if keys is not None:
            touched = pa.concat_tables(
                [touched, keys.select(names).cast(touched.schema)]
            )
        there = matching(follower, None, distinct(touched))
        own = [name for name in rows.column_names if name not in _NOT_COMPARED]
        # Other rows may differ only in what most collations ignore: they are skipped.
        asked = _by_key(touched, names, names)
        known = {
            key: row for key, row in _by_key(there, names, own).items() if key in asked
        }
        arrived = _by_key(rows, names, own)
        fresh = {key: at for key, (at, row) in arrived.items()
                 if key not in known or known[key][1] != row}  # fmt: skip
        missing = [at for key, (at, _) in known.items() if key not in arrived]
        changes = [rows.take(pa.array(list(fresh.values()), pa.int64()))]
        if missing:
            deleted = there.take(pa.array(missing, pa.int64())).select(own)
            added["_change_type"] = pa.scalar(fold.DELETE)
            for column, value in added.items():
                deleted = deleted.append_column(
                    column, pa.repeat(value, deleted.num_rows)
                )
            changes.append(deleted)
        self._note_moved(follower, changes[0])
        both = pa.concat_tables(changes, promote_options="permissive")
        if both.num_rows:
            follower.correct(both)
        return int(both.num_rows)

    def _note_moved(self, follower: Follower, rows: pa.Table) -> None:
        """Add a search for rows that refer to rows with a new key."""
        for key in self._below(follower.table.source):
            child = TableName(*key.child)
            other = self._follower_of(child)
            if other is None or not set(key.columns) & set(other.table.key):
                continue
            values = values_of(rows, follower.table, key.referenced, key.columns)
            if values.num_rows:
                suspects = self._suspects.setdefault(child, _Suspects())
                suspects.moved.append((key, values))


_NOT_COMPARED: Final = frozenset(("_change_type", STREAM_TIME, *ADDED))


def _by_key(
    rows: pa.Table, key: list[str], own: list[str]
) -> dict[tuple[Any, ...], tuple[int, tuple[Any, ...]]]:
    """Return rows by their keys, each with its number."""
    keys = zip(*(rows[name].to_pylist() for name in key), strict=True)
    values = zip(*(rows[name].to_pylist() for name in own), strict=True)
    return {
        each: (number, row)
        for number, (each, row) in enumerate(zip(keys, values, strict=True))
    }
