"""Follows what an iterating client yields of a `ledger.Writer`'s transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger import Writer

    from canal_server.client import Change

KINDS = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}


class Followed:
    """Checks order and completeness; the stream may go back after `may_repeat` only.

    A violation is an AssertionError. Values are texts (`values="text"`).
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._known: list[tuple[object, ...]] = []  # all changes, in their order
        self._index: dict[tuple[object, ...], int] = {}
        self._ends = {0}  # numbers of changes that follow the end of a transaction
        self._loaded = 0  # transactions
        self._repeats = False
        self.next = 0  # the number of the change that is due
        self.reached = 0  # the number of the first change that never arrived
        self.repeated = 0
        self.resumes = 0

    @property
    def is_complete(self) -> bool:
        """Whether everything that was written arrived."""
        self._load()
        return self.next == len(self._known)

    @property
    def is_at_end_of_transaction(self) -> bool:
        """Whether the last change that arrived was the last of its transaction."""
        return self.next in self._ends

    def may_repeat(self) -> None:
        """Allow the stream to go back, as far as it has been."""
        self._repeats = True
        self.resumes += 1

    def take(self, changes: Iterable[Change]) -> None:
        """Check changes."""
        for change in changes:
            if change.kind in KINDS.values():
                self._take(_identity(change.kind, change.before, change.after))

    def _take(self, change: tuple[object, ...]) -> None:
        if change not in self._index:
            self._load()
        found = self._index.get(change)
        assert found is not None, f"a change that was not written: {change}"
        if found != self.next:
            assert self._repeats, f"change {found} instead of {self.next}"
            assert found <= self.reached, f"change {found} after {self.next - 1}: a gap"
            self.repeated += self.next - found
        self._repeats = False
        self.next = found + 1
        self.reached = max(self.reached, self.next)

    def _load(self) -> None:
        transactions = self._writer.transactions
        while self._loaded < len(transactions):
            for each in transactions[self._loaded]:
                change = _identity(KINDS[each.kind], each.before, each.after)
                assert change not in self._index, "changes of a ledger are unlike"
                self._index[change] = len(self._known)
                self._known.append(change)
            self._ends.add(len(self._known))
            self._loaded += 1


def _identity(kind: str, before: object, after: object) -> tuple[object, ...]:
    return (kind, _items(before), _items(after))


def _items(values: object) -> tuple[object, ...]:
    return tuple(values.items()) if isinstance(values, dict) else ()
