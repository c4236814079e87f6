"""Passing over clients that have been away for long, so that others go on.

A cursor *pins* what it has not acked as long as its client is here, and for a while
after; then it *floats*: when the ring needs room it is passed over. Who is away is
known elsewhere (`ports.Liveness`), and so is what becomes of a client that was passed
over. Leaves out the ring itself, and all waiting.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from canal_server.store.counts import Slowest
from canal_server.store.waiting import now_ms

if TYPE_CHECKING:
    from collections.abc import Collection

    from canal_server.ports import TablePredicate
    from canal_server.store.cursor import Cursor


_CLOCK_MAX: Final = 0xFFFFFFFF  # of the times at which entries were put
_LOOKED_AT: Final = 16  # cursors that are brought up to date to find the slowest


class NobodyEvictable:
    """The port `Liveness` where every cursor pins for ever."""

    def is_evictable(self, client_id: int) -> bool:
        """Tell that it pins."""
        del client_id
        return False

    def evictable_in_s(self, client_ids: Collection[int]) -> float | None:
        """Tell that none ever does."""
        del client_ids
        return None  # the value that says so

    def evicted(self, client_id: int, table_filter: TablePredicate | None) -> None:
        """Never be called."""
        del table_filter
        raise AssertionError(f"client {client_id} was passed over, though it pins")


class Run:
    """What the pump reads without a gap: in one binlog, from one place on.

    Entries of another run may be in the ring before it. All are sequences, but for
    `place`: a binlog file's number and an offset, behind which the run begins; None
    when it begins by a GTID set.
    """

    __slots__ = ("number", "place", "sequence")

    def __init__(self) -> None:
        self.number = 0
        self.sequence = 0  # of its first entry
        self.place: tuple[int, int] | None = None

    def begin(self, place: tuple[int, int] | None, sequence: int) -> None:
        """Take note that another run begins; the entry of this number is its first."""
        self.number += 1
        self.place, self.sequence = place, sequence


def slowest_of(cursors: Collection[Cursor], put_sequence: int) -> Slowest | None:
    """Return who has acked least of what the ring holds, None: all have acked all.

    What a filter rejects is passed over first, for those at the end only: it may take
    a look at each entry.
    """
    last = heapq.nsmallest(_LOOKED_AT, cursors, key=lambda each: each.ack_sequence)
    for cursor in last:
        cursor.scan()
        cursor.skip(make_room=False)
    slowest = min(last, key=lambda each: each.ack_sequence, default=None)
    if slowest is None or slowest.ack_sequence >= put_sequence:
        return None
    waited_ms = (now_ms() - slowest.unacked_put_ms()) & _CLOCK_MAX
    entries = put_sequence - slowest.ack_sequence
    return Slowest(slowest.client_id, entries, waited_ms / 1000)


def holders_of(cursors: Collection[Cursor]) -> list[int]:
    """Return the clients for whose acks the oldest entries wait, in order."""
    oldest = min((each.ack_sequence for each in cursors), default=0)
    return sorted(each.client_id for each in cursors if each.ack_sequence == oldest)


def is_drained(cursor: Cursor, *, acked: bool) -> bool:
    """Tell whether a cursor has nothing more to give; `acked`: and all was acked."""
    cursor.scan()
    cursor.skip(make_room=False)
    if cursor.asks:
        return False  # the next get finds out
    if acked and cursor.get_sequence != cursor.ack_sequence:
        return False
    return not cursor.available


def oldest_of(cursors: Collection[Cursor]) -> Cursor | None:
    """Return one for whose acks the oldest entries wait."""
    return min(cursors, key=lambda each: each.ack_sequence, default=None)


def first_that_holds(
    oldest: int, likely: Cursor, cursors: Collection[Cursor]
) -> Cursor | None:
    """Have cursors that hold the oldest entry skip what their filters reject.

    Return the first one that holds it still, None when all could skip it; the `likely`
    one is looked at first, and nobody after it then.
    """
    for cursor in (likely, *cursors):
        if cursor.ack_sequence == oldest:
            cursor.scan()
            cursor.skip(make_room=True)
            if cursor.ack_sequence == oldest:
                return cursor
    return None
