"""From commit to delivery: a writer at a steady pace, and a client that waits for it.

Both processes read the machine's one monotonic clock. A row counts as delivered when
the batch that holds it has been received whole.
"""

from __future__ import annotations

import multiprocessing
import re
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drain import DrainError
from loads import SCHEMA, insert_row, row_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from drain import DrainClient
    from servers import Server

PER_SECOND = 200
BATCH_SIZE = 1000
WAITING_MS = 100
POLLING_MS = -1  # answer at once, with whatever is there
LATE_SECONDS_MAX = 10.0
ROW_MARK = re.compile(row_mark(0).replace(b"0", rb"(\d+)"))


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds until delivery, over all rows of a run.

    `from_send` counts from when the writer sends its statement, which commits by
    itself, `from_commit` from when it learns that the commit is done: a row may be
    delivered before that.
    """

    rows: int
    from_send: Quantiles
    from_commit: Quantiles


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Median, 99th percentile and maximum, in milliseconds."""

    median: float
    p99: float
    highest: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Quantiles:
        """Sum up at least two values."""
        cuts = statistics.quantiles(seconds, n=100, method="inclusive")
        return cls(cuts[49] * 1e3, cuts[98] * 1e3, max(seconds) * 1e3)


def measure(
    server: Server, collect: Callable[[], dict[int, float]], keys: range
) -> Latency:
    """Write a row for each key and see when it comes.

    `collect` returns the moment when each key arrived, to a client that is subscribed
    and has received all that was before; the keys are new and adjacent.
    """
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    writer = multiprocessing.get_context("fork").Process(
        target=_write, args=(server, keys, there)
    )
    writer.start()
    there.close()
    try:
        arrived = collect()
        stamps: list[tuple[float, float]] = here.recv()
    finally:
        writer.join(LATE_SECONDS_MAX)
        writer.kill()
    arrivals = [arrived[key] for key in keys]
    return Latency(
        rows=len(keys),
        from_send=_quantiles_since([sent for sent, _ in stamps], arrivals),
        from_commit=_quantiles_since([done for _, done in stamps], arrivals),
    )


def _quantiles_since(starts: list[float], ends: list[float]) -> Quantiles:
    return Quantiles.of(
        [max(0.0, end - start) for start, end in zip(starts, ends, strict=True)]
    )


def collect(client: DrainClient, timeout_ms: int, keys: range) -> dict[int, float]:
    """Receive until every key is there; return when each arrived. Raises DrainError."""
    arrived: dict[int, float] = {}
    give_up_at = time.monotonic() + len(keys) / PER_SECOND + LATE_SECONDS_MAX
    while len(arrived) < len(keys):
        got = client.get_whole(BATCH_SIZE, timeout_ms)
        now = time.monotonic()
        if got is None:
            if now > give_up_at:
                raise DrainError(f"{len(keys) - len(arrived)} rows did not come")
            continue
        frame, body = got
        client.ack(frame.batch_id)
        for found in ROW_MARK.findall(body):
            if int(found) in keys:
                arrived.setdefault(int(found), now)
    return arrived


def _write(server: Server, keys: range, stamped: Connection) -> None:
    """Insert a row per key at the pace; send when each was sent and committed."""
    stamps = []
    with server.connect(database=SCHEMA) as connection, connection.cursor() as cursor:
        started = time.monotonic()
        for number, key in enumerate(keys):
            _pause(started + number / PER_SECOND - time.monotonic())
            sent = time.monotonic()
            insert_row(cursor, key)
            stamps.append((sent, time.monotonic()))
    stamped.send(stamps)


def _pause(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)
