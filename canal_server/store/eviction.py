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

    from canal_server.ports import TablePredicate
    from canal_server.store.cursor import Cursor
    from canal_server.store.ring import Ring

_CHECKED_MAX: Final = 16  # cursors that are updated to find the slowest


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


def holders_of(cursors: Collection[Cursor]) -> list[int]:
    """Return the clients whose acks would free the oldest entries, in order."""
    oldest = min((each.ack_sequence for each in cursors), default=0)
    return sorted(each.client_id for each in cursors if each.ack_sequence == oldest)


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
        if cursor.ack_sequence == oldest:
            cursor.scan()
            cursor.skip(make_room=True)
            if cursor.ack_sequence == oldest:
                return cursor
    return None
