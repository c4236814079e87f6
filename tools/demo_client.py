"""The demo's client: takes changes, keeps a copy of the tables, measures.

It stands on `canal_server.client` alone, as any program of a user would.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from canal_server.client import CanalClient, Column, Entry, EntryType, Message
from canal_server.model.entry import DDL_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BATCH_SIZE = 4096  # units of 1 KiB
GET_SECONDS = 0.2  # how long one get waits; then others are looked after
QUIET_SECONDS_MAX = 30.0  # without a change although some are due
ROWS_COUNT = "rowsCount"  # a property in the header of an entry with rows

Place = tuple[str, int]  # binlog file and offset: tells entries apart


class NothingCame(Exception):  # noqa: N818  # what the demo ends with
    """Changes that are due were not delivered."""


@dataclass(slots=True)
class Counts:
    """What was delivered, without what came again."""

    rows: int = 0
    statements: int = 0
    transactions: int = 0
    repeated: int = 0  # rows that came again


@dataclass(slots=True)
class Copy:
    """Tables as the changes tell: by name, the rows by key, the values as text."""

    tables: dict[str, dict[str, dict[str, str | None]]] = field(default_factory=dict)

    def apply(self, entry: Entry) -> None:
        """Make the changes of an entry, if it holds rows; once more does no harm."""
        if not rows_of(entry):
            return
        table = self.tables.setdefault(entry.header.table_name, {})
        for row in entry.row_change().row_datas:
            for key in _keys(row.before_columns):
                table.pop(key, None)
            for key in _keys(row.after_columns):
                table[key] = row.after

    def differences(self, name: str, rows: Sequence[dict[str, object]]) -> list[str]:
        """Compare with a table's real rows; returns a line per difference."""
        copied = self.tables.get(name, {})
        found = [
            f"{name} {row['id']}: the table has {row}, the copy has {copy}"
            for row in rows
            if (copy := copied.get(str(row["id"]))) is None or not _same(row, copy)
        ]
        gone = copied.keys() - {str(row["id"]) for row in rows}
        return found + [f"{name} {key}: only the copy has it" for key in sorted(gone)]


class Follower:
    """A subscribed client; what it yields is acked when the next is asked for."""

    def __init__(self, destination: str, schema: str) -> None:
        self.counts = Counts()
        self.last_end: Place = ("", 0)  # of the last transaction that was whole
        self._destination = destination
        self._schema = schema
        self._client = CanalClient()
        self._last: Place = ("", 0)  # of the last entry that came
        self._known: Place = ("", 0)  # the same when this connection began
        self._rows = 0  # in the transaction that is coming

    def connect(self, port: int) -> None:
        """Connect and subscribe; what was not acked comes again."""
        self._known = self._last
        self._client = CanalClient("127.0.0.1", port, self._destination)
        self._client.connect()
        self._client.subscribe(rf"{self._schema}\..*")

    def close(self) -> None:
        """Go away, without a word and without an ack."""
        self._client.close()

    def take(
        self, changes: int, *, ack_last: bool = True
    ) -> Iterator[tuple[Entry, float, bool]]:
        """Yield entries until so many new changes and their transaction's end came.

        A change is a row or a statement. Each entry comes with the time of its
        arrival and whether it came before. Raises NothingCame.
        """
        wanted = self.counts.rows + self.counts.statements + changes
        give_up_at = time.monotonic() + QUIET_SECONDS_MAX
        whole = False
        while not whole:
            message = self._client.get(BATCH_SIZE, GET_SECONDS)
            arrived = time.monotonic()
            if message:
                give_up_at = arrived + QUIET_SECONDS_MAX
            elif arrived > give_up_at:
                missing = wanted - self.counts.rows - self.counts.statements
                raise NothingCame(
                    f"{missing:,} changes did not come within {QUIET_SECONDS_MAX:g} s"
                )
            for entry in message.entries:
                yield entry, arrived, self._note(entry)
                whole = self._is_whole(entry, wanted) or whole
            if message and (ack_last or not whole):
                self._ack(message)

    def _ack(self, message: Message) -> None:
        self._client.ack(message.id)
        header = message.entries[-1].header
        self.last_end = (header.logfile_name, header.logfile_offset)

    def _note(self, entry: Entry) -> bool:
        """Count an entry; returns whether it came before."""
        rows = rows_of(entry)
        self._last = (entry.header.logfile_name, entry.header.logfile_offset)
        if self._last <= self._known:
            self.counts.repeated += rows
            return True
        self._rows += rows
        self.counts.rows += rows
        self.counts.statements += is_statement(entry)
        if entry.entry_type == EntryType.TRANSACTIONEND:
            # Those of other schemas come without their rows.
            self.counts.transactions += bool(self._rows)
            self._rows = 0
        return False

    def _is_whole(self, entry: Entry, wanted: int) -> bool:
        """Tell whether all came and nothing more belongs to the last of it."""
        if self.counts.rows + self.counts.statements < wanted:
            return False
        return entry.entry_type == EntryType.TRANSACTIONEND or is_statement(entry)


def rows_of(entry: Entry) -> int:
    """Return how many rows an entry holds; only its header is looked at."""
    if entry.entry_type != EntryType.ROWDATA:
        return 0
    return sum(int(p.value) for p in entry.header.props if p.key == ROWS_COUNT)


def is_statement(entry: Entry) -> bool:
    """Tell whether an entry is about a change of tables."""
    kind = entry.entry_type
    return kind == EntryType.ROWDATA and entry.header.event_type in DDL_TYPES


def _keys(columns: Sequence[Column]) -> list[str]:
    """Return the value of the key column, in a list that is empty without columns."""
    return [column.value for column in columns if column.is_key]


def _same(row: dict[str, object], copy: dict[str, str | None]) -> bool:
    """Compare values; a column that was added later is NULL in older rows."""
    return all(_equal(value, copy.get(name)) for name, value in row.items())


def _equal(value: object, text: str | None) -> bool:
    if value is None or text is None:
        return value is text
    return bool(type(value)(text) == value)  # type: ignore[call-arg]
