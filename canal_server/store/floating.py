"""Passing over clients that have been away for long, so that others go on.

A cursor *pins* what it has not acked as long as its client is here, and for a while
after; then it *floats*: when the ring needs room it is passed over. Who is away is
known elsewhere (`ports.Absences`), and so is what becomes of a client that was passed
over. Leaves out the ring itself, and all waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from canal_server.ports import Accepts
    from canal_server.store.cursor import Cursor


class NobodyFloats:
    """The port `Absences` where every cursor pins for ever."""

    def floats(self, client_id: int) -> bool:
        """Tell that it pins."""
        del client_id
        return False

    def floats_in_s(self, client_ids: Collection[int]) -> float | None:
        """Tell that none ever does."""
        del client_ids
        return None  # the value that says so

    def passed_over(self, client_id: int, accepts: Accepts | None) -> None:
        """Never be called."""
        del accepts
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


def holders_of(cursors: Collection[Cursor]) -> list[int]:
    """Return the clients for whose acks the oldest entries wait, in order."""
    oldest = min((each.ack_sequence for each in cursors), default=0)
    return sorted(each.client_id for each in cursors if each.ack_sequence == oldest)
