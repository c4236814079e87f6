"""The numbers that a store reports, for metrics and status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.store.waiting import now_ms

if TYPE_CHECKING:
    from collections.abc import Collection

    from canal_server.store.cursor import Cursor
    from canal_server.store.ring import Ring

CLOCK_MAX: Final = 0xFFFFFFFF  # of the times at which entries were put, in ms
NAMED_MAX: Final = 5  # clients that a message names


@dataclass(frozen=True, slots=True)
class CursorCounts:
    """One client's cursor; sequences are those of the last entry, -1 before any."""

    client_id: int
    get_sequence: int
    ack_sequence: int
    rows: int  # that were fetched, counted again after rollbacks
    lag_s: float  # since the first entry that is not acked was put; 0: all are acked


@dataclass(frozen=True, slots=True)
class Blocked:
    """A put that waits for room: since when, and the clients whose acks would free it.

    Empty `clients` mean that no client is subscribed.
    """

    since_ms: int
    clients: tuple[int, ...]

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values, with a reason for people."""
        names = ", ".join(map(str, self.clients[:NAMED_MAX]))
        if len(self.clients) > NAMED_MAX:
            names += f" and {len(self.clients) - NAMED_MAX} more"
        who = "client" if len(self.clients) == 1 else "clients"
        waits = f"waits for {who} {names}" if names else "no client is subscribed"
        return {
            "reason": f"ring full, {waits}",
            "since_ms": self.since_ms,
            "clients": list(self.clients),
        }


@dataclass(frozen=True, slots=True)
class Slowest:
    """The client that has acked least of what the ring holds, and how much it lags.

    `waited_s` is for how long the first of these entries has been in the ring.
    """

    client_id: int
    entries: int
    waited_s: float


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """A snapshot of a store. Get and ack are those of the client that lags most.

    Sequences are those of the last entry, -1 before any. Bytes are the entries' weight
    against the limits. Times are when the source executed the last entry, in ms, 0
    before any.
    """

    put_sequence: int
    get_sequence: int
    ack_sequence: int
    put_bytes: int
    ack_bytes: int
    put_rows: int
    get_rows: int
    ack_rows: int
    put_time_ms: int
    get_time_ms: int
    ack_time_ms: int
    put_waiting_ns: int
    block_bytes: int
    cursors: tuple[CursorCounts, ...]


def counts_of(
    ring: Ring, of: Collection[Cursor], *, put_waiting_ns: int, block_bytes: int
) -> StoreCounts:
    """Return the numbers of a ring and its cursors; under the store's lock."""
    cursors = sorted(of, key=lambda c: c.client_id)
    put_sequence = ring.put_sequence
    slowest = min(cursors, key=lambda c: c.get_sequence, default=None)
    got = slowest.get_sequence if slowest else ring.free_sequence
    return StoreCounts(
        put_sequence=ring.put_sequence - 1,
        get_sequence=got - 1,
        ack_sequence=ring.free_sequence - 1,
        put_bytes=ring.put_bytes,
        ack_bytes=ring.free_bytes,
        put_rows=ring.put_rows,
        get_rows=slowest.got_rows if slowest else 0,
        ack_rows=ring.free_rows,
        put_time_ms=ring.put_time * 1000,
        get_time_ms=slowest.got_time * 1000 if slowest else 0,
        ack_time_ms=ring.free_time * 1000,
        put_waiting_ns=put_waiting_ns,
        block_bytes=block_bytes,
        cursors=tuple(
            CursorCounts(
                c.client_id,
                c.get_sequence - 1,
                c.ack_sequence - 1,
                c.got_rows,
                lag_s_of(c, put_sequence),
            )
            for c in cursors
        ),
    )


def lag_s_of(cursor: Cursor, put_sequence: int) -> float:
    """Return for how long the first entry that is not acked has been in the ring, s."""
    if cursor.ack_sequence >= put_sequence:
        return 0.0
    return ((now_ms() - cursor.unacked_put_ms()) & CLOCK_MAX) / 1000
