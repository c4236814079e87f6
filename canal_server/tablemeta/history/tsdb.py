"""The table history of one destination: the columns of every table at every position.

This is canal's table-meta TSDB: `init`, `find`, `apply`, `rollback`, `snapshot`, and in
addition `at`, on a storage (`tablemeta.storage.history_storage`) and schemas in memory.
Closing gaps and reading base dumps from a server is the task of `source.schema`.
"""

from __future__ import annotations

import itertools
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.errors import TableMetaError, TableMetaStoreError
from canal_server.messages import history_messages
from canal_server.model.positions import EntryPosition, as_it_is
from canal_server.tablemeta.history.ddl_records import (
    answer_positions,
    first_answer_position,
    position_after,
    position_before,
    set_after,
)
from canal_server.tablemeta.history.replay import Replay, stored_schemas
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage.history_storage import (
    ANSWER,
    BinlogSegment,
    DdlRecord,
)
from canal_server.tablemeta.tables.schemas import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canal_server.model.positions import Completing
    from canal_server.tablemeta.history.replay_cache import KeptReplays
    from canal_server.tablemeta.model.operations import Name
    from canal_server.tablemeta.model.table_schema import Table
    from canal_server.tablemeta.storage.history_storage import (
        HistoryStorage,
        Snapshot,
        SourceTraits,
        StoredSchema,
    )
    from canal_server.tablemeta.tables.memory_tables import Applied, MemoryTableMeta
    from canal_server.tablemeta.tables.schemas import FrozenTables

_log = logging.getLogger(__name__)

DDLS_PER_SNAPSHOT: Final = 200
# How many times longer a snapshot waits for temporary tables to be dropped.
_PATIENCE: Final = 10
_HOUR_S: Final = 3600
# How often the end of the known range is stored while there is no DDL.
_PASSED_EVERY_S: Final = 10.0
_states = itertools.count()  # of all histories in this process


@dataclass(frozen=True, slots=True)
class Retention:
    """The interval of snapshots and how long they are kept; 0: never, forever."""

    snapshot_interval_s: float = 24 * _HOUR_S
    expire_s: float = 360 * _HOUR_S
    ddls_per_snapshot: int = DDLS_PER_SNAPSHOT


class Steady(NamedTuple):
    """The position since which no table has changed, and the number of that state."""

    since: EntryPosition
    number: int


class KnownTables(NamedTuple):
    """How many tables there are, and those whose columns are uncertain."""

    number: int
    uncertain: tuple[Name, ...]


class TableMetaTsdb:
    """The table history of one destination; for one thread at a time.

    Its live schemas are at a position in a segment (`segment`) and follow the
    statements that `apply` receives from there on, in binlog order.
    """

    def __init__(
        self,
        storage: HistoryStorage,
        retention: Retention = Retention(),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._storage = storage
        self._retention = retention
        self._clock = clock
        self._destination = ""
        self._segment: BinlogSegment | None = None
        self._live: Replay | None = None
        # The position of the live schemas: they contain everything that starts before.
        self._standing: EntryPosition | None = None
        # Replaced as a whole, as other threads read it. None: no live schemas.
        self.steady: Steady | None = None
        self.tables: KnownTables | None = None  # of the live schemas; likewise
        self._changed: tuple[str, EntryPosition] | None = (
            None  # source and last position
        )
        self._contained: dict[tuple[int, int], DdlRecord] = {}
        self._since_snapshot = 0  # statements
        self._snapshot_at_s = 0.0
        self._passed_at_s = 0.0
        # It is completed when it is written.
        self._passed_unwritten: tuple[EntryPosition, Completing] | None = None

    def init(self, destination: str) -> bool:
        """Open the storage; returns whether it contains a history already.

        Raises TableMetaStoreError.
        """
        self._destination = destination
        self._storage.open()
        return bool(self._storage.segments())

    def close(self) -> None:
        """Close the storage; the history can be opened again."""
        try:
            if self._passed_unwritten is not None:
                position, complete = self._passed_unwritten
                self.reached(complete(position))
        except TableMetaStoreError as error:
            # Nothing is lost: it will be read again.
            history_messages.HISTORY_END_NOT_WRITTEN.log(_log, self._name, error)
        self._passed_unwritten = None
        self._segment = self._live = self.steady = self.tables = None
        self._storage.close()

    # --- segments -------------------------------------------------------------------

    @property
    def segment(self) -> BinlogSegment | None:
        """The segment of the live schemas."""
        return self._segment

    def segments(self) -> list[BinlogSegment]:
        """Return the segments that the history covers, the newest last."""
        return self._storage.segments()

    def begin(
        self,
        source: str,
        traits: SourceTraits,
        first: EntryPosition,
        base: Iterable[StoredSchema],
    ) -> BinlogSegment:
        """Start a segment with the tables at a position."""
        segment = BinlogSegment(
            0, source, traits, first, first, int(self._clock() * 1000)
        )
        return self._storage.begin(segment, base)

    def extend(
        self,
        segment: BinlogSegment,
        records: Iterable[DdlRecord],
        *,
        first: EntryPosition | None = None,
        last: EntryPosition | None = None,
    ) -> BinlogSegment:
        """Close a gap before or after a segment; returns the extended segment."""
        last = last and _with_set(last, segment)
        self._storage.append_all(segment.id, records, first=first, last=last)
        return replace(segment, first=first or segment.first, last=last or segment.last)

    def identify(
        self, segment: BinlogSegment, source: str, traits: SourceTraits
    ) -> BinlogSegment:
        """Store how the server and the binlog of a segment are recognized."""
        if (source, traits) == (segment.source, segment.traits):
            return segment
        self._storage.identify(segment.id, source, traits)
        return replace(segment, source=source, traits=traits)

    def end_event(self, segment: BinlogSegment) -> EntryPosition:
        """Return where an event starts at the end of a segment, or right before it.

        The end is after the start of the last statement, where no event starts.
        """
        last = segment.last
        begin = position_before(last)
        for record in self._storage.records(segment.id, start=begin, stop=last):
            if position_after(record.position).order() == last.order():
                return record.position
        return last

    def statements(self, segment: BinlogSegment) -> list[DdlRecord]:
        """Return the statements of a segment, without answers of the server."""
        records = self._storage.records(segment.id, stop=segment.last)
        return [record for record in records if not record.is_answer]

    # --- the interface of canal -----------------------------------------------------

    def rollback(
        self, position: EntryPosition, segment: BinlogSegment | None = None
    ) -> None:
        """Move the live schemas to a position, after all statements that start before.

        Without a segment, the newest one that covers the position is used. Raises
        TableMetaError if the history does not cover it.
        """
        segment = segment or self._covering(position)
        replayed, later, since = self._replay(segment, position)
        order = position.order()
        statements = sum(each.position.order() < order for each in later)
        ahead = {
            record.position.order(): record
            for record in self._storage.records(segment.id, start=position)
            if record.contained
        }
        self._live, self._contained = replayed, ahead
        self._segment, self._standing = segment, position
        self._begin_state(position)
        self._note_tables()
        self._passed_unwritten = None
        self._since_snapshot = statements
        # By binlog time, so that restarts do not delay it.
        self._snapshot_at_s = (since.timestamp or 0) / 1000
        if self._since_snapshot >= self._retention.ddls_per_snapshot:
            # Avoid replaying this many statements of a gap each time.
            self.snapshot()

    def at(
        self, position: EntryPosition, segment: BinlogSegment | None = None
    ) -> FrozenTables:
        """Return the schemas at a position, apart from the live ones and immutable.

        Raises TableMetaError if the history does not cover the position.
        """
        segment = segment or self._covering(position)
        return self._replay(segment, position)[0].model.freeze()

    def replay_at(
        self, position: EntryPosition, segment: BinlogSegment, kept: KeptReplays
    ) -> tuple[Replay, list[DdlRecord]]:
        """Return a separate replay at a position, and records before and after it.

        For readers after the position in parallel to the live schemas: they pass the
        records to the replay as they read them. `kept` are replays of earlier calls.
        """
        replayed: Replay | None = None
        snapshot = kept.snapshot_before(segment, position)
        if snapshot is not None:
            later = self._later_records(segment, snapshot)
            replayed = kept.copy(segment, snapshot, later, position)
        if replayed is None:
            replayed, later, snapshot = self._replay(segment, position)
            kept.keep(segment, snapshot, later, position, replayed)
        return replayed, later

    def replay_before(
        self,
        segment: BinlogSegment,
        gap: Iterable[DdlRecord],
        known: FrozenTables | None = None,
    ) -> tuple[Replay, list[DdlRecord]]:
        """Do so at a position before a segment; `gap` are the statements between.

        They are in binlog order, and the base contains them: `known` are the tables at
        the position, if known from elsewhere.
        """
        snapshot = self._snapshot_at(segment, segment.first)
        records = [*gap, *self._later_records(segment, snapshot.position)]
        if known is not None:
            return Replay(segment.traits, stored_schemas(known)), records
        replayed = Replay(segment.traits, snapshot.schemas)
        replayed.expect(record for record in records if record.contained)
        return replayed, records

    def at_executed(
        self,
        segment: BinlogSegment,
        executed: Callable[[DdlRecord], bool],
        more: Iterable[DdlRecord] = (),
    ) -> FrozenTables:
        """Return the schemas after the statements that another server has executed.

        For positions on another server, which are found by GTID or time. `more` are
        later statements, which this server did not have.
        """
        end = segment.last
        # Start with the newest snapshot that contains nothing the other server lacks.
        start = end
        for record in self._storage.records(segment.id, stop=end):
            if not (record.contained or record.is_answer or executed(record)):
                start = record.position
                break
        snapshot = self._snapshot_at(segment, start)
        replayed = Replay(segment.traits, snapshot.schemas)
        records = [
            record
            for record in self._later_records(segment, snapshot.position)
            if record.position.order() < end.order()
        ]
        replayed.expect(record for record in records if record.contained)
        all_ = True  # whether all statements up to here are included
        for record in records:
            if record.is_answer:
                # It contains their result, so it is as good as they are.
                known = all_
            else:
                known = record.contained or executed(record)
                all_ = all_ and known
            if known:
                replayed.apply(record)
        for record in more:
            replayed.apply(record)
        return replayed.model.freeze()

    def find(self, schema: str, table: str) -> Table | None:
        """Return the schema of a table at the position of the live schemas."""
        return self._model.find(schema, table)

    def is_uncertain(self, schema: str, table: str) -> bool:
        """Return whether the columns of a table may differ from those of `find`."""
        return self._model.is_uncertain(schema, table)

    def is_ahead(self, schema: str, table: str) -> bool:
        """Return whether statements that the base contains are still to come."""
        return self._live is not None and self._live.is_ahead(schema, table)

    def apply(self, statement: DdlRecord) -> Applied:
        """Apply a statement of the binlog; durable when this returns.

        A statement that is known already, as after a restart, changes only the live
        schemas. Raises TableMetaStoreError.
        """
        live, segment = self._live, self._segment
        position = statement.position
        if live is None or segment is None:
            raise TableMetaError(
                f"{self._name}: the history has no current position yet"
            )
        record = self._contained.pop(position.order(), None)
        is_new = record is None and self._keep(segment, record := statement)
        assert record is not None
        applied = live.apply(record)
        self._standing = replace(
            position_after(position),
            gtid=set_after(self._standing, position, mariadb=segment.traits.mariadb),
        )
        self._begin_state(self._standing)
        if not is_new:
            # It is repeated: answers of the server about it are known.
            for answer in self._storage.records(
                segment.id, start=position, stop=self._standing
            ):
                if answer.is_answer:
                    live.apply(answer)
        self._note_tables()
        self._snapshot_if_due()
        if applied.problem:
            history_messages.DDL_NOT_UNDERSTOOD.log(
                _log, self._name, position, applied.problem
            )
        return applied

    def load(self, position: EntryPosition, schema: str, text: str) -> None:
        """Use a CREATE TABLE text as the schema of a table from the last statement on.

        It is stored like a statement of the binlog, so that an answer of the server
        that resolves an uncertainty is kept. The position is that of the rows it was
        needed for; no statement on the table is between it and the answer.
        """
        assert self._live is not None
        assert self._segment is not None
        record = DdlRecord(
            position,
            schema,
            text,
            self._context_of_answers(schema),
            event_type=ANSWER,
            sql_schema=schema,
        )
        # Nothing changed between the last statement, or the start of reading, and here.
        # Stored there, it is also found by readers that start here.
        assert self._standing is not None
        for each in (*answer_positions(self._standing, position), position):
            record = replace(record, position=each)
            if self._storage.append(self._segment.id, record):
                break
        self._live.apply(record)
        self._begin_state(position)
        self._note_tables()
        self._since_snapshot += 1

    def parsed(self, schema: str, table: str, text: str) -> Table | None:
        """Return the table of a CREATE TABLE text, None if it cannot be parsed."""
        return read_table((schema, table), text, self._context_of_answers(schema))

    def passed(self, position: EntryPosition, complete: Completing = as_it_is) -> None:
        """Record that everything before a position was read; stored periodically.

        `complete` returns the position to store, with the set that was executed there.
        """
        now_s = self._clock()
        if now_s - self._passed_at_s < _PASSED_EVERY_S:
            self._passed_unwritten = position, complete
            return
        self._passed_unwritten = None
        self.reached(complete(position))
        self._passed_at_s = now_s

    def reached(self, position: EntryPosition) -> None:
        """Store that all statements before a position are known."""
        segment = self._segment
        if segment is None or position.order() <= segment.last.order():
            return
        position = _with_set(position, segment)
        self._storage.extend(segment.id, last=position)
        self._segment = replace(segment, last=position)
        self._standing = position
        self._snapshot_if_due()

    def snapshot(self) -> bool:
        """Store the live schemas as a snapshot; false if that is not possible now.

        It is not possible while statements that the base contains are still to come.
        """
        live, segment, standing = self._live, self._segment, self._standing
        if live is None or segment is None or standing is None or not live.at_rest:
            return False
        self._storage.write_snapshot(
            segment.id, standing, stored_schemas(live.model.freeze())
        )
        self._since_snapshot = 0
        self._snapshot_at_s = self._clock()
        return True

    # --- by time --------------------------------------------------------------------

    def position_at(self, timestamp_ms: int) -> tuple[BinlogSegment, EntryPosition]:
        """Return the position after the last statement that is older than a time.

        Raises TableMetaError if the history does not cover the time.
        """
        for segment in reversed(self._storage.segments()):
            if timestamp_ms < (segment.first.timestamp or 0):
                continue
            for record in self._storage.records(segment.id):
                if (record.position.timestamp or 0) >= timestamp_ms:
                    return segment, record.position
            return segment, segment.last
        raise TableMetaError(f"{self._name}: {self._reach()}")

    # --- internals ------------------------------------------------------------------

    def _begin_state(self, position: EntryPosition) -> None:
        """Record that tables may have changed since a position.

        Statements that were read before and are repeated may also change them later on.
        """
        assert self._segment is not None
        source = self._segment.source
        if self._changed is not None and self._changed[0] == source:
            position = max(self._changed[1], position, key=EntryPosition.order)
        self._changed = source, position
        self.steady = Steady(position, next(_states))

    def _note_tables(self) -> None:
        self.tables = KnownTables(*self._model.summary())

    @property
    def _name(self) -> str:
        return f"table history of destination {self._destination}"

    @property
    def _model(self) -> MemoryTableMeta:
        if self._live is None:
            raise TableMetaError(f"{self._name}: it has no current position yet")
        return self._live.model

    def _context_of_answers(self, schema: str) -> Context:
        """Return the context for answers of the server to SHOW CREATE TABLE."""
        assert self._segment is not None
        traits = self._segment.traits
        return Context(
            schema=schema,
            mariadb=traits.mariadb,
            server_version=traits.version,
            collation_server=traits.collation or None,
            explicit_timestamp=True,
        )

    def _covering(self, position: EntryPosition) -> BinlogSegment:
        for segment in reversed(self._storage.segments()):
            if segment.first.order() <= position.order() <= segment.last.order():
                return segment
        raise TableMetaError(
            f"{self._name}: it does not contain {position}; {self._reach()}"
        )

    def _reach(self) -> str:
        covered = ", ".join(
            f"{each.first} to {each.last} of server {each.source}"
            for each in self._storage.segments()
        )
        return f"it covers {covered}" if covered else "it is empty"

    def _snapshot_at(self, segment: BinlogSegment, position: EntryPosition) -> Snapshot:
        snapshot = self._storage.snapshot(segment.id, position)
        if snapshot is None:
            raise TableMetaError(
                f"{self._name}: nothing is known before {segment.first}, and {position}"
                " is earlier"
            )
        return snapshot

    def _later_records(
        self, segment: BinlogSegment, snapshot: EntryPosition
    ) -> list[DdlRecord]:
        """Return the statements after a snapshot, and answers at its position."""
        start = first_answer_position(snapshot)
        return list(self._storage.records(segment.id, start=start))

    def _replay(
        self, segment: BinlogSegment, position: EntryPosition
    ) -> tuple[Replay, list[DdlRecord], EntryPosition]:
        """Return a replay at a position of a segment, from the snapshot before it.

        Also returns the statements after the snapshot, and its position.
        """
        snapshot = self._snapshot_at(segment, position)
        replayed = Replay(segment.traits, snapshot.schemas)
        # Only the base, at `first`, contains statements that are still to come.
        later = self._later_records(segment, snapshot.position)
        replayed.expect(record for record in later if record.contained)
        for record in later:
            if record.position.order() >= position.order():
                break
            replayed.apply(record)
        return replayed, later, snapshot.position

    def _keep(self, segment: BinlogSegment, record: DdlRecord) -> bool:
        """Store a statement, and that all before it is known; false if it was known."""
        # The executed set at that point comes with the next `passed`.
        end = _with_set(replace(position_after(record.position), gtid=None), segment)
        grows = end.order() > segment.last.order()
        new = self._storage.append(segment.id, record, last=end if grows else None)
        if grows:
            self._segment = replace(segment, last=end)
            self._passed_at_s = 0.0
        self._since_snapshot += new
        return new

    def _snapshot_if_due(self) -> None:
        if not self._since_snapshot:
            return
        now_s, interval_s = self._clock(), self._retention.snapshot_interval_s
        overdue = interval_s and now_s - self._snapshot_at_s >= interval_s
        many = self._retention.ddls_per_snapshot
        if not overdue and self._since_snapshot < many:
            return
        live = self._live
        if live and live.has_temporary and self._since_snapshot < _PATIENCE * many:
            return  # a snapshot would lose them, and the tables they hide
        if self.snapshot() and self._retention.expire_s:
            # By binlog time: a client that lags far behind needs that range.
            now_ms = now_s * 1000
            read_ms = min(
                now_ms, (self._standing and self._standing.timestamp) or now_ms
            )
            self._storage.expire(int(read_ms - self._retention.expire_s * 1000))


def _with_set(end: EntryPosition, segment: BinlogSegment) -> EntryPosition:
    """Return a new end of a segment with a set that was executed at that point.

    If it has none, the previous set is still true for what is known.
    """
    return end if end.gtid is not None else replace(end, gtid=segment.last.gtid)
