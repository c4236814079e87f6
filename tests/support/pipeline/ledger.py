"""What was written to a table, and a checker of what arrives of it at a client.

A `Writer` writes numbered transactions; their changes stand in a list before they are
committed. A `Checker` follows a client's stream through that list: nothing is lost or
doubled, commit order is kept, transactions are contiguous. After a `resume` the stream
may begin again, but only with a whole transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.client import EntryType, EventType
from canal_server.model.positions import binlog_file_number

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from servers import Server

    from canal_server.client import Entry

ROWS_OF_A_STATEMENT_MAX = 4
ROWS_OF_A_TRANSACTION_MAX = 12
TEXT_MAX = 300

Values = dict[str, "str | None"]


@dataclass(frozen=True)
class Change:
    """One row's change; `before` of an insert and `after` of a delete are empty."""

    kind: str
    before: Values
    after: Values


@dataclass(frozen=True)
class Amid:
    """A position inside of a transaction, after an entry."""

    done: int
    index: int
    position: tuple[int, int]


@dataclass(frozen=True)
class Mark:
    """How far a stream got, and how it may continue without changes since a resume."""

    done: int
    index: int
    open: bool
    position: tuple[int, int]
    may_begin_at: range | None
    amid: tuple[Amid, ...]


class Writer:
    """Writes transactions to a table of its own and remembers their changes."""

    def __init__(
        self,
        server: Server,
        schema: str,
        rng: random.Random,
        *,
        table: str = "ledger",
        session: Iterable[str] = (),
    ) -> None:
        """Make the table; `session` are statements for the writing connection."""
        self.name = f"{schema}.{table}"
        self.schema, self.table = schema, table
        self.transactions: list[list[Change]] = []
        self._server = server
        self._rng = rng
        self.session = tuple(session)
        self._rows: dict[int, Values] = {}
        self._next_id = 1
        server.execute(
            *self.session,
            f"CREATE TABLE {self.name}"
            " (id INT PRIMARY KEY, tx INT NOT NULL, n INT NOT NULL, text TEXT)",
        )

    def go_to(self, server: Server) -> None:
        """Write to another server from now on, which has the table."""
        self._server = server

    def write(self, count: int, *, rows: int | None = None) -> None:
        """Write transactions, of so many rows each or of a random number."""
        with self._server.connect(autocommit=False) as connection:
            cursor = connection.cursor()
            for statement in self.session:
                cursor.execute(statement)
            for _ in range(count):
                changes: list[Change] = []
                statements = self._transaction(changes, rows)
                # First: it may arrive before the commit returns.
                self.transactions.append(changes)
                for statement, values in statements:
                    cursor.execute(statement, values)
                connection.commit()

    def _transaction(
        self, changes: list[Change], rows: int | None
    ) -> list[tuple[str, list[str | None]]]:
        """Make up a transaction; its first change has its number."""
        rng = self._rng
        expected = rows or rng.randint(1, ROWS_OF_A_TRANSACTION_MAX)
        statements = [self._insert(changes, 1)]
        while len(changes) < expected:
            kind = rng.choice(("insert", "update", "delete"))
            if kind == "insert":
                most = min(expected - len(changes), ROWS_OF_A_STATEMENT_MAX)
                statements.append(self._insert(changes, rng.randint(1, most)))
            elif kind == "update":
                statements.append(self._update(changes))
            elif len(self._rows) > 1:
                statements.append(self._delete(changes))
        return statements

    def _values(self, row_id: int, changes: list[Change]) -> Values:
        rng = self._rng
        text = None
        if rng.random() > 0.1:
            text = rng.choice("aß中😀") * rng.randrange(TEXT_MAX)
        return {
            "id": str(row_id),
            "tx": str(len(self.transactions)),
            "n": str(len(changes)),
            "text": text,
        }

    def _insert(
        self, changes: list[Change], count: int
    ) -> tuple[str, list[str | None]]:
        parameters: list[str | None] = []
        for _ in range(count):
            after = self._values(self._next_id, changes)
            self._rows[self._next_id] = after
            self._next_id += 1
            parameters += after.values()
            changes.append(Change("INSERT", {}, after))
        rows = ", ".join(["(%s, %s, %s, %s)"] * count)
        return f"INSERT INTO {self.name} VALUES {rows}", parameters

    def _update(self, changes: list[Change]) -> tuple[str, list[str | None]]:
        row_id = self._rng.choice(list(self._rows))
        before, after = self._rows[row_id], self._values(row_id, changes)
        self._rows[row_id] = after
        changes.append(Change("UPDATE", before, after))
        columns = ", ".join(f"{column} = %s" for column in after)
        return (
            f"UPDATE {self.name} SET {columns} WHERE id = {row_id}",
            list(after.values()),
        )

    def _delete(self, changes: list[Change]) -> tuple[str, list[str | None]]:
        row_id = self._rng.choice(list(self._rows))
        changes.append(Change("DELETE", self._rows.pop(row_id), {}))
        return f"DELETE FROM {self.name} WHERE id = {row_id}", []


class Checker:
    """Follows what one client receives of a writer's transactions.

    A violation is an AssertionError, which shows the entries before it.
    """

    def __init__(self, writer: Writer, *, begins: bool) -> None:
        """Take the writer; `begins`: transactions begin with a BEGIN entry."""
        self.done = 0  # transactions that arrived with their END
        self.repeated = 0  # changes that arrived again
        self.entries = 0
        self.gtids: list[str] = []  # of the last entry of each transaction that ended
        # Which transaction a delivery begins with that resumes at this position.
        self.resumes_at: dict[tuple[str, int], int] = {}
        self.writer = writer
        self._begins = begins
        self._open = False  # a transaction began and did not end
        self._index = 0  # of the next change in the open transaction
        self._seen = 0  # changes that arrived at least once, in all transactions
        self._reached = (0, 0)  # the furthest transaction and change
        self._may_begin_at: range | None = None  # after a resume, until the first row
        self._amid: tuple[Amid, ...] = ()  # where it may go on as well
        self._position = (0, 0)
        self._last: list[str] = []

    def resume(
        self,
        earliest: int = 0,
        latest: int | None = None,
        *,
        amid: bool = False,
        acked: Mark | None = None,
    ) -> None:
        """Allow the stream to begin again at one of these transactions.

        By default at any up to the first that did not arrive with its END. With `amid`
        it may go on amid the open one, too, as if nothing had been: also where nothing
        came since the last such resume. With `acked` it may do so there, too: what
        arrived after it may count as acked or not.
        """
        latest = self._reached[0] if latest is None else latest
        self._may_begin_at = range(earliest, latest + 1)
        if not amid:
            self._amid = ()
        elif self._open:
            self._amid = (Amid(self.done, self._index, self._position),)
        if acked is not None and acked.open:
            self._amid += (Amid(acked.done, acked.index, acked.position),)
        if earliest == latest:
            # What is reported before the first row comes does not count what was not
            # acked.
            self.done = latest
        self._open = False
        self._index = 0
        self._position = (0, 0)
        self._last.append(f"resumed at {self._may_begin_at}")

    def has(self, count: int) -> bool:
        """Return whether so many transactions came, after a resume the rest too."""
        if self._may_begin_at is None:
            return self.done >= count
        return self._may_begin_at.start >= count

    @property
    def reached(self) -> int:
        """Return how many transactions arrived at least in part before."""
        return self._reached[0]

    def mark(self) -> Mark:
        """Remember how far the stream got, amid a transaction as well."""
        return Mark(
            self.done,
            self._index,
            self._open,
            self._position,
            self._may_begin_at,
            self._amid,
        )

    def rewind(self, mark: Mark) -> None:
        """Expect what arrived after the mark to come again.

        What began again after it may do so once more.
        """
        self.done, self._index = mark.done, mark.index
        self._open, self._position = mark.open, mark.position
        self._may_begin_at, self._amid = mark.may_begin_at, mark.amid
        self._last.append(f"rewound to {mark}")

    def take(self, entries: Iterable[Entry]) -> None:
        """Check the entries of a message."""
        for entry in entries:
            self._note(entry)
            self.entries += 1
            if entry.entry_type == EntryType.TRANSACTIONBEGIN:
                self._on_begin(entry)
            elif entry.entry_type == EntryType.TRANSACTIONEND:
                self._on_end(entry)
            elif entry.header.event_type in (
                EventType.INSERT,
                EventType.UPDATE,
                EventType.DELETE,
            ):
                self._on_rows(entry)
            # Others are statements, which tests look at themselves.

    def _note(self, entry: Entry) -> None:
        header = entry.header
        self._last.append(
            f"{entry.entry_type!r} {header.event_type!r} {header.schema_name}."
            f"{header.table_name} {header.logfile_name}:{header.logfile_offset}"
        )
        del self._last[:-12]
        position = (binlog_file_number(header.logfile_name), header.logfile_offset)
        self._check(position >= self._position, f"goes back from {self._position}")
        self._position = position

    def _on_begin(self, entry: Entry) -> None:
        self._check(self._begins, "a BEGIN, which this source does not have")
        self._check(not self._open, "a BEGIN inside of a transaction")
        self._open, self._index = True, 0
        self._amid = ()
        header = entry.header
        position = header.logfile_name, header.logfile_offset
        if self._may_begin_at is None:
            self.resumes_at[position] = self.done

    def _on_end(self, entry: Entry) -> None:
        self._go_on_amid(None)
        was_open, self._open = self._open, False
        if self._index == 0:
            # An empty transaction, or after a resume the END of the one before.
            allowed = was_open or self._may_begin_at is not None or not self._begins
            self._check(allowed, "an END without its transaction")
            return
        expected = len(self.writer.transactions[self.done])
        self._check(
            self._index == expected, f"END after {self._index} of {expected} rows"
        )
        self._index = 0
        self.done += 1
        self._reach(0)
        header = entry.header
        self.resumes_at[header.logfile_name, header.logfile_offset] = self.done
        del self.gtids[self.done - 1 :]
        self.gtids.append(header.gtid)

    def _on_rows(self, entry: Entry) -> None:
        header = entry.header
        expected_name = (self.writer.schema, self.writer.table)
        self._check(
            (header.schema_name, header.table_name) == expected_name, "another table"
        )
        change = entry.row_change()
        assert isinstance(change.event_type, EventType)
        kind = change.event_type.name
        changes = [Change(kind, row.before, row.after) for row in change.row_datas]
        self._go_on_amid(changes[0])
        self._check(self._open or not self._begins, "rows before their BEGIN")
        for each in changes:
            self._open = True
            self._on_change(each)

    def _on_change(self, change: Change) -> None:
        if self._may_begin_at is not None:
            self._begin_again(change)
        transactions = self.writer.transactions
        self._check(self.done < len(transactions), f"nobody wrote {change}")
        expected = transactions[self.done][self._index : self._index + 1]
        self._check(
            expected == [change],
            f"{change} instead of {expected} "
            f"({self.done}, {self._index}; furthest {self._reached})",
        )
        self._index += 1
        if (self.done, self._index) <= self._reached:
            self.repeated += 1
        self._reach(self._index)

    def _begin_again(self, change: Change) -> None:
        """Find the transaction that the stream goes on with."""
        assert self._may_begin_at is not None
        self._check(change.after.get("n") == "0", f"resumed amid one, at {change}")
        number = int(change.after["tx"] or "-1")
        self._check(
            number in self._may_begin_at,
            f"resumed at transaction {number}, not in {self._may_begin_at}",
        )
        self.done = number
        self._may_begin_at = None

    def _go_on_amid(self, change: Change | None) -> None:
        """Go on in a transaction that was open at the resume, where that is allowed.

        That is where this change comes next, or its END (None).
        """
        positions, self._amid = self._amid, ()
        if self._may_begin_at is None:
            return
        expected = [] if change is None else [change]
        for each in positions:
            transaction = self.writer.transactions[each.done]
            follows = transaction[each.index : each.index + 1]
            if each.position <= self._position and follows == expected:
                self._open, self.done, self._index = True, each.done, each.index
                self._may_begin_at = None
                return

    def _reach(self, index: int) -> None:
        self._reached = max(self._reached, (self.done, index))

    def _check(self, condition: bool, what: str) -> None:
        if not condition:
            before = "\n  ".join(self._last)
            raise AssertionError(f"{what}\nthe last entries, this one too:\n  {before}")
