"""Entries of one client, put together to transactions for a follower.

Batches are cut anywhere. A stream that begins again does so with a whole transaction,
or amid one, where a part of it was acked.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from canal_server.client import EntryType, EventType
from soak.checker import Row, Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.client import Entry

    Part = tuple[str, list[Row]]  # of a transaction: its GTID, and the first rows
    from soak.checker import Follower

MARK = re.compile(r"/\* soak:(\d+) \*/")
PARTS_MAX = 64
ACKS = 8  # how many may have been sent and not accepted
ROWS = (EventType.INSERT, EventType.UPDATE, EventType.DELETE)
# Servers write these themselves, and without comments.
REWRITTEN = re.compile(r"DROP TABLE", re.IGNORECASE)


class EntryReader:
    """Gives a follower what a client receives."""

    def __init__(
        self,
        follower: Follower,
        *,
        begins: bool,
    ) -> None:
        """Take the follower; `begins`: transactions have a BEGIN."""
        self._follower = follower
        self._begins = begins
        self._rows: list[Row] = []
        self._gtid = ""  # of these rows
        # What may have been acked of a transaction that was open, at the last acks.
        self._acks: deque[list[Part]] = deque(maxlen=ACKS)
        self._parts: list[Part] = []  # the same after a resume, until an END

    def take(self, entries: Iterable[Entry]) -> None:
        """Take the entries of a message. Raises Violation."""
        for entry in entries:
            kind = entry.entry_type
            if kind == EntryType.TRANSACTIONBEGIN:
                if self._rows:
                    raise Violation(f"{self._follower.name}: a BEGIN amid rows")
                self._parts = []  # it is there from its begin on
            elif kind == EntryType.TRANSACTIONEND:
                self._end(entry.header.gtid)
            elif entry.header.event_type in ROWS:
                self._gtid = entry.header.gtid
                self._rows += self._rows_of(entry)
            elif kind == EntryType.ROWDATA:
                self._statement(entry)

    def acked(self) -> None:
        """Note that all that arrived was acked."""
        own = [(self._gtid, self._rows)] if self._rows else []
        # Nothing, or more, arrived of what was open before.
        more = [(gtid, [*part, *self._rows]) for gtid, part in self._parts]
        self._acks.append([*own, *more])
        self._rows = list(self._rows)

    def resume(self) -> None:
        """Expect the stream to begin again."""
        self._parts = [part for each in self._acks for part in each][-PARTS_MAX:]
        self._rows = []
        self._follower.resume()

    def _end(self, gtid: str) -> None:
        rows, self._rows = self._rows, []
        parts, self._parts = self._parts, []
        for of, part in parts:
            # Only where it goes on amid a transaction is it a whole one with a part.
            if of == gtid and self._follower.whole([*part, *rows]):
                self._follower.transaction([*part, *rows])
                return
        self._follower.transaction(rows)

    def _statement(self, entry: Entry) -> None:
        sql = entry.row_change().sql
        header = entry.header
        table = f"{header.schema_name}.{header.table_name}"
        number = statement_number(self._follower, sql, table)
        if number is None:
            return  # a statement of nobody's here
        if self._rows:
            raise Violation(f"{self._follower.name}: {sql:.200} amid a transaction")
        self._follower.statement(number)

    def _rows_of(self, entry: Entry) -> list[Row]:
        header, change = entry.header, entry.row_change()
        assert isinstance(change.event_type, EventType)
        table = f"{header.schema_name}.{header.table_name}"
        return [
            Row(
                table,
                change.event_type.name,
                row.before,
                row.after,
            )
            for row in change.row_datas
        ]


def statement_number(follower: Follower, sql: str, table: str) -> int | None:
    """Return the number of a statement of ours; None of anybody else's."""
    found = MARK.search(sql)
    if found:
        return int(found[1])
    return follower.next_drop(table) if REWRITTEN.match(sql) else None
