"""What the table history keeps, and the contract of the places where it is kept.

A history is made of *stretches*: parts of one server's binlog that were read without
a hole. Each stretch begins with a base, the tables as they were at its first place,
and has the DDL statements behind it in the order of the binlog; snapshots spare
replaying them all. Leaves out what the statements mean (`canal_server.tablemeta`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.tablemeta.model.session_context import Context

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from canal_server.model.positions import EntryPosition


ANSWER: Final = "ANSWER"  # type of what the server told


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A schema as text: its default collation and what it holds.

    `tables` are (name, CREATE TABLE text), `uncertain` names of those among them
    whose columns may have been others.
    """

    name: str
    collation: str = ""  # "" when it is not known
    tables: tuple[tuple[str, str], ...] = ()
    views: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DdlRecord:
    """A statement of the binlog that may have changed tables.

    `position` is where its event begins, with the time in ms, the server's id and,
    when the server has them, the transaction's GTID. `contained`: the base of the
    stretch was taken behind it and has its effect already; it must not be applied
    again. One whose type is ANSWER was not in the binlog: it is what the server told
    of a table, kept behind the statement after which it holds, at a place where no
    event begins. `event_type`, `sql_schema` and `sql_table` are the first change's, as
    clients see it ("ALTER", "db", "t"); "" when it is not known.
    """

    position: EntryPosition
    schema: str  # the default one of the session
    ddl: str
    context: Context = field(default_factory=Context)
    contained: bool = False
    event_type: str = ""
    sql_schema: str = ""
    sql_table: str = ""

    @property
    def is_answer(self) -> bool:
        """Whether it is the server's answer, and no statement."""
        return self.event_type == ANSWER


@dataclass(frozen=True, slots=True)
class SourceTraits:
    """What of a server decides how its statements are read.

    `file` is one of its binlog's, and `file_began_ms` the time of its first event: by
    them a binlog is known again.
    """

    mariadb: bool = False
    version: int = 0  # 80401 is 8.4.1; 0: not known
    lower_case_table_names: int = 0
    collation: str = ""  # the server's default; "": not known
    file: str = ""  # "": none was noted
    file_began_ms: int = 0


@dataclass(frozen=True, slots=True)
class BinlogSegment:
    """A part of a server's binlog whose DDL is known without a hole.

    `source` tells the binlog: the server's uuid or, where it has none, its id as
    text; `traits` how to read it. What the original wrote tells the id alone, and no
    traits, until somebody says them (`HistoryStorage.identify`). All DDL that begins
    at or behind `first` and before `last` is known.
    """

    id: int  # given by the storage
    source: str
    traits: SourceTraits
    first: EntryPosition
    last: EntryPosition
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tables of a stretch as of one place: what begins before it is contained."""

    position: EntryPosition
    schemas: tuple[StoredSchema, ...]


class HistoryStorage(Protocol):
    """Where one destination's table history is kept; for one thread at a time.

    Every method that writes is one transaction: durable when it returns, and without
    any trace when it raises or the process dies in it. All raise TableMetaStoreError,
    whose text names the file or server, what was wrong, and the remedy. Places of a
    stretch are compared by `EntryPosition.order()`.

    One server writes a destination's history at a time: a second one's `open` fails
    and names the first. A storage to read needs no such right.

    An open storage stays open when a call fails: the next call tries again, on a new
    connection where that is needed. So there is nothing to reopen when the disk has
    room again or the server is back. What failed was not written, except where a
    connection broke while its end was awaited: then nobody knows, and doing the same
    again is right.
    """

    def open(self) -> None:
        """Create what is missing, bring older forms up to date, check the rest.

        Where it cannot be written that is told here. When it fails the storage is
        closed; it may be called again. Does no harm when open.
        """

    def close(self) -> None:
        """Let go of files and connections; idempotent."""

    def segments(self) -> list[BinlogSegment]:
        """Return all stretches, the one that was written last at the end."""

    def begin(
        self, segment: BinlogSegment, base: Iterable[StoredSchema]
    ) -> BinlogSegment:
        """Add a stretch with its base; returns it with the id that it was given.

        `segment.id` is ignored. The base counts as the snapshot at `first`.
        """

    def identify(self, segment_id: int, source: str, traits: SourceTraits) -> None:
        """Say whose binlog a stretch is of, where more was learnt about it.

        Its place among the others stays.
        """

    def extend(
        self,
        segment_id: int,
        *,
        first: EntryPosition | None = None,
        last: EntryPosition | None = None,
    ) -> None:
        """Move the ends of what is known without a hole.

        A new `first` makes the base the one of that place.
        """

    def append(
        self, segment_id: int, record: DdlRecord, *, last: EntryPosition | None = None
    ) -> bool:
        """Add a statement; false when that of its place is known already.

        With `last` the stretch's end moves in the same transaction.
        """

    def append_all(
        self,
        segment_id: int,
        records: Iterable[DdlRecord],
        *,
        first: EntryPosition | None = None,
        last: EntryPosition | None = None,
    ) -> None:
        """Add statements and move the ends as `extend` does, all or nothing."""

    def records(
        self,
        segment_id: int,
        *,
        start: EntryPosition | None = None,
        stop: EntryPosition | None = None,
    ) -> Iterator[DdlRecord]:
        """Yield statements in the order of the binlog, `start` <= place < `stop`."""

    def write_snapshot(
        self, segment_id: int, position: EntryPosition, schemas: Iterable[StoredSchema]
    ) -> None:
        """Keep the tables as of a place; one that is there already is replaced."""

    def snapshot(
        self, segment_id: int, at: EntryPosition | None = None
    ) -> Snapshot | None:
        """Return the newest snapshot at or before a place (None: of all)."""

    def expire(self, before_ms: int) -> int:
        """Forget what is needed only for places older than a time; returns how much.

        Of each stretch the newest snapshot older than the time is kept as its base
        (`first` moves there), older ones go with the statements before it, as do
        whole stretches that end before the time, but never the last one.
        """
