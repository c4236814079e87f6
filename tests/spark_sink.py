"""A sink that takes each micro-batch once: SQLite with a ledger of batches.

What a stream delivered is compared with what a writer (`ledger.Writer`) wrote.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ledger import Change

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Writer

COLUMNS = (
    "destination", "op", "before", "after", "_commit_version", "_seq", "_row",
)  # fmt: skip


class Sink:
    """Rows of a generic stream, in a file; `apply` is for `foreachBatch`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with closing(self._connect()) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS ledger (batch INTEGER PRIMARY KEY)")
            db.execute(
                "CREATE TABLE IF NOT EXISTS came"
                " (batch, destination, version, seq, row, body)"
            )
            db.execute("CREATE TABLE IF NOT EXISTS again (batch)")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.file, timeout=60)

    def apply(self, frame: Any, batch: int) -> None:
        """Take a micro-batch, unless it was taken; it must be the same then."""
        rows = sorted(
            (
                row["destination"],
                row["_commit_version"],
                row["_seq"],
                row["_row"],
                _body(row),
            )
            for row in frame.select(*COLUMNS).where("NOT is_ddl").collect()
        )
        with closing(self._connect()) as db, db:
            known = db.execute("SELECT 1 FROM ledger WHERE batch = ?", (batch,))
            if known.fetchone():
                found = db.execute(
                    "SELECT destination, version, seq, row, body FROM came"
                    " WHERE batch = ?",
                    (batch,),
                )
                before = sorted(found.fetchall())
                assert before == rows, f"batch {batch} is not what it was"
                db.execute("INSERT INTO again VALUES (?)", (batch,))
                return
            db.execute("INSERT INTO ledger VALUES (?)", (batch,))
            db.executemany(
                "INSERT INTO came VALUES (?, ?, ?, ?, ?, ?)",
                [(batch, *row) for row in rows],
            )

    def batches(self) -> list[int]:
        """Return how many rows each micro-batch had."""
        with closing(self._connect()) as db:
            found = db.execute(
                "SELECT count(came.batch) FROM ledger LEFT JOIN came"
                " USING (batch) GROUP BY batch ORDER BY batch"
            )
            return [count for (count,) in found]

    def repeated(self) -> list[int]:
        """Return the micro-batches that came again."""
        with closing(self._connect()) as db:
            return [batch for (batch,) in db.execute("SELECT batch FROM again")]

    def count(self) -> int:
        """Return how many rows came."""
        with closing(self._connect()) as db:
            return int(db.execute("SELECT count(*) FROM came").fetchone()[0])

    def check(self, writer: Writer, destination: str = "example") -> None:
        """Fail unless exactly what was written came from there, in that order."""
        with closing(self._connect()) as db:
            found = db.execute(
                "SELECT body, version FROM came WHERE destination = ?"
                " ORDER BY seq, row",
                (destination,),
            ).fetchall()
        came = [Change(*json.loads(body)) for body, _ in found]
        wanted = [change for changes in writer.transactions for change in changes]
        assert len(came) == len(wanted), f"{len(came)} rows of {len(wanted)} came"
        for number, (one, other) in enumerate(zip(came, wanted, strict=True)):
            assert one == other, f"row {number} is {one} in the place of {other}"
        versions = [version for _, version in found]
        assert versions == sorted(versions), "transactions are not in their order"
        assert len(set(versions)) == len(writer.transactions)


def _body(row: Any) -> str:
    before, after = (
        {} if image is None else dict(image) for image in (row["before"], row["after"])
    )
    return json.dumps([row["op"], before, after], sort_keys=True)


def wanted_rows(writer: Writer) -> int:
    """Return how many rows a writer wrote."""
    return sum(map(len, writer.transactions))
