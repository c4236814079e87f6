"""The table history of one destination: the columns of every table at every place.

It is canal's table-meta TSDB: `init`, `find`, `apply`, `rollback`, `snapshot`, and
`at` besides, on a storage (`tablemeta.storage.history_storage`) and an image in memory.
Leaves out how gaps are closed and where base dumps come from (`source.schema`).
"""

from __future__ import annotations

import itertools
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import TableMetaError, TableMetaStoreError
from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.history.replay import Replay, stored_schemas
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.sql.ddl import examine
from canal_server.tablemeta.storage.history_storage import (
    ANSWER,
    BinlogSegment,
    DdlRecord,
)
from canal_server.tablemeta.tables.schemas import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canal_server.model.ddl_statement import Examined
    from canal_server.tablemeta.history.replay_cache import KeptReplays
    from canal_server.tablemeta.model.table_schema import Table
    from canal_server.tablemeta.storage.history_storage import (
        HistoryStorage,
        Snapshot,
        SourceTraits,
        StoredSchema,
    )
    from canal_server.tablemeta.tables.memory_tables import Applied, MemoryTableMeta
    from canal_server.tablemeta.tables.schemas import Image

_log = logging.getLogger(__name__)

DDLS_PER_SNAPSHOT: Final = 200
# Events have 19 bytes at least. Behind the first one of a statement's there is room for
# answers of the server that hold from there on.
_BEHIND: Final = 18
ANSWERS_MAX: Final = _BEHIND - 1
# How many times longer a snapshot waits for temporary tables to go.
_PATIENCE: Final = 10
_HOUR_S: Final = 3600
# How often the end of what is known is written while no DDL comes.
_PASSED_EVERY_S: Final = 10.0
_states = itertools.count()  # of all histories of this process


@dataclass(frozen=True, slots=True)
class Retention:
    """How often snapshots are taken and how long they are kept; 0: never, for ever."""

    snapshot_interval_s: float = 24 * _HOUR_S
    expire_s: float = 360 * _HOUR_S
    ddls_per_snapshot: int = DDLS_PER_SNAPSHOT


class Steady(NamedTuple):
    """From where on nothing has changed a table so far, and that state's number."""

    since: EntryPosition
    number: int


class TableMetaTsdb:
    """One destination's table history; for one thread at a time.

    Its live image stands at a place in a stretch (`segment`) and follows the
    statements that `apply` is told from there on, in the order of the binlog.
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
        # Where the live image stands: all that begins before is in it.
        self._standing: EntryPosition | None = None
        # Replaced as a whole, for other threads read it. None: the image is nowhere.
        self.steady: Steady | None = None
        self._changed: tuple[str, EntryPosition] | None = None  # source and last place
        self._contained: dict[tuple[int, int], DdlRecord] = {}
        self._since_snapshot = 0  # statements
        self._snapshot_at_s = 0.0
        self._passed_at_s = 0.0
        self._passed_unwritten: EntryPosition | None = None

    def init(self, destination: str) -> bool:
        """Open the storage; tells whether it holds a history already.

        Raises TableMetaStoreError.
        """
        self._destination = destination
        self._storage.open()
        return bool(self._storage.segments())

    def close(self) -> None:
        """Let go of the storage; the history can be opened again."""
        try:
            if self._passed_unwritten is not None:
                self.reached(self._passed_unwritten)
        except TableMetaStoreError as error:
            # Nothing is lost: it is read again.
            _log.warning("%s: its end was not written down: %s", self._name, error)
        self._passed_unwritten = None
        self._segment = self._live = self.steady = None
        self._storage.close()

    # --- stretches ------------------------------------------------------------------

    @property
    def segment(self) -> BinlogSegment | None:
        """The stretch in which the live image stands."""
        return self._segment

    def segments(self) -> list[BinlogSegment]:
        """Return what the history covers, the newest at the end."""
        return self._storage.segments()

    def begin(
        self,
        source: str,
        traits: SourceTraits,
        first: EntryPosition,
        base: Iterable[StoredSchema],
    ) -> BinlogSegment:
        """Begin a stretch with the tables as they are at a place."""
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
        """Close a gap in front of or behind a stretch; returns the longer one."""
        last = last and _with_set(last, segment)
        self._storage.append_all(segment.id, records, first=first, last=last)
        return replace(segment, first=first or segment.first, last=last or segment.last)

    def identify(
        self, segment: BinlogSegment, source: str, traits: SourceTraits
    ) -> BinlogSegment:
        """Note by what a stretch's server and binlog are known again."""
        if (source, traits) == (segment.source, segment.traits):
            return segment
        self._storage.identify(segment.id, source, traits)
        return replace(segment, source=source, traits=traits)

    def end_event(self, segment: BinlogSegment) -> EntryPosition:
        """Return where an event begins at the end of a stretch, or right before it.

        The end is behind the beginning of the last statement, where none begins.
        """
        last = segment.last
        begin = replace(last, position=(last.position or 0) - _BEHIND)
        for record in self._storage.records(segment.id, start=begin, stop=last):
            if position_after(record.position).order() == last.order():
                return record.position
        return last

    def statements(self, segment: BinlogSegment) -> list[DdlRecord]:
        """Return the statements of a stretch, without what the server answered."""
        records = self._storage.records(segment.id, stop=segment.last)
        return [record for record in records if not record.is_answer]

    # --- the interface of the original ----------------------------------------------

    def rollback(
        self, position: EntryPosition, segment: BinlogSegment | None = None
    ) -> None:
        """Put the live image to a place: every statement that begins before it is in.

        Without a stretch the newest that covers the place. Raises TableMetaError when
        the history does not cover it.
        """
        segment = segment or self._covering(position)
        replayed, behind, since = self._replay(segment, position)
        order = position.order()
        statements = sum(each.position.order() < order for each in behind)
        ahead = {
            record.position.order(): record
            for record in self._storage.records(segment.id, start=position)
            if record.contained
        }
        self._live, self._contained = replayed, ahead
        self._segment, self._standing = segment, position
        self._begin_state(position)
        self._passed_unwritten = None
        self._since_snapshot = statements
        # By the binlog's time, so that restarts do not put it off.
        self._snapshot_at_s = (since.timestamp or 0) / 1000
        if self._since_snapshot >= self._retention.ddls_per_snapshot:
            # So many statements of a gap are not to be replayed each time.
            self.snapshot()

    def at(
        self, position: EntryPosition, segment: BinlogSegment | None = None
    ) -> Image:
        """Return the image as of a place, beside the live one and immutable.

        Raises TableMetaError when the history does not cover the place.
        """
        segment = segment or self._covering(position)
        return self._replay(segment, position)[0].model.freeze()

    def replay_at(
        self, position: EntryPosition, segment: BinlogSegment, kept: KeptReplays
    ) -> tuple[Replay, list[DdlRecord]]:
        """Return an image of its own at a place, and records before and behind it.

        For who reads behind the place beside the live image: the records from there on
        are told to it as reading passes them. `kept` are images of earlier calls.
        """
        replayed: Replay | None = None
        snapshot = kept.snapshot_before(segment, position)
        if snapshot is not None:
            behind = self._behind(segment, snapshot)
            replayed = kept.copy(segment, snapshot, behind, position)
        if replayed is None:
            replayed, behind, snapshot = self._replay(segment, position)
            kept.keep(segment, snapshot, behind, position, replayed)
        return replayed, behind

    def replay_before(
        self,
        segment: BinlogSegment,
        gap: Iterable[DdlRecord],
        known: Image | None = None,
    ) -> tuple[Replay, list[DdlRecord]]:
        """Do so at a place in front of a stretch; `gap` are the statements between.

        They are in the order of the binlog, and the base contains them: `known` are
        the tables of the place, if they are known from elsewhere.
        """
        snapshot = self._snapshot_at(segment, segment.first)
        records = [*gap, *self._behind(segment, snapshot.position)]
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
    ) -> Image:
        """Return the image with those statements that another server has executed.

        For places of another server, which are told by GTID or time. `more` are
        statements that this one had not, and which come behind.
        """
        end = segment.last
        # From the newest snapshot that has nothing which the other one lacks.
        start = end
        for record in self._storage.records(segment.id, stop=end):
            if not (record.contained or record.is_answer or executed(record)):
                start = record.position
                break
        snapshot = self._snapshot_at(segment, start)
        replayed = Replay(segment.traits, snapshot.schemas)
        records = [
            record
            for record in self._behind(segment, snapshot.position)
            if record.position.order() < end.order()
        ]
        replayed.expect(record for record in records if record.contained)
        all_ = True  # of the statements up to here
        for record in records:
            if record.is_answer:
                # It tells what became of them, so it is as good as they are.
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
        """Return a table's image as of where the live image stands."""
        return self._model.find(schema, table)

    def is_uncertain(self, schema: str, table: str) -> bool:
        """Tell whether a table's columns may be others than `find` says."""
        return self._model.is_uncertain(schema, table)

    def is_ahead(self, schema: str, table: str) -> bool:
        """Tell whether statements on a table come yet that its base contains."""
        return self._live is not None and self._live.is_ahead(schema, table)

    def apply(self, statement: DdlRecord) -> Applied:
        """Apply a statement of the binlog; durable when this returns.

        A statement that is known already, as after a restart, changes the image only.
        Raises TableMetaStoreError.
        """
        live, segment = self._live, self._segment
        position = statement.position
        if live is None or segment is None:
            raise TableMetaError(f"{self._name}: the history stands nowhere yet")
        record = self._contained.pop(position.order(), None)
        is_new = record is None and self._keep(segment, record := statement)
        assert record is not None
        applied = live.apply(record)
        self._standing = replace(
            position_after(position),
            gtid=_joined(self._standing, position, mariadb=segment.traits.mariadb),
        )
        self._begin_state(self._standing)
        if not is_new:
            # It comes again: what the server was asked about it then is known.
            for answer in self._storage.records(
                segment.id, start=position, stop=self._standing
            ):
                if answer.is_answer:
                    live.apply(answer)
        self._snapshot_if_due()
        if applied.problem:
            _log.warning(
                "%s: the statement at %s was not understood: %s",
                self._name,
                position,
                applied.problem,
            )
        return applied

    def load(self, position: EntryPosition, schema: str, text: str) -> None:
        """Take a table's CREATE TABLE text as what it is from the last statement on.

        Kept like a statement of the binlog: that is how an answer of the server that
        settles a doubt stays known. The place is that of the rows it was needed for;
        no statement on the table lies between it and the answer.
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
        # Nothing changed between the last statement, or where reading began, and here.
        # Kept there, it is found by all who begin here, too.
        assert self._standing is not None
        file, behind = self._standing.journal_name, self._standing.position or 0
        places = [
            replace(position, journal_name=file, position=place, gtid=None)
            for place in range(max(behind - ANSWERS_MAX, 1), behind)
        ]
        for place in (*places, position):
            record = replace(record, position=place)
            if self._storage.append(self._segment.id, record):
                break
        self._live.apply(record)
        self._begin_state(position)
        self._since_snapshot += 1

    def parsed(self, schema: str, table: str, text: str) -> Table | None:
        """Return the table that a CREATE TABLE text describes, None if nobody can."""
        return read_table((schema, table), text, self._context_of_answers(schema))

    def passed(self, position: EntryPosition) -> None:
        """Note that all before a place was read; written now and then."""
        now_s = self._clock()
        if now_s - self._passed_at_s < _PASSED_EVERY_S:
            self._passed_unwritten = position
            return
        self._passed_unwritten = None
        self.reached(position)
        self._passed_at_s = now_s

    def reached(self, position: EntryPosition) -> None:
        """Write down that all statements before a place are known."""
        segment = self._segment
        if segment is None or position.order() <= segment.last.order():
            return
        position = _with_set(position, segment)
        self._storage.extend(segment.id, last=position)
        self._segment = replace(segment, last=position)
        self._standing = position
        self._snapshot_if_due()

    def snapshot(self) -> bool:
        """Keep the live image as a snapshot; false when it cannot be one now.

        It can be none while statements come yet that its base contains.
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

    def place_at(self, timestamp_ms: int) -> tuple[BinlogSegment, EntryPosition]:
        """Return the place behind the last statement that is older than a time.

        Raises TableMetaError when the history does not cover the time.
        """
        for segment in reversed(self._storage.segments()):
            if timestamp_ms < (segment.first.timestamp or 0):
                continue
            for record in self._storage.records(segment.id):
                if (record.position.timestamp or 0) >= timestamp_ms:
                    return segment, record.position
            return segment, segment.last
        raise TableMetaError(f"{self._name}: {self._reach()}")

    # --- inside ---------------------------------------------------------------------

    def _begin_state(self, place: EntryPosition) -> None:
        """Take note that tables may be others from a place on.

        Where what was read before comes again, it has changed them, too, further on.
        """
        assert self._segment is not None
        source = self._segment.source
        if self._changed is not None and self._changed[0] == source:
            place = max(self._changed[1], place, key=EntryPosition.order)
        self._changed = source, place
        self.steady = Steady(place, next(_states))

    @property
    def _name(self) -> str:
        return f"table history of destination {self._destination}"

    @property
    def _model(self) -> MemoryTableMeta:
        if self._live is None:
            raise TableMetaError(f"{self._name}: it stands nowhere yet")
        return self._live.model

    def _context_of_answers(self, schema: str) -> Context:
        """Return how to read what the server answers to SHOW CREATE TABLE."""
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
        raise TableMetaError(f"{self._name}: {position} is not in it; {self._reach()}")

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
                " lies before it"
            )
        return snapshot

    def _behind(
        self, segment: BinlogSegment, snapshot: EntryPosition
    ) -> list[DdlRecord]:
        """Return the statements behind a snapshot, and answers given at its place."""
        offset = max((snapshot.position or 0) - ANSWERS_MAX, 0)
        start = replace(snapshot, position=offset)
        return list(self._storage.records(segment.id, start=start))

    def _replay(
        self, segment: BinlogSegment, position: EntryPosition
    ) -> tuple[Replay, list[DdlRecord], EntryPosition]:
        """Return an image at a place of a stretch, from the snapshot before it.

        With it the statements behind the snapshot, and where that is from.
        """
        snapshot = self._snapshot_at(segment, position)
        replayed = Replay(segment.traits, snapshot.schemas)
        # Only the base, at `first`, contains statements that come yet.
        behind = self._behind(segment, snapshot.position)
        replayed.expect(record for record in behind if record.contained)
        for record in behind:
            if record.position.order() >= position.order():
                break
            replayed.apply(record)
        return replayed, behind, snapshot.position

    def _keep(self, segment: BinlogSegment, record: DdlRecord) -> bool:
        """Write a statement down, and that all before it is known; false: it was."""
        # The set executed by then is told by what passes next.
        behind = _with_set(replace(position_after(record.position), gtid=None), segment)
        grows = behind.order() > segment.last.order()
        new = self._storage.append(segment.id, record, last=behind if grows else None)
        if grows:
            self._segment = replace(segment, last=behind)
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
            return  # a snapshot forgets them, and what they hide
        if self.snapshot() and self._retention.expire_s:
            # By the time of what is read: whoever is far behind needs what lies there.
            now_ms = now_s * 1000
            read_ms = min(
                now_ms, (self._standing and self._standing.timestamp) or now_ms
            )
            self._storage.expire(int(read_ms - self._retention.expire_s * 1000))


def position_after(position: EntryPosition) -> EntryPosition:
    """Return a place at which a statement is no longer to come, nor the next begins."""
    return replace(position, position=(position.position or 0) + _BEHIND)


def _with_set(end: EntryPosition, segment: BinlogSegment) -> EntryPosition:
    """Return a new end of a stretch with a set that was executed by then.

    Where it has none, the one before it is true of what is known, too.
    """
    return end if end.gtid is not None else replace(end, gtid=segment.last.gtid)


def _joined(
    before: EntryPosition | None, position: EntryPosition, *, mariadb: bool
) -> str | None:
    """Return the set that was executed behind a statement, None if it is not known."""
    if before is None or before.gtid is None or not position.gtid:
        return None
    texts = before.gtid, position.gtid
    try:
        if mariadb:
            maria, its = map(MariaGtidSet.parse, texts)
            return str(maria.union(its))
        mysql, own = map(GtidSet.parse, texts)
        return str(mysql.union(own))
    except ValueError:
        return None  # of a history that somebody else wrote


def made_record(
    position: EntryPosition,
    schema: str,
    ddl: str,
    extra: str = "",
    *,
    contained: bool = False,
    examined: Examined | None = None,
) -> DdlRecord:
    """Return what is stored of a statement; `extra` is its Context as JSON.

    `examined` is what its text says, if that is known already.
    """
    context = Context.from_json(extra)
    statements = (examined or examine(ddl, schema, context.dialect)).statements
    first = statements[0] if statements else None
    return DdlRecord(
        position,
        schema,
        ddl,
        context,
        contained,
        first.event_type.name if first else "",
        (first.schema or "") if first else "",
        (first.table or "") if first else "",
    )
