"""Evicts clients that were disconnected for long, so that others continue.

A cursor *retains* what it has not acked as long as its client is connected, and for a
while after; then it is *evictable*: its client loses the cursor when the ring needs
room. Who is disconnected is known elsewhere (`ports.Liveness`), and so is what happens
to an evicted client. Leaves out the ring itself, and all waiting.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from canal_server.store.counts import Slowest, lag_s_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from canal_server.ports import Liveness, TablePredicate
    from canal_server.store.cursor import Cursor
    from canal_server.store.ring import Ring

_CHECKED_MAX: Final = 16  # cursors that are updated to find those that lag


class NobodyEvictable:
    """A `ports.Liveness` for which no client is evictable."""

    def is_evictable(self, client_id: int) -> bool:
        """Return false."""
        del client_id
        return False

    def evictable_in_s(self, client_ids: Collection[int]) -> float | None:
        """Return None: none ever is."""
        del client_ids
        return None

    def evicted(self, client_id: int, table_filter: TablePredicate | None) -> None:
        """Raise: no client is evictable."""
        del table_filter
        raise AssertionError(f"client {client_id} was evicted, but none is evictable")


class Run:
    """A segment of the binlog that the pump reads without a gap.

    Entries of an earlier run may be in the ring before it. `sequence` is that of its
    first entry. `start` is a binlog file's number and an offset, after which the run
    begins; None when it begins by a GTID set.
    """

    __slots__ = ("number", "sequence", "start")

    def __init__(self) -> None:
        self.number = 0
        self.sequence = 0  # of its first entry
        self.start: tuple[int, int] | None = None

    def begin(self, start: tuple[int, int] | None, sequence: int) -> None:
        """Begin another run, whose first entry has this sequence."""
        self.number += 1
        self.start, self.sequence = start, sequence

    def is_kept_after(self, position: tuple[int, int], ring: Ring) -> bool:
        """Return whether the ring has all of this run after a position."""
        if ring.free_sequence < self.sequence:
            return False  # the first entries belong to another run
        if ring.free_sequence > self.sequence:
            return position >= (ring.freed_file_number, ring.freed_offset)
        return self.start is None or position >= self.start


def slowest_of(cursors: Collection[Cursor], put_sequence: int) -> Slowest | None:
    """Return the client that has acked least, None: all have acked everything.

    Rejected entries are skipped first, but only for the cursors that lag most, because
    that may check each entry.
    """
    last = heapq.nsmallest(_CHECKED_MAX, cursors, key=lambda each: each.ack_sequence)
    for cursor in last:
        cursor.scan()
        cursor.skip(make_room=False)
    slowest = min(last, key=lambda each: each.ack_sequence, default=None)
    if slowest is None or slowest.ack_sequence >= put_sequence:
        return None
    entries = put_sequence - slowest.ack_sequence
    return Slowest(slowest.client_id, entries, lag_s_of(slowest, put_sequence))


def awaited_by(cursors: Collection[Cursor], liveness: Liveness) -> list[int]:
    """Return the clients that must ack before the oldest entries are freed, in order.

    Left out are those that would lose their cursors as soon as the others have acked,
    and those whose filters reject the entries, as far as not too many are checked. When
    only evictable ones are left, which is for a moment, they are returned.
    """
    evictable: list[Cursor] = []
    retaining: list[Cursor] = []
    for each in sorted(_holders_of(cursors), key=lambda each: each.client_id):
        is_evictable = liveness.is_evictable(each.client_id)
        (evictable if is_evictable else retaining).append(each)
    awaited = [
        each
        for number, each in enumerate(retaining)
        if number >= _CHECKED_MAX or _still_holds(each)
    ]
    return [each.client_id for each in awaited or evictable]


def evictable_of(
    cursors: Collection[Cursor], liveness: Liveness
) -> tuple[list[int], Cursor | None]:
    """Return the clients that hold the oldest entries, in order, if all are evictable.

    If another client holds them as well, nobody is, and its cursor is returned.
    """
    evictable = []
    for cursor in _holders_of(cursors):
        if liveness.is_evictable(cursor.client_id):
            evictable.append(cursor.client_id)
        elif _still_holds(cursor):
            return [], cursor
    return sorted(evictable), None


def _holders_of(cursors: Collection[Cursor]) -> list[Cursor]:
    oldest = min((each.ack_sequence for each in cursors), default=0)
    return [each for each in cursors if each.ack_sequence == oldest]


def _still_holds(cursor: Cursor) -> bool:
    """Return whether a cursor keeps its first entry after skipping rejected ones."""
    oldest = cursor.ack_sequence
    cursor.scan()
    cursor.skip(make_room=True)
    return cursor.ack_sequence == oldest


def is_drained(cursor: Cursor, *, acked: bool) -> bool:
    """Return whether a cursor has nothing more to deliver (and all was acked)."""
    cursor.scan()
    cursor.skip(make_room=False)
    if cursor.asks:
        return False  # the next get asks the filter
    if acked and cursor.get_sequence != cursor.ack_sequence:
        return False
    return not cursor.available


def oldest_of(cursors: Collection[Cursor]) -> Cursor | None:
    """Return a cursor that holds the oldest entries."""
    return min(cursors, key=lambda each: each.ack_sequence, default=None)


def first_that_holds(
    oldest: int, likely: Cursor, cursors: Collection[Cursor]
) -> Cursor | None:
    """Make cursors that hold the oldest entry skip what their filters reject.

    Return the first one that still holds it, None when all could skip it. The `likely`
    one is checked first; if it still holds the entry, no other cursor is checked.
    """
    for cursor in (likely, *cursors):
        if cursor.ack_sequence == oldest and _still_holds(cursor):
            return cursor
    return None
