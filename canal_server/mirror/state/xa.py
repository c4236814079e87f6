"""Prepared XA transactions: which tables have their rows, should they be rolled back.

The binlog has the rows when a transaction is prepared, and the lake has them from then
on. The commit or rollback follows later and gives only the transaction's name. Tables
with rows of a rolled-back transaction must be copied again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from canal_server.model.entry import EventType
from canal_server.spark.options.source_options import TableName
from canal_server.spark.packed.packed_rows import ROWS, STATEMENT, XA_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.spark.packed.packed_rows import Packed

KEPT_MAX: Final = 1000  # transactions; those of one phase never log an end in MySQL
_WORDS: Final = {
    EventType.XACOMMIT.name: "XA COMMIT",
    EventType.XAROLLBACK.name: "XA ROLLBACK",
}


Seqs = dict[TableName, int]


def is_of_xa(item: Packed) -> bool:
    """Check whether an item is for `PreparedXa`, not a statement about a table."""
    return item.kind == STATEMENT and (
        item.event_type == XA_ROWS or item.event_type in _WORDS
    )


@dataclass(slots=True)
class PreparedXa:
    """The tables of each transaction that may be rolled back, by transaction name.

    Beyond a limit, only the tables are kept, in `forgotten`. Each table has the number
    of the position that reports the last of its rows: a copy that begins after that
    never had the rows that are rolled back.
    """

    tables: dict[str, Seqs] = field(default_factory=dict)
    forgotten: Seqs = field(default_factory=dict)
    is_used: bool = False  # XA transactions occurred, on any tables
    # Of the current batch, by where transactions end: their names, and the tables whose
    # last rows are there. Most parts of a large transaction report nothing else.
    _xids: dict[int, str] = field(default_factory=dict, compare=False, repr=False)
    _ends: dict[int, set[TableName]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def copy(self) -> PreparedXa:
        """Return a copy for the next batch."""
        tables = {xid: dict(names) for xid, names in self.tables.items()}
        return PreparedXa(tables, dict(self.forgotten), self.is_used)

    def accept(self, item: Packed) -> Seqs:
        """Process the next item; returns the tables whose rows were rolled back."""
        self.is_used |= is_of_xa(item)
        if item.kind == ROWS:
            self._ends.setdefault(item.version, set()).add(item.table)
            xid = self._xids.get(item.version)
            if xid in self.tables:
                self._add(xid, item.seq, item.table)
        elif item.event_type == XA_ROWS:
            if item.version not in self._xids:
                self._xids[item.version] = item.sql
                self.tables.pop(
                    item.sql, None
                )  # an older transaction of that name has ended
                self._add(item.sql, item.seq, *self._ends.get(item.version, ()))
            self._add(item.sql, item.seq, item.table)
        elif item.event_type in _WORDS:
            xid = item.sql.removeprefix(_WORDS[item.event_type]).strip()
            found = self.tables.pop(xid, self.forgotten)
            if item.event_type == EventType.XAROLLBACK.name:
                return found
        return {}

    def _add(self, xid: str, seq: int, *names: TableName) -> None:
        self.tables.setdefault(xid, {}).update(dict.fromkeys(names, seq))
        while len(self.tables) > KEPT_MAX:
            oldest = next(iter(self.tables))
            for name, last in self.tables.pop(oldest).items():
                self.forgotten[name] = max(last, self.forgotten.get(name, 0))

    def to_json(self) -> dict[str, Any]:
        """Return the value that `from_json` reads."""
        return {
            "tables": {xid: listed(names) for xid, names in self.tables.items()},
            "forgotten": listed(self.forgotten),
            "is_used": self.is_used,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> PreparedXa:
        """Parse the value of `to_json`. Raises KeyError, TypeError, ValueError."""
        tables = {str(xid): seqs_of(names) for xid, names in values["tables"].items()}
        return cls(tables, seqs_of(values["forgotten"]), bool(values["is_used"]))


def listed(names: Seqs) -> list[list[str | int]]:
    """Return the JSON value that `seqs_of` reads."""
    return [[name.schema, name.table, seq] for name, seq in names.items()]


def seqs_of(values: Iterable[tuple[str, str, int]]) -> Seqs:
    """Parse the value of `listed`. Raises TypeError, ValueError."""
    return {TableName(schema, table): int(seq) for schema, table, seq in values}
