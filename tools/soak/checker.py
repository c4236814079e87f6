"""What arrived, held against the ledger: at least once, in order, whole, and as it was.

A `Follower` is given transactions and statements one by one. What is new to it must be
what comes next in the chains of all its tables; what is not new must come as it did
before, and only where the stream began again. Between tables the clock decides: what
was committed before another one began may not come after that one.
Leaves out how entries become transactions (`soak.reader`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from soak.ledger import (
    Change,
    Item,
    Ledger,
    State,
    Values,
    digest_of,
    identity_of,
    names_of,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

LAST = 12  # items that a message shows
SKIPPED = (State.UNCOMMITTED, State.EITHER)


class Violation(Exception):  # noqa: N818  # it reads as what it says
    """Something was lost, doubled, truncated, out of order or not what was written."""


@dataclass(frozen=True, slots=True)
class Row:
    """A changed row as it arrived; the table with its schema."""

    table: str
    kind: str
    before: Values
    after: Values


class Follower:
    """Follows one stream of a source's changes.

    `accepts` says which tables it is of; `statements`: those on tables have to come,
    too (else they may); `again`: it may begin again, at `resume`; `ordered`: columns
    come in their order.
    """

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        accepts: Callable[[str], bool],
        *,
        statements: bool,
        again: bool = True,
        ordered: bool = True,
    ) -> None:
        self.name = name
        self.order: list[int] = []  # numbers of items in the order they arrived first
        self.repeated = 0
        self.resumes = 0
        self.newest_at = 0.0  # wall clock of the newest item's commit
        self._ledger = ledger
        self._accepts = accepts
        self._statements = statements
        self._again, self._ordered = again, ordered
        self._where: dict[int, int] = {}
        self._at = 0  # index in `order` of what comes next; its length: a new item
        self._loose = False  # the stream began again, and nothing arrived since
        self._next: dict[str, int] = {}  # by table: index in its chain
        self._newest_start_s = 0.0
        self._last: deque[str] = deque(maxlen=LAST)

    def resume(self) -> None:
        """Allow the stream to begin again, not later than what arrived last."""
        if self._again:
            self._loose = True
            self.resumes += 1
            self._last.append("(resumed)")

    def visible(self, item: Item) -> list[list[Change]]:
        """Return what of an item is to come, by statement."""
        found = [
            [change for change in each if self._accepts(change.identity.table)]
            for each in item.rows
        ]
        return [each for each in found if each]

    def whole(self, rows: Sequence[Row]) -> Item | None:
        """Return the item that these rows are all of; None if there is none."""
        item = self._find(rows)
        return item if item is not None and not self._unlike(item, rows) else None

    def transaction(self, rows: Sequence[Row]) -> None:
        """Take a transaction. Raises Violation."""
        rows = [row for row in rows if self._accepts(row.table)]
        if not rows:
            return
        item = self._find(rows)
        if item is None:
            raise self._violation(f"nobody wrote {rows[0]}")
        if problem := self._unlike(item, rows):
            raise self._violation(f"{item}: {problem}")
        self._take(item)

    def statement(self, number: int) -> None:
        """Take a statement on tables by its number. Raises Violation."""
        if self._at and self.order[self._at - 1] == number and not self._loose:
            return  # one statement may be several entries
        item = self._ledger.items[number]
        if any(map(self._accepts, item.indexes)):
            self._take(item)

    def next_drop(self, table: str) -> int | None:
        """Return the number of the next statement that drops a table.

        While items come again, of the next one among those.
        """
        chain = self._ledger.chains.get(table, [])
        if not self._loose:
            for number in self.order[self._at :]:
                item = self._ledger.items[number]
                if item in chain and item.sql.startswith("DROP TABLE"):
                    return number
        for item in chain[self._next.get(table, 0) :]:
            if (
                item.sql.startswith("DROP TABLE")
                and item.state is not State.UNCOMMITTED
            ):
                return item.number
        return None

    def missing(self) -> list[Item]:
        """Return all that was committed and has not come."""
        found = {}
        for table, chain in list(self._ledger.chains.items()):
            if self._accepts(table):
                for item in chain[self._next.get(table, 0) :]:
                    if self._must_come(item):
                        found[item.number] = item
        return list(found.values())

    # --- one item ---------------------------------------------------------------------

    def _take(self, item: Item) -> None:
        self._last.append(str(item))
        if item.state is State.UNCOMMITTED:
            raise self._violation(f"{item} arrived, which was never committed")
        index = self._where.get(item.number)
        if self._loose:
            self._loose = False
            if index is not None and index < self._at:
                self._at = index
        if self._at < len(self.order):
            expected = self.order[self._at]
            if expected != item.number:
                next_item = self._ledger.items[expected]
                raise self._violation(f"{item} arrived again instead of {next_item}")
            self._at += 1
            self.repeated += 1
            return
        if index is not None:
            raise self._violation(f"{item} arrived twice, and nothing began again")
        self._take_new(item)

    def _take_new(self, item: Item) -> None:
        for table, index in item.indexes.items():
            if not self._accepts(table):
                continue
            chain = self._ledger.chains[table]
            for other in chain[self._next.get(table, 0) : index]:
                if self._must_come(other):
                    raise self._violation(f"{item} arrived, and {other} did not")
            self._next[table] = index + 1
        if item.returned_s < self._newest_start_s:
            raise self._violation(
                f"{item} arrived after one that began "
                f"{self._newest_start_s - item.returned_s:.3f} s after its commit"
            )
        self._newest_start_s = max(self._newest_start_s, item.started_s)
        self.newest_at = max(self.newest_at, item.committed_at)
        self._where[item.number] = len(self.order)
        self.order.append(item.number)
        self._at = len(self.order)

    def _must_come(self, item: Item) -> bool:
        if item.sql and not self._statements:
            return False
        return item.state not in SKIPPED

    def _find(self, rows: Sequence[Row]) -> Item | None:
        for row in rows:
            identity = identity_of(row.table, row.kind, row.before, row.after)
            return self._ledger.find(identity)
        return None

    def _unlike(self, item: Item, rows: Sequence[Row]) -> str:
        """Return in what rows differ from an item's; empty when they do not."""
        received = iter(rows)
        count = 0
        for expected in self.visible(item):
            left = {change.identity: change for change in expected}
            for _ in expected:
                row = next(received, None)
                if row is None:
                    return f"ends after {count} rows; the next ones are {list(left)}"
                identity = identity_of(row.table, row.kind, row.before, row.after)
                if identity not in left:
                    return f"row {count} is {row}, expected one of {list(left)}"
                change = left.pop(identity)
                names = names_of(row.before, row.after) if self._ordered else None
                same = names in (None, change.names)
                received_digest = digest_of(row.before, row.after, change.documents)
                if not same or change.digest != received_digest:
                    return f"row {count}: {self._difference(change, row)}"
                count += 1
        extra = next(received, None)
        return f"has a row too many: {extra}" if extra else ""

    def _difference(self, change: Change, row: Row) -> str:
        shown = list(_differences(self._ledger.values(change), row, change.documents))
        return f"{row.kind} of {row.table}: {'; '.join(shown) or 'long values differ'}"

    def _violation(self, what: str) -> Violation:
        before = "\n  ".join(self._last)
        return Violation(f"{self.name}: {what}\nthe last that arrived:\n  {before}")


def _differences(
    written: list[Values], row: Row, documents: Collection[str]
) -> Iterator[str]:
    for side, (expected, received) in {
        "before": (written[0], row.before),
        "after": (written[1], row.after),
    }.items():
        if list(expected) != list(received):
            yield f"columns {side} are {list(received)}, were {list(expected)}"
        for name in expected.keys() & received.keys():
            was, now = expected[name], received[name]
            same = plain({name: was}, documents) == plain({name: now}, documents)
            if not same and not (was and "… (" in was):
                yield f"{side}.{name} is {now!r:.200}, was {was!r:.200}"
