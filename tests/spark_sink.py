"""A sink that takes each micro-batch once: SQLite with a ledger of batches.

What a stream delivered is compared with what a writer (`ledger.Writer`) wrote.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger import Change

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Writer

COLUMNS = (
    "destination", "table", "op", "before", "after", "sql",
    "_commit_version", "_seq", "_row",
)  # fmt: skip
CAME = "destination, version, seq, row, name, sql, body"


@dataclass(frozen=True)
class Came:
    """What one row of a generic stream says: a change, or a statement."""

    table: str
    sql: str  # of a statement, else empty
    change: Change


class Sink:
    """Rows of a generic stream, in a file; `apply` is for `foreachBatch`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with closing(self._connect()) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS ledger (batch INTEGER PRIMARY KEY)")
            db.execute(f"CREATE TABLE IF NOT EXISTS came (batch, {CAME})")
            db.execute("CREATE TABLE IF NOT EXISTS again (batch)")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.file, timeout=60)

    def apply(self, frame: Any, batch: int) -> None:
        """Take a micro-batch, unless it was taken; it must be the same then."""
        rows = sorted(map(_told, frame.select(*COLUMNS, "is_ddl").collect()))
        with closing(self._connect()) as db, db:
            known = db.execute("SELECT 1 FROM ledger WHERE batch = ?", (batch,))
            if known.fetchone():
                select = f"SELECT {CAME} FROM came WHERE batch = ?"
                before = sorted(db.execute(select, (batch,)).fetchall())
                assert before == rows, f"batch {batch} is not what it was"
                db.execute("INSERT INTO again VALUES (?)", (batch,))
                return
            db.execute("INSERT INTO ledger VALUES (?)", (batch,))
            db.executemany(
                "INSERT INTO came VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(batch, *row) for row in rows],
            )

    def batches(self) -> list[int]:
        """Return how many rows each micro-batch had."""
        with closing(self._connect()) as db:
            found = db.execute(
                "SELECT count(came.batch) FROM ledger LEFT JOIN came"
                " ON came.batch = ledger.batch AND sql = ''"
                " GROUP BY ledger.batch ORDER BY ledger.batch"
            )
            return [count for (count,) in found]

    def repeated(self) -> list[int]:
        """Return the micro-batches that came again."""
        with closing(self._connect()) as db:
            return [batch for (batch,) in db.execute("SELECT batch FROM again")]

    def count(self, table: str = "%") -> int:
        """Return how many rows came, of all tables or of one."""
        with closing(self._connect()) as db:
            select = "SELECT count(*) FROM came WHERE sql = '' AND name LIKE ?"
            return int(db.execute(select, (table,)).fetchone()[0])

    def came(self, destination: str) -> list[Came]:
        """Return what came of a destination, in the total order."""
        with closing(self._connect()) as db:
            found = db.execute(
                "SELECT name, sql, body FROM came WHERE destination = ?"
                " ORDER BY seq, row",
                (destination,),
            )
            return [
                Came(name, sql, Change(*json.loads(body))) for name, sql, body in found
            ]

    def check(self, writer: Writer, destination: str = "example") -> None:
        """Fail unless exactly what was written came from there, in that order."""
        came = [each.change for each in self.came(destination) if not each.sql]
        wanted = [change for changes in writer.transactions for change in changes]
        assert len(came) == len(wanted), f"{len(came)} rows of {len(wanted)} came"
        for number, (one, other) in enumerate(zip(came, wanted, strict=True)):
            assert one == other, f"row {number} is {one} in the place of {other}"
        with closing(self._connect()) as db:
            found = db.execute(
                "SELECT version FROM came WHERE destination = ? AND sql = ''"
                " ORDER BY seq, row",
                (destination,),
            )
            versions = [version for (version,) in found]
        assert versions == sorted(versions), "transactions are not in their order"
        assert len(set(versions)) == len(writer.transactions)


def _told(row: Any) -> tuple[Any, ...]:
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


def wanted_rows(writer: Writer) -> int:
    """Return how many rows a writer wrote."""
    return sum(map(len, writer.transactions))
