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

COLUMNS = ("op", "before", "after", "_commit_version", "_seq", "_row")


class Sink:
    """Rows of a generic stream, in a file; `apply` is for `foreachBatch`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with closing(self._connect()) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS ledger (batch INTEGER PRIMARY KEY)")
            db.execute(
                "CREATE TABLE IF NOT EXISTS came (batch, version, seq, row, body)"
            )
            db.execute("CREATE TABLE IF NOT EXISTS again (batch)")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.file, timeout=60)

    def apply(self, frame: Any, batch: int) -> None:
        """Take a micro-batch, unless it was taken; it must be the same then."""
        rows = sorted(
            (row["_commit_version"], row["_seq"], row["_row"], _body(row))
            for row in frame.select(*COLUMNS).where("NOT is_ddl").collect()
        )
        with closing(self._connect()) as db, db:
            known = db.execute("SELECT 1 FROM ledger WHERE batch = ?", (batch,))
            if known.fetchone():
                select = "SELECT version, seq, row, body FROM came WHERE batch = ?"
                before = sorted(db.execute(select, (batch,)).fetchall())
                assert before == rows, f"batch {batch} is not what it was"
                db.execute("INSERT INTO again VALUES (?)", (batch,))
                return
            db.execute("INSERT INTO ledger VALUES (?)", (batch,))
            db.executemany(
                "INSERT INTO came VALUES (?, ?, ?, ?, ?)",
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

    def changes(self) -> list[Change]:
        """Return what came, in the total order."""
        with closing(self._connect()) as db:
            found = db.execute("SELECT body FROM came ORDER BY seq, row").fetchall()
        return [Change(*json.loads(body)) for (body,) in found]

    def check(self, writer: Writer) -> None:
        """Fail unless exactly what was written came, in that order."""
        wanted = [change for changes in writer.transactions for change in changes]
        came = self.changes()
        assert len(came) == len(wanted), f"{len(came)} rows of {len(wanted)} came"
        for number, (one, other) in enumerate(zip(came, wanted, strict=True)):
            assert one == other, f"row {number} is {one} in the place of {other}"
        with closing(self._connect()) as db:
            orders = db.execute("SELECT version, seq FROM came ORDER BY seq, row")
            versions = [version for version, _ in orders]
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
