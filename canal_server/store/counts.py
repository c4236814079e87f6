"""What a store tells of itself, for metrics and status."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CursorCounts:
    """One client's cursor; sequences are those of the last entry, -1 before any."""

    client_id: int
    get_sequence: int
    ack_sequence: int
    rows: int  # that were got, also more than once after rollbacks


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """A moment of a store. Get and ack are those of the client furthest behind.

    Sequences are those of the last entry, -1 before any. Bytes are what entries
    weigh against the limits. Times are when the source executed the last entry, in
    ms, 0 before any.
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
