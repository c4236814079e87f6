"""XA transactions that are prepared: whose rows they have, should they be rolled back.

The binlog has the rows when a transaction is prepared, and they are in the lake from
then on. Whether it is committed or rolled back comes later, and tells nothing but its
name. Tables with rows of one that was rolled back have to be copied again.
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

KEPT_MAX: Final = 1000  # transactions; MySQL's in one phase never tell of an end
_WORDS: Final = {
    EventType.XACOMMIT.name: "XA COMMIT",
    EventType.XAROLLBACK.name: "XA ROLLBACK",
}


Seqs = dict[TableName, int]


def is_of_xa(item: Packed) -> bool:
    """Tell whether an item is for `PreparedXa` and no statement about a table."""
    return item.kind == STATEMENT and (
        item.event_type == XA_ROWS or item.event_type in _WORDS
    )


@dataclass(slots=True)
class PreparedXa:
    """The tables of each transaction that may be rolled back, by its name.

    Of those that are too many it is known that they have rows in `forgotten`. With each
    table stands the number of the place where the last of its rows are told of: what is
    rolled back was never in a copy that begins behind that.
    """

    tables: dict[str, Seqs] = field(default_factory=dict)
    forgotten: Seqs = field(default_factory=dict)
    is_used: bool = False  # there were transactions of XA, on whatever tables
    # Of the batch at hand, by where transactions end: their names, and the tables with
    # rows that are the last of theirs. Most parts of a large one tell nothing else.
    _xids: dict[int, str] = field(default_factory=dict, compare=False, repr=False)
    _ends: dict[int, set[TableName]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def copy(self) -> PreparedXa:
        """Return another one for the next batch."""
        tables = {xid: dict(names) for xid, names in self.tables.items()}
        return PreparedXa(tables, dict(self.forgotten), self.is_used)

    def take(self, item: Packed) -> Seqs:
        """Take the next item; returns the tables of which rows were rolled back."""
        self.is_used |= is_of_xa(item)
        if item.kind == ROWS:
            self._ends.setdefault(item.version, set()).add(item.table)
            xid = self._xids.get(item.version)
            if xid in self.tables:
                self._add(xid, item.seq, item.table)
        elif item.event_type == XA_ROWS:
            if item.version not in self._xids:
                self._xids[item.version] = item.sql
                self.tables.pop(item.sql, None)  # an older one of that name has ended
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
        """Return what `from_json` reads."""
        return {
            "tables": {xid: listed(names) for xid, names in self.tables.items()},
            "forgotten": listed(self.forgotten),
            "is_used": self.is_used,
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> PreparedXa:
        """Read what `to_json` gave. Raises KeyError, TypeError, ValueError else."""
        tables = {str(xid): seqs_of(names) for xid, names in told["tables"].items()}
        return cls(tables, seqs_of(told["forgotten"]), bool(told["is_used"]))


def listed(names: Seqs) -> list[list[str | int]]:
    """Return what `seqs_of` reads, for JSON."""
    return [[name.schema, name.table, seq] for name, seq in names.items()]


def seqs_of(told: Iterable[tuple[str, str, int]]) -> Seqs:
    """Read what `listed` gave. Raises TypeError, ValueError else."""
    return {TableName(schema, table): int(seq) for schema, table, seq in told}
