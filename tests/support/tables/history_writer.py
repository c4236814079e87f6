"""Writes a table history, one numbered write after the other, until it is killed.

The n-th write is always the same one, so that whoever knows how many were done knows
the content. As a program (TARGET FIRST [DEATH [AT]]) it prints the number of each write
when the storage has stored it, from FIRST on without end. With a DEATH it does the
first one only, and dies in it: before its AT-th statement, or when it would write
beyond AT more bytes of a file's log. A TARGET is a path or the URL of a database.
"""

from __future__ import annotations

import itertools
import os
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from canal_server.model.positions import EntryPosition
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage.history_storage import (
    BinlogSegment,
    DdlRecord,
    SourceTraits,
    StoredSchema,
)
from canal_server.tablemeta.storage.mysql_storage import MysqlHistoryStorage
from canal_server.tablemeta.storage.sqlite_storage import SqliteHistoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.tablemeta.storage.history_storage import HistoryStorage

TABLES = 60
WRITES = 12  # after which their kinds begin again
KINDS = {
    "begin": 0,
    "close a gap before": 1,
    "snapshot": 2,
    "append": 3,
    "close a gap after": 6,
    "extend": 7,
    "identify": 8,
    "expire": 11,
}  # a number of each
BY_STATEMENT, BY_SIZE = "statement", "size"


def _at(number: int, file: int = 1) -> EntryPosition:
    return EntryPosition(f"binlog.{file:06}", 100 + number * 10, number * 1_000, 17)


def _ddl(number: int, part: int = 0) -> DdlRecord:
    position = EntryPosition(
        "binlog.000001", 100 + number * 10 + part, number * 1_000, 17
    )
    return DdlRecord(
        position, "db", f"ALTER TABLE t{number} …" * 40, Context(schema="db")
    )


def _schemas(number: int) -> list[StoredSchema]:
    tables = tuple(
        (f"t{n}", f"CREATE TABLE t{n} ({number if n == number % TABLES else 0})" * 20)
        for n in range(TABLES)
    )
    return [StoredSchema("db", tables=tables), StoredSchema(f"s{number}")]


def write(storage: HistoryStorage, number: int) -> None:
    """Do the write with this number; those before it have been done."""
    kind = number % WRITES
    if kind == 0:
        started = BinlogSegment(
            0, f"server {number}", SourceTraits(), _at(number), _at(number)
        )
        storage.begin(started, _schemas(number))
        return
    of = storage.segments()[-1].id
    if kind in (1, 6):
        records = [_ddl(number, part) for part in range(5)]
        first = _at(number - 2) if kind == 1 else None
        storage.append_all(of, records, first=first, last=_at(number, file=2))
    elif kind == 7:
        storage.extend(of, last=_at(number, file=2))
    elif kind == 8:
        storage.identify(of, f"server {number}, by name", SourceTraits(version=number))
    elif kind in (2, 5):
        storage.write_snapshot(of, _at(number), _schemas(number))
    elif kind == WRITES - 1:
        storage.expire((number - 3) * 1_000)
    else:
        storage.append(of, _ddl(number), last=_at(number, file=2))


def content(storage: HistoryStorage) -> list[object]:
    """Return all that is in a storage; stretches have the numbers of their order."""
    found: list[object] = []
    for number, segment in enumerate(storage.segments()):
        found.append((replace(segment, id=number), list(storage.records(segment.id))))
        snapshot = storage.snapshot(segment.id)
        while snapshot is not None:
            found.append(snapshot)
            position = snapshot.position
            before = EntryPosition(position.journal_name, (position.position or 0) - 1)
            snapshot = storage.snapshot(segment.id, before)
    return found


def url_of(access: Access, database: str) -> str:
    """Return a target that is a database."""
    account = access.credentials
    password = account.password_bytes().decode()
    names = [quote(each, safe="") for each in (account.user, password)]
    return f"mysql://{':'.join(names)}@{access.address}/{database}"


def storage_at(target: str) -> HistoryStorage:
    """Return the storage of a target, which is not open."""
    if not target.startswith("mysql://"):
        return SqliteHistoryStorage(Path(target))
    url = urlsplit(target)
    access = Access(
        address=Address(url.hostname or "", url.port or 0),
        credentials=Credentials(
            unquote(url.username or ""), unquote(url.password or "")
        ),
    )
    return MysqlHistoryStorage(access, url.path[1:], "example")


def on_statement(storage: HistoryStorage, shown: Callable[[], None]) -> None:
    """Call `shown` before each statement that a storage sends."""
    if isinstance(storage, SqliteHistoryStorage):
        connection = storage._database._open_connection()
        connection.set_trace_callback(lambda _: shown())
        return
    session = storage._server._connection  # type: ignore[attr-defined]
    query = session.query

    def counted(*args: object) -> object:
        shown()
        return query(*args)

    session.query = counted


def _die_before(storage: HistoryStorage, number: int) -> None:
    """Let the process die before the statement with this number, from 0 on."""
    numbers = itertools.count()

    def count() -> None:
        if next(numbers) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    on_statement(storage, count)


def _die_beyond(path: Path, size: int) -> None:
    """Let the process die in the write that makes the log of a file so much longer."""
    log = path.with_name(path.name + "-wal")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    size_max = log.stat().st_size + size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_max, size_max))


def main(target: str, first: str, death: str = "", at: str = "0") -> None:
    """Write until somebody ends the process, or one write in which it dies."""
    storage = storage_at(target)
    storage.open()
    if death == BY_STATEMENT:
        _die_before(storage, int(at))
    elif death == BY_SIZE:
        _die_beyond(Path(target), int(at))
    for number in itertools.count(int(first)):
        write(storage, number)
        print(number, flush=True)
        if death:
            # Nothing is tidied up either.
            os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
