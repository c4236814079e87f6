"""The content of the table history, and the contract of its storages.

A history consists of binlog *segments*: parts of the binlog of one server that were
read without a gap. Each segment starts with a base, the tables at its first position,
and contains the later DDL statements in binlog order; snapshots avoid replaying them
all. The meaning of the statements is left to `canal_server.tablemeta.history`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.tablemeta.model.session_context import Context

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from canal_server.model.positions import EntryPosition


ANSWER: Final = "ANSWER"  # type of an answer of the server


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A schema as text: its default collation and its content.

    `tables` are (name, CREATE TABLE text), `uncertain` the names of those tables whose
    columns may have been different.
    """

    name: str
    collation: str = ""  # "" if unknown
    tables: tuple[tuple[str, str], ...] = ()
    views: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DdlRecord:
    """A statement of the binlog that may have changed tables.

    `position` is the start of its event, with the time in ms, the server id and, if the
    server uses them, the GTID of the transaction. `contained`: the base of the segment
    was read after it and contains its effect already; it must not be applied again. A
    record with the type ANSWER was not in the binlog: it is an answer of the server
    about a table, stored after the statement since which it is valid, at a position
    where no event starts. `event_type`, `sql_schema` and `sql_table` are those of the
    first change, as clients see it ("ALTER", "db", "t"); "" if unknown.
    """

    position: EntryPosition
    schema: str  # the default schema of the session
    ddl: str
    context: Context = field(default_factory=Context)
    contained: bool = False
    event_type: str = ""
    sql_schema: str = ""
    sql_table: str = ""

    @property
    def is_answer(self) -> bool:
        """Whether it is an answer of the server, not a statement."""
        return self.event_type == ANSWER


@dataclass(frozen=True, slots=True)
class SourceTraits:
    """The properties of a server that affect how its statements are parsed.

    `file` is one of its binlog files, and `file_began_ms` the time of its first event:
    they identify the binlog.
    """

    mariadb: bool = False
    version: int = 0  # 80401 is 8.4.1; 0: unknown
    lower_case_table_names: int = 0
    collation: str = ""  # the default of the server; "": unknown
    file: str = ""  # "": unknown
    file_began_ms: int = 0


@dataclass(frozen=True, slots=True)
class BinlogSegment:
    """A part of the binlog of a server whose DDL is known without a gap.

    `source` identifies the binlog: the uuid of the server or, if it has none, its id as
    text; `traits` how to parse it. Segments of the Java server have only the id, and no
    traits until they are set (`HistoryStorage.identify`). All DDL that starts at or
    after `first` and before `last` is known.
    """

    id: int  # assigned by the storage
    source: str
    traits: SourceTraits
    first: EntryPosition
    last: EntryPosition
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tables of a segment at a position: after all that starts before it."""

    position: EntryPosition
    schemas: tuple[StoredSchema, ...]


class HistoryStorage(Protocol):
    """The storage of the table history of one destination; for one thread at a time.

    Every method that writes is one transaction: durable when it returns, and without
    any effect if it raises or the process dies in it. All raise TableMetaStoreError,
    whose text contains the file or server, the problem, and the remedy. Positions in a
    segment are compared by `EntryPosition.order()`.

    Only one server at a time writes the history of a destination: `open` of a second
    one fails and names the first. A read-only storage needs no such right.

    An open storage stays open if a call fails: the next call retries, on a new
    connection if necessary. Nothing has to be reopened when the disk has space again or
    the server is back. A failed call has written nothing, unless a connection broke
    while the commit was awaited: the outcome is then unknown, and repeating the call is
    correct.
    """

    def open(self) -> None:
        """Create missing parts, upgrade older formats, check the rest.

        Fails if the storage is not writable. If it fails, the storage is closed, and it
        may be called again. Does nothing if the storage is open.
        """

    def close(self) -> None:
        """Close files and connections; idempotent."""

    def segments(self) -> list[BinlogSegment]:
        """Return all segments, the one that was written last at the end."""

    def begin(
        self, segment: BinlogSegment, base: Iterable[StoredSchema]
    ) -> BinlogSegment:
        """Add a segment with its base; returns it with its new id.

        `segment.id` is ignored. The base is the snapshot at `first`.
        """

    def identify(self, segment_id: int, source: str, traits: SourceTraits) -> None:
        """Store whose binlog a segment belongs to, once more is known about it.

        Its order among the others does not change.
        """

    def extend(
        self,
        segment_id: int,
        *,
        first: EntryPosition | None = None,
        last: EntryPosition | None = None,
    ) -> None:
        """Move the ends of the range that is known without a gap.

        A new `first` moves the base to that position.
        """

    def append(
        self, segment_id: int, record: DdlRecord, *, last: EntryPosition | None = None
    ) -> bool:
        """Add a statement; false if that of its position is known already.

        With `last`, the end of the segment moves in the same transaction.
        """

    def append_all(
        self,
        segment_id: int,
        records: Iterable[DdlRecord],
        *,
        first: EntryPosition | None = None,
        last: EntryPosition | None = None,
    ) -> None:
        """Add statements and move the ends like `extend`, all or nothing."""

    def records(
        self,
        segment_id: int,
        *,
        start: EntryPosition | None = None,
        stop: EntryPosition | None = None,
    ) -> Iterator[DdlRecord]:
        """Yield statements in binlog order, `start` <= position < `stop`."""

    def write_snapshot(
        self, segment_id: int, position: EntryPosition, schemas: Iterable[StoredSchema]
    ) -> None:
        """Store the tables at a position; replaces an existing snapshot there."""

    def snapshot(
        self, segment_id: int, at: EntryPosition | None = None
    ) -> Snapshot | None:
        """Return the newest snapshot at or before a position (None: of all)."""

    def expire(self, before_ms: int) -> int:
        """Delete what is needed only for positions older than a time; returns how much.

        For each segment, the newest snapshot older than the time becomes its base
        (`first` moves there); older snapshots and the statements before it are deleted.
        Complete segments that end before the time are deleted, except the last one.
        """
