"""What was written to one source: each transaction's rows, and statements on tables.

Writers note an item before they commit it, as it may arrive before the commit returns.
All that concerns a table stands in one chain, in the order in which it was committed:
who writes to a table keeps others off until then. What became of an item whose commit
was cut off is settled later, before anything else is done to its tables.
Leaves out what arrives (`soak.checker`), and where the values come from (`soak.load`).
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

ID, TX, N = "soak_id", "soak_tx", "soak_n"  # columns that each table has
SHOWN_MAX = 200  # characters of a value in a message

# Codes that the servers do not convert; the decoder knows their characters.
UNCONVERTED = b"\x8a\x8f\x98\x9a\x9f\xaa\xc0\xff".decode(
    "cp1256"
) + b"\xa4\xa5\xaa".decode("iso8859-7")
# What servers show for bytes that are no characters: MySQL a question mark, a decoder
# the sign for it. How many bytes belong to it, and so where the text resumes, is up to
# each: what follows is not compared.
MALFORMED = re.compile(f"[?\ufffd{UNCONVERTED}].*", re.DOTALL)

Values = dict[str, str | None]
Version = tuple[str, str, str]  # of a row: its id, who wrote it last, and with what


class State(enum.Enum):
    """What is known of an item."""

    OPEN = "open"  # it may be committed, or not
    DONE = "done"
    UNCOMMITTED = "uncommitted"
    EITHER = "either"  # nobody can know: it may arrive, or not


@dataclass(frozen=True, slots=True)
class Identity:
    """Which change of which row it is; no two changes of a run have the same one."""

    table: str
    kind: str
    before: Version | None
    after: Version | None


@dataclass(frozen=True, slots=True)
class Change:
    """One row's change; its values are known by a digest, and stand in a file."""

    identity: Identity
    digest: bytes
    names: int  # a hash of the columns' names in their order
    span: tuple[int, int]  # in the file: offset and length
    documents: frozenset[str]  # names of the columns that were JSON then


@dataclass(eq=False, slots=True)
class Item:
    """A transaction, as the changes of each of its statements; or one on tables.

    Rows of one statement may come in any order.
    """

    number: int
    rows: tuple[tuple[Change, ...], ...]
    sql: str  # of a statement, else empty
    indexes: dict[str, int]  # by each table: the index in its chain
    started_s: float
    state: State = State.OPEN
    returned_s: float = float("inf")
    committed_at: float = 0.0  # wall clock, for delays

    def __str__(self) -> str:
        tables = ", ".join(self.indexes)
        what = self.sql[:SHOWN_MAX] or f"{sum(map(len, self.rows))} rows"
        return f"item {self.number} ({what}; {tables}; {self.state.value})"


def version_of(values: Mapping[str, str | None]) -> Version | None:
    """Return which version of a row these values are; None without any."""
    if not values:
        return None
    return str(values.get(ID)), str(values.get(TX)), str(values.get(N))


def identity_of(table: str, kind: str, before: Values, after: Values) -> Identity:
    """Return which change it is."""
    return Identity(table, kind, version_of(before), version_of(after))


def same_document(value: str | None) -> str | None:
    """Return one text for all that mean one document of JSON.

    ALTER TABLE … ADD … JSON NOT NULL gives rows a document of no bytes: null in MySQL,
    an empty text in entries.
    """
    if value == "":
        return "null"
    try:
        return value and json.dumps(json.loads(value), sort_keys=True)
    except ValueError:
        return value


def plain(values: Values, documents: Collection[str]) -> Values:
    """Return values with one text for all that mean the same.

    `documents`: the columns of which it is one document of JSON.
    """
    return {
        name: same_document(value)
        if name in documents
        else value and MALFORMED.sub("?", value)
        for name, value in values.items()
    }


def digest_of(before: Values, after: Values, documents: Collection[str]) -> bytes:
    """Return what stands for all values."""
    both = [plain(before, documents), plain(after, documents)]
    text = json.dumps(both, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).digest()


def names_of(before: Values, after: Values) -> int:
    """Return what stands for the names of columns, in their order."""
    return hash((*before, None, *after))


@dataclass
class Ledger:
    """All items of one source; for many threads."""

    details: Path  # the file with the values
    chains: dict[str, list[Item]] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._index: dict[Identity, Item] = {}
        self._file = self.details.open("w+b")
        self._end = 0

    def close(self) -> None:
        """Close the file with the values."""
        self._file.close()

    def change(
        self,
        table: str,
        kind: str,
        before: Values,
        after: Values,
        documents: Collection[str] = (),
    ) -> Change:
        """Return a change of a row for an item that is noted soon.

        `documents`: the columns that are JSON now; a table that is recreated may have
        others by the same names.
        """
        identity = identity_of(table, kind, before, after)
        text = json.dumps([_short(before), _short(after)]).encode()
        with self._lock:
            self._file.seek(self._end)
            self._file.write(text)
            span = (self._end, len(text))
            self._end += len(text)
        digest = digest_of(before, after, documents)
        names = names_of(before, after)
        return Change(identity, digest, names, span, frozenset(documents))

    def note_rows(self, rows: Sequence[Sequence[Change]]) -> Item:
        """Note a transaction that is committed next."""
        tables = dict.fromkeys(c.identity.table for each in rows for c in each)
        with self._lock:
            item = self._noted(list(tables), tuple(map(tuple, rows)), "")
            for each in rows:
                for change in each:
                    # A row may be deleted again whose first delete was not committed.
                    other = self._index.get(change.identity)
                    assert other is None or other.state is State.UNCOMMITTED, change
                    self._index[change.identity] = item
        return item

    def note_statement(self, tables: Sequence[str], sql: str) -> Item:
        """Note a statement that is run next; its number is to stand in its text."""
        with self._lock:
            return self._noted(list(dict.fromkeys(tables)), (), sql)

    def settle(self, item: Item, state: State) -> None:
        """Say what became of an item."""
        with self._lock:
            if item.state is State.OPEN:
                item.returned_s = time.monotonic()
                item.committed_at = item.committed_at or time.time()
            item.state = state

    def find(self, identity: Identity) -> Item | None:
        """Return the item with a change."""
        return self._index.get(identity)

    def values(self, change: Change) -> Any:
        """Return the values of a change, long ones cut."""
        with self._lock:
            self._file.flush()
            self._file.seek(change.span[0])
            return json.loads(self._file.read(change.span[1]))

    def count(self) -> int:
        """Return how many items were committed, or may be."""
        with self._lock:
            return sum(item.state is not State.UNCOMMITTED for item in self.items)

    def _noted(
        self, tables: list[str], rows: tuple[tuple[Change, ...], ...], sql: str
    ) -> Item:
        """Put an item at the end of its chains. Requires holding the lock."""
        assert self._lock.locked()
        indexes = {}
        for table in tables:
            chain = self.chains.setdefault(table, [])
            indexes[table] = len(chain)
        item = Item(len(self.items), rows, sql, indexes, time.monotonic())
        item.committed_at = time.time()
        self.items.append(item)
        for table in tables:
            self.chains[table].append(item)
        return item


def _short(values: Values) -> Values:
    return {
        name: value
        if value is None or len(value) <= SHOWN_MAX
        else f"{value[:SHOWN_MAX]}… ({len(value)} characters)"
        for name, value in values.items()
    }
