"""Writes a table history, one numbered write after the other, until it is killed.

The n-th write is always the same one, so that whoever knows how many were done knows
the content. As a program (FILE FIRST) it prints the number of each write when the
storage has taken it.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.context import Context
from canal_server.tablemeta.storage import (
    DdlRecord,
    SourceTraits,
    StoredSchema,
    Stretch,
)
from canal_server.tablemeta.storage_sqlite import SqliteHistoryStorage

if TYPE_CHECKING:
    from canal_server.tablemeta.storage import HistoryStorage

TABLES = 60
WRITES = 12  # kinds of writes, after which they begin again


def _at(number: int, file: int = 1) -> EntryPosition:
    return EntryPosition(f"binlog.{file:06}", number * 10, number * 1_000, 17)


def _ddl(number: int, part: int = 0) -> DdlRecord:
    place = EntryPosition("binlog.000001", number * 10 + part, number * 1_000, 17)
    return DdlRecord(place, "db", f"ALTER TABLE t{number} …" * 40, Context(schema="db"))


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
        begun = Stretch(0, f"server {number}", SourceTraits(), _at(number), _at(number))
        storage.begin(begun, _schemas(number))
        return
    of = storage.stretches()[-1].id
    if kind in (1, 6):
        records = [_ddl(number, part) for part in range(5)]
        first = _at(number - 2) if kind == 1 else None
        storage.append_all(of, records, first=first, last=_at(number, file=2))
    elif kind in (2, 5):
        storage.write_snapshot(of, _at(number), _schemas(number))
    elif kind == WRITES - 1:
        storage.expire((number - 3) * 1_000)
    else:
        storage.append(of, _ddl(number), last=_at(number, file=2))


def content(storage: HistoryStorage) -> list[object]:
    """Return all that is in a storage."""
    found: list[object] = []
    for stretch in storage.stretches():
        found.append((stretch, list(storage.records(stretch.id))))
        snapshot = storage.snapshot(stretch.id)
        while snapshot is not None:
            found.append(snapshot)
            place = snapshot.position
            before = EntryPosition(place.journal_name, (place.position or 0) - 1)
            snapshot = storage.snapshot(stretch.id, before)
    return found


def main(path: str, first: str) -> None:
    """Write until somebody ends the process."""
    storage = SqliteHistoryStorage(Path(path))
    storage.open()
    for number in itertools.count(int(first)):
        write(storage, number)
        print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
