"""The sparse index of transaction boundaries: about one mark per megabyte of binlog.

It makes the search for a position cheap, and nothing depends on it: what it lacks is
read from the source. So an error of its file never reaches a caller, and a damaged file
is replaced by a new one. Leaves out who writes it (`index_writer`) and who queries it
(`search`)::

    file ◄─ mark       a file is identified by server, name and creation time
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.doors.sqlite import WAL_SUFFIXES, Database, FileForm
from canal_server.errors import BoundaryIndexError
from canal_server.messages import source_messages
from canal_server.tablemeta.storage.storage_text import sum_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from canal_server.doors.sqlite import Row

_log = logging.getLogger(__name__)

FILE_NAME: Final = "boundaries.sqlite"
FIRST_EVENT: Final = 4
INDEXED_SOURCES_MAX: Final = 4  # servers whose files are kept, the most recently used

_FIRST_VERSION: Final = (
    # used: grows with each start of a session, to identify the last one.
    """CREATE TABLE file (
        id INTEGER PRIMARY KEY,
        source TEXT NOT NULL,
        name TEXT NOT NULL,
        began_s INTEGER NOT NULL,
        used INTEGER NOT NULL,
        UNIQUE (source, name)
    )""",
    """CREATE TABLE mark (
        file INTEGER NOT NULL,
        start INTEGER NOT NULL,
        event INTEGER NOT NULL,
        stop INTEGER NOT NULL,
        time_s INTEGER NOT NULL,
        youngest_s INTEGER NOT NULL,
        transactions INTEGER NOT NULL,
        row_count INTEGER,
        gtids TEXT NOT NULL,
        sum INTEGER NOT NULL,
        PRIMARY KEY (file, stop)
    ) WITHOUT ROWID""",
)

FORM: Final = FileForm(
    what="index of transaction boundaries",
    application_id=0x43414E42,  # "CANB"
    steps=(_FIRST_VERSION,),
    without="positions are found by reading the binlog",
    error=BoundaryIndexError,
)

_MARK: Final = (
    "start, event, stop, time_s, youngest_s, transactions, row_count, gtids, sum"
)


class FileKey(NamedTuple):
    """One binlog file of one server; another file of its name began later."""

    source: str  # the server's uuid, MariaDB's id
    name: str
    began_s: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A transaction boundary, `stop`, and what lies between `start` and it.

    `start` is the previous mark, the file's first event, or the start of reading:
    always between two transactions. `event` is where the last event before `stop`
    begins.
    """

    start: int
    event: int
    stop: int
    time_s: int  # of that event
    youngest_s: int  # of all events since `start`
    transactions: int
    rows: int | None  # of tables that pass the filter; None: not counted
    gtids: str = ""  # the set executed at `stop`; empty when unknown


@dataclass(frozen=True, slots=True)
class Counted:
    """What lies between two offsets of a file, as far as it is known.

    `missing` are the unknown ranges, as start and stop. The ranges at the ends start or
    stop within what one mark covers, so they are short.
    """

    transactions: int
    rows: int | None
    missing: tuple[tuple[int, int], ...]


class BoundaryIndex:
    """One destination's index; thread-safe. Without a usable file it is empty."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._database = Database(path, FORM, read_only=read_only)
        self._read_only = read_only
        self._is_open = False
        # Held during each call: commands and clients query while the pump writes.
        self._lock = threading.Lock()

    def open(self) -> None:
        """Open the file, or create a new one if it is damaged; never raises."""
        with self._lock:
            if self._is_open:
                return
            try:
                self._database.open()
            except BoundaryIndexError as error:
                self._recreate(error)
            else:
                self._is_open = True

    def close(self) -> None:
        """Close the file; idempotent."""
        with self._lock:
            self._is_open = False
            self._database.close()

    # --- writing ----------------------------------------------------------------------

    def add(self, key: FileKey, marks: Iterable[Mark]) -> None:
        """Store marks of a file; data of another file of the same name is deleted."""
        with self._guarded(), self._database.transaction():
            number = self._number_of(key) or self._new_file(key)
            self._database.execute_many(
                f"INSERT OR REPLACE INTO mark (file, {_MARK})"  # noqa: S608  # ours
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ((number, *astuple(mark), _sum(number, mark)) for mark in marks),
            )

    def use(self, key: FileKey) -> None:
        """Record that a session reads this file: its server is then the last one."""
        with self._guarded(), self._database.transaction():
            number = self._number_of(key) or self._new_file(key)
            self._database.execute(
                "UPDATE file SET used = (SELECT max(used) + 1 FROM file) WHERE id = ?",
                (number,),
            )

    def forget(self, key: FileKey) -> None:
        """Delete everything about a file."""
        with self._guarded(), self._database.transaction():
            self._delete("source = ? AND name = ?", (key.source, key.name))

    def expire(self, source: str, names: Collection[str]) -> None:
        """Delete files that a server no longer has, and servers not used recently."""
        with self._guarded(), self._database.transaction():
            rows = self._database.query(
                "SELECT id, name FROM file WHERE source = ?", (source,)
            )
            for number, name in rows:
                if name not in names:
                    self._delete("id = ?", (number,))
            self._delete(
                "source NOT IN (SELECT source FROM file GROUP BY source"
                " ORDER BY max(used) DESC LIMIT ?)",
                (INDEXED_SOURCES_MAX,),
            )

    # --- queries ----------------------------------------------------------------------

    def sources(self) -> list[str]:
        """Return the ids of the servers that were read, the last one last."""
        rows: list[Row] = []
        with self._guarded():
            rows = self._database.query(
                "SELECT source FROM file GROUP BY source ORDER BY max(used)"
            )
        return [str(source) for (source,) in rows]

    def key_of(self, source: str, name: str) -> FileKey | None:
        """Return the key of the file with this name, None when it is unknown."""
        rows: list[Row] = []
        with self._guarded():
            rows = self._database.query(
                "SELECT began_s FROM file WHERE source = ? AND name = ?", (source, name)
            )
        return FileKey(source, name, int(rows[0][0])) if rows else None

    def marks(
        self, key: FileKey, first: int = 0, stop: int | None = None
    ) -> list[Mark]:
        """Return marks that end after `first` and begin before `stop`, in order."""
        found: list[Mark] = []
        with self._guarded():
            number = self._number_of(key)
            if number is not None:
                found = self._marks(
                    number,
                    "stop > ? AND start < ? ORDER BY stop",
                    (first, (1 << 62) if stop is None else stop),
                )
        return found

    def before(
        self, key: FileKey, offset: int, *, with_gtids: bool = False
    ) -> Mark | None:
        """Return the last mark at or before an offset, None when there is none."""
        with_set = " AND gtids != ''" if with_gtids else ""
        found: list[Mark] = []
        with self._guarded():
            number = self._number_of(key)
            if number is not None:
                found = self._marks(
                    number,
                    f"stop <= ?{with_set} ORDER BY stop DESC LIMIT 1",
                    (offset,),
                )
        return found[0] if found else None

    def at_time(self, key: FileKey, timestamp_ms: int) -> Mark | None:
        """Return the last mark before which all events are older.

        That is known only up to the first gap. None when there is no such mark.
        """
        found: Mark | None = None
        for mark in self.marks(key):
            reached = FIRST_EVENT if found is None else found.stop
            if mark.start > reached or mark.youngest_s * 1000 >= timestamp_ms:
                break
            found = mark
        return found

    def count_between(self, key: FileKey, start: int, stop: int) -> Counted:
        """Return how much lies between two offsets of a file."""
        transactions, rows = 0, 0
        is_counted = True
        missing = []
        reached = start
        for mark in self.marks(key, start, stop):
            if mark.start < reached or mark.stop > stop:
                continue  # only partly inside
            if mark.start > reached:
                missing.append((reached, mark.start))
            transactions += mark.transactions
            rows += mark.rows or 0
            is_counted &= mark.rows is not None
            reached = mark.stop
        if reached < stop:
            missing.append((reached, stop))
        known = rows if is_counted else None
        return Counted(transactions, known, tuple(missing))

    # --- with the lock held -----------------------------------------------------------

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Hide errors of the file from callers; a failed call has no effect."""
        with self._lock:
            try:
                # When the file is not open, the first call in the body raises.
                yield
            except BoundaryIndexError as error:
                if self._is_open:
                    self._recreate(error)

    def _recreate(self, error: BoundaryIndexError) -> None:
        """Continue with an empty file if it was damaged, else without one."""
        assert self._lock.locked()
        self._is_open = False
        was_damaged = self._database.is_damaged
        self._database.close()
        if self._read_only or not was_damaged:
            source_messages.BOUNDARY_INDEX_UNUSABLE.log(_log, error)
            return
        _log.info("recreating the index of boundaries: %s", error)
        path = self._database.path
        try:
            for suffix in ("", *WAL_SUFFIXES):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            self._database.open()
        except (OSError, BoundaryIndexError) as again:
            source_messages.BOUNDARY_INDEX_UNUSABLE.log(_log, again)
            self._database.close()
        else:
            self._is_open = True

    def _number_of(self, key: FileKey) -> int | None:
        rows = self._database.query(
            "SELECT id FROM file WHERE source = ? AND name = ? AND began_s = ?", key
        )
        return int(rows[0][0]) if rows else None

    def _new_file(self, key: FileKey) -> int:
        self._delete("source = ? AND name = ?", (key.source, key.name))
        return self._database.insert(
            "INSERT INTO file (source, name, began_s, used)"
            " VALUES (?, ?, ?, (SELECT coalesce(max(used), 0) FROM file))",
            key,
        )

    def _delete(self, which: str, parameters: Sequence[object]) -> None:
        ids = f"SELECT id FROM file WHERE {which}"  # noqa: S608  # ours
        self._database.execute(f"DELETE FROM mark WHERE file IN ({ids})", parameters)  # noqa: S608
        self._database.execute(f"DELETE FROM file WHERE id IN ({ids})", parameters)  # noqa: S608

    def _marks(
        self, number: int, which: str, parameters: Sequence[object]
    ) -> list[Mark]:
        rows = self._database.query(
            f"SELECT {_MARK} FROM mark WHERE file = ? AND {which}",  # noqa: S608  # ours
            (number, *parameters),
        )
        found = []
        for *fields, expected in rows:
            mark = Mark(*fields)
            if _sum(number, mark) != expected:
                raise self._database.damaged(f"a mark at {mark.stop}")
            found.append(mark)
        return found


def _sum(number: int, mark: Mark) -> int:
    return sum_of((number, *astuple(mark)))
