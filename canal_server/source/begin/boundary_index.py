"""The sparse index of transaction boundaries: one mark per megabyte of binlog, about.

It makes the search for a place cheap, and nothing depends on it: what it lacks is read
from the source. So an error of its file never reaches a caller; a damaged file is begun
anew. Leaves out who writes it (`index_writer`) and who asks it (`search`)::

    file ◄─ mark       a file is known by its server, its name and when it was begun
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.doors.sqlite import WAL_SUFFIXES, Database, FileForm
from canal_server.errors import BoundaryIndexError
from canal_server.tablemeta.storage.storage_text import sum_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from canal_server.doors.sqlite import Row

_log = logging.getLogger(__name__)

FILE_NAME: Final = "boundaries.sqlite"
FIRST_EVENT: Final = 4
SOURCES_KEPT: Final = 4  # servers whose files are remembered, those used last

_FIRST_VERSION: Final = (
    # used: grows with each begin of a session, so that the last one is known.
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
    without="places are looked for by reading the binlog",
    error=BoundaryIndexError,
)

_MARK: Final = (
    "start, event, stop, time_s, youngest_s, transactions, row_count, gtids, sum"
)


class FileKey(NamedTuple):
    """One binlog file of one server; another one of this name began at another time."""

    source: str  # the server's uuid, MariaDB's id
    name: str
    began_s: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A boundary of transactions, `stop`, and what lies between `start` and it.

    `start` is the mark before, the file's first event, or where reading began: between
    two transactions. `event` is where the last one in front of `stop` begins.
    """

    start: int
    event: int
    stop: int
    time_s: int  # of that event
    youngest_s: int  # of all events from `start` on
    transactions: int
    rows: int | None  # those that were wanted; None: nobody counted
    gtids: str = ""  # the set executed at `stop`; empty where it is not known


@dataclass(frozen=True, slots=True)
class Counted:
    """What lies between two places of a file, as far as it is known.

    `missing` are stretches, start and stop, of which nothing is known. Those at the
    ends begin or end inside of what one mark covers, so they are short.
    """

    transactions: int
    rows: int | None
    missing: tuple[tuple[int, int], ...]


class BoundaryIndex:
    """One destination's index; thread-safe. Without a usable file it knows nothing."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._database = Database(path, FORM, read_only=read_only)
        self._read_only = read_only
        self._is_open = False
        # Held for each call: commands and clients ask while the pump writes.
        self._lock = threading.Lock()

    def open(self) -> None:
        """Open the file, a new one where it is damaged; nothing is raised."""
        with self._lock:
            if self._is_open:
                return
            try:
                self._database.open()
            except BoundaryIndexError as error:
                self._open_anew(error)
            else:
                self._is_open = True

    def close(self) -> None:
        """Let go of the file; idempotent."""
        with self._lock:
            self._is_open = False
            self._database.close()

    # --- writing ----------------------------------------------------------------------

    def add(self, key: FileKey, marks: Iterable[Mark]) -> None:
        """Keep marks of a file; what was known of another file of its name goes."""
        with self._guarded(), self._database.transaction():
            number = self._number_of(key) or self._new_file(key)
            self._database.execute_many(
                f"INSERT OR REPLACE INTO mark (file, {_MARK})"  # noqa: S608  # ours
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ((number, *astuple(mark), _sum(number, mark)) for mark in marks),
            )

    def use(self, key: FileKey) -> None:
        """Note that a session reads this file: its server is the last one then."""
        with self._guarded(), self._database.transaction():
            number = self._number_of(key) or self._new_file(key)
            self._database.execute(
                "UPDATE file SET used = (SELECT max(used) + 1 FROM file) WHERE id = ?",
                (number,),
            )

    def forget(self, key: FileKey) -> None:
        """Take back what is known of a file."""
        with self._guarded(), self._database.transaction():
            self._delete("source = ? AND name = ?", (key.source, key.name))

    def expire(self, source: str, names: Collection[str]) -> None:
        """Forget the files that a server no longer has, and servers of long ago."""
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
                (SOURCES_KEPT,),
            )

    # --- asking -----------------------------------------------------------------------

    def sources(self) -> list[str]:
        """Return what tells the servers that were read, the last one last."""
        rows: list[Row] = []
        with self._guarded():
            rows = self._database.query(
                "SELECT source FROM file GROUP BY source ORDER BY max(used)"
            )
        return [str(source) for (source,) in rows]

    def key_of(self, source: str, name: str) -> FileKey | None:
        """Return the file of this name as it is known, None when it is not."""
        rows: list[Row] = []
        with self._guarded():
            rows = self._database.query(
                "SELECT began_s FROM file WHERE source = ? AND name = ?", (source, name)
            )
        return FileKey(source, name, int(rows[0][0])) if rows else None

    def marks(
        self, key: FileKey, first: int = 0, stop: int | None = None
    ) -> list[Mark]:
        """Return marks that end behind `first` and begin before `stop`, in order."""
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
        wanted = " AND gtids != ''" if with_gtids else ""
        found: list[Mark] = []
        with self._guarded():
            number = self._number_of(key)
            if number is not None:
                found = self._marks(
                    number,
                    f"stop <= ?{wanted} ORDER BY stop DESC LIMIT 1",
                    (offset,),
                )
        return found[0] if found else None

    def at_time(self, key: FileKey, timestamp_ms: int) -> Mark | None:
        """Return the last mark with nothing but older events in front of it.

        That is known up to the first hole only. None when there is no such mark.
        """
        found: Mark | None = None
        for mark in self.marks(key):
            reached = FIRST_EVENT if found is None else found.stop
            if mark.start > reached or mark.youngest_s * 1000 >= timestamp_ms:
                break
            found = mark
        return found

    def count_between(self, key: FileKey, start: int, stop: int) -> Counted:
        """Return how much lies from one offset of a file to another."""
        transactions, rows = 0, 0
        is_counted = True
        missing = []
        reached = start
        for mark in self.marks(key, start, stop):
            if mark.start < reached or mark.stop > stop:
                continue  # a part of it
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
        """Keep errors of the file away from callers; what failed did not happen."""
        with self._lock:
            try:
                # Where it is not open the body's first call says so.
                yield
            except BoundaryIndexError as error:
                if self._is_open:
                    self._open_anew(error)

    def _open_anew(self, error: BoundaryIndexError) -> None:
        """Go on with an empty file where it was damaged, else without any."""
        assert self._lock.locked()
        self._is_open = False
        was_damaged = self._database.is_damaged
        self._database.close()
        if self._read_only or not was_damaged:
            _log.warning("goes on without an index of boundaries: %s", error)
            return
        _log.info("begins the index of boundaries anew: %s", error)
        path = self._database.path
        try:
            for suffix in ("", *WAL_SUFFIXES):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            self._database.open()
        except (OSError, BoundaryIndexError) as again:
            _log.warning("goes on without an index of boundaries: %s", again)
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
        for *fields, wanted in rows:
            mark = Mark(*fields)
            if _sum(number, mark) != wanted:
                raise self._database.damaged(f"a mark at {mark.stop}")
            found.append(mark)
        return found


def _sum(number: int, mark: Mark) -> int:
    return sum_of((number, *astuple(mark)))
