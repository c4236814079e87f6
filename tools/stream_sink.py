"""A sink that takes each micro-batch of a generic stream once: SQLite with a ledger.

Leaves out what the rows are compared with.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (
    "destination", "table", "op", "before", "after", "sql",
    "_commit_version", "_seq", "_row",
)  # fmt: skip
SHOWN = 3000  # characters of a row in an error
FIELDS = "destination, version, seq, row, name, sql, body"


class StreamSink:
    """Rows of a generic stream, in a file; `apply` is for `foreachBatch`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with closing(self.connect()) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS ledger (batch INTEGER PRIMARY KEY)")
            db.execute(f"CREATE TABLE IF NOT EXISTS received (batch, {FIELDS})")
            db.execute("CREATE TABLE IF NOT EXISTS again (batch)")

    def connect(self) -> sqlite3.Connection:
        """Open the file."""
        return sqlite3.connect(self.file, timeout=60)

    def apply(self, frame: Any, batch: int) -> None:
        """Store a micro-batch, unless it was stored; it must be the same then."""
        rows = sorted(map(_fields, frame.select(*COLUMNS, "is_ddl").collect()))
        with closing(self.connect()) as db, db:
            known = db.execute("SELECT 1 FROM ledger WHERE batch = ?", (batch,))
            if known.fetchone():
                select = f"SELECT {FIELDS} FROM received WHERE batch = ?"
                before = sorted(db.execute(select, (batch,)).fetchall())
                found = _difference(before, rows)
                assert not found, f"batch {batch} is not what it was: {found}"
                db.execute("INSERT INTO again VALUES (?)", (batch,))
                return
            db.execute("INSERT INTO ledger VALUES (?)", (batch,))
            db.executemany(
                "INSERT INTO received VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(batch, *row) for row in rows],
            )

    def batches(self) -> list[int]:
        """Return how many rows each micro-batch had."""
        with closing(self.connect()) as db:
            found = db.execute(
                "SELECT count(received.batch) FROM ledger LEFT JOIN received"
                " ON received.batch = ledger.batch AND sql = ''"
                " GROUP BY ledger.batch ORDER BY ledger.batch"
            )
            return [count for (count,) in found]

    def repeated(self) -> list[int]:
        """Return the micro-batches that arrived again."""
        with closing(self.connect()) as db:
            return [batch for (batch,) in db.execute("SELECT batch FROM again")]

    def count(self, table: str = "%") -> int:
        """Return how many rows arrived, of all tables or of one."""
        with closing(self.connect()) as db:
            select = "SELECT count(*) FROM received WHERE sql = '' AND name LIKE ?"
            return int(db.execute(select, (table,)).fetchone()[0])


def _difference(before: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> str:
    """Return how a batch that arrived again differs; empty: it is the same one.

    Where another server is the source by then, the numbers of transactions are larger
    ones; the transactions and what is in them stay. A replica changes rows of tables
    without a key in an order of its own.
    """
    if before == rows:
        return ""
    for name in sorted({row[0] for row in (*before, *rows)}):
        old, new = ([row for row in part if row[0] == name] for part in (before, rows))
        if old == new:
            continue
        pairs = zip_longest(_numbered(old), _numbered(new))
        for number, (was, is_now) in enumerate(pairs):
            if was != is_now:
                return (
                    f"{name} had {len(old)} rows and has {len(new)}; row {number} was"
                    f" {str(was)[:SHOWN]} and is {str(is_now)[:SHOWN]}"
                )
        if not old[-1][1] < new[0][1]:
            return f"{name}: the same rows, in transactions {old[0][1]} and {new[0][1]}"
    return ""


def _numbered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows of a destination, sorted, with the transactions numbered from 0."""
    versions = sorted({row[1] for row in rows})
    order = {version: number for number, version in enumerate(versions)}
    return sorted((order[version], *rest[2:]) for _, version, *rest in rows)


def _fields(row: Any) -> tuple[Any, ...]:
    """Return a row as the file has it; only statements have a text."""
    before, after = (
        {} if image is None else dict(image) for image in (row["before"], row["after"])
    )
    return (
        row["destination"],
        row["_commit_version"],
        row["_seq"],
        row["_row"],
        row["table"] or "",
        row["sql"] if row["is_ddl"] else "",
        json.dumps([row["op"], before, after], sort_keys=True),
    )
