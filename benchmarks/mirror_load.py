"""Changes at a steady pace, and when each of them is in the lake.

One connection writes, so where the binlog ends after a commit is where that ends. The
lake's position is read many times a second; a change is there when it is not
before its end. All times are of the machine's one monotonic clock.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from latency import Quantiles
from loads import SCHEMA, TABLE

from canal_server.model.versions import version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from servers import Server

ROWS_A_COMMIT = 10
LOOK_S = 0.02
PATIENCE_S = 120.0
RATE_LEAST = 0.95  # of the pace that is asked for
UPDATE = f"""UPDATE {TABLE} SET k = k + 1, amount = amount + 0.01, note = %s
    WHERE id IN ({", ".join(["%s"] * ROWS_A_COMMIT)})"""


@dataclass(slots=True)
class Written:
    """Commits: when each was done, and the number of its position."""

    times: list[float] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    rows: int = 0
    seconds: float = 0.0  # in which all of them were written

    @property
    def rate(self) -> float:
        """Return how many rows a second were written."""
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Delays:
    """How long changes took from commit into the lake, and at which pace."""

    times: Quantiles
    rate: float  # rows/s that were written
    requested: float

    @property
    def is_at_pace(self) -> bool:
        """Whether as many rows arrived as requested; else the delays mean nothing."""
        return self.rate >= RATE_LEAST * self.requested

    def reached(self, delay_ms: float) -> bool:
        """Return whether 99 % of the changes were there in less time, at that pace."""
        return self.is_at_pace and self.times.p99 < delay_ms

    def __str__(self) -> str:
        times = self.times
        slow = "" if self.is_at_pace else f", not the {self.requested:,.0f} asked for"
        return (
            f"median {times.median:,.0f} ms, 99 % {times.p99:,.0f} ms, "
            f"at most {times.highest:,.0f} ms; {self.rate:,.0f} rows/s were written"
            f"{slow}"
        )


class PositionWatch:
    """A thread that notes when the lake's position moved, and to where."""

    def __init__(self, number: Callable[[], int]) -> None:
        """Take the function that returns up to which number changes are applied."""
        self._number = number
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lake position")
        self._moved = threading.Condition()
        self._error: Exception | None = None
        self.times: list[float] = []
        self.numbers: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def wait_for(self, number: int, patience_s: float = PATIENCE_S) -> float:
        """Return when the lake reached a position. Raises SystemExit if it does not."""
        with self._moved:
            done = self._moved.wait_for(
                lambda: (
                    bool(self.numbers and self.numbers[-1] >= number) or self._error
                ),
                patience_s,
            )
        if self._error is not None:
            raise self._error
        if not done:
            raise SystemExit(f"the lake did not reach the position in {patience_s:g} s")
        return self.when(number)

    def when(self, number: int) -> float:
        """Return when the lake reached a position that it has reached."""
        return next(
            at
            for at, reached in zip(self.times, self.numbers, strict=True)
            if reached >= number
        )

    def delays(self, written: Written) -> list[float]:
        """Return how many seconds after its commit each change was there."""
        found, number = [], 0
        for at, reached in zip(written.times, written.numbers, strict=True):
            while self.numbers[number] < reached:
                number += 1
            found.append(max(0.0, self.times[number] - at))
        return found

    def _run(self) -> None:
        try:
            while not self._ending.wait(LOOK_S):
                number = self._number()
                if not self.numbers or number > self.numbers[-1]:
                    with self._moved:
                        self.times.append(time.monotonic())
                        self.numbers.append(number)
                        self._moved.notify_all()
        except Exception as error:  # noqa: BLE001  # reported by `wait_for`
            with self._moved:
                self._error = error
                self._moved.notify_all()


def update_steadily(
    server: Server, keys: Sequence[int], rows_per_s: int, seconds: float, epoch: int
) -> Written:
    """Update rows of these keys at a pace, some in each commit."""
    written, chance = Written(), random.Random(rows_per_s)
    commits = int(seconds * rows_per_s / ROWS_A_COMMIT)
    with server.connect(database=SCHEMA) as connection, connection.cursor() as cursor:
        cursor.execute("SET autocommit = 1")
        started = time.monotonic()
        for number in range(commits):
            due = started + number * ROWS_A_COMMIT / rows_per_s
            time.sleep(max(0.0, due - time.monotonic()))
            cursor.execute(
                UPDATE, (f"note {number}", *chance.sample(keys, ROWS_A_COMMIT))
            )
            at = time.monotonic()
            if number % 10 == 0 or number == commits - 1:  # the others are no different
                cursor.execute("SHOW BINARY LOG STATUS")
                file, offset = cursor.fetchone()[:2]
                written.times.append(at)
                written.numbers.append(version(epoch, file, offset))
        # A commit has its share of the time, that is, until the next one is due.
        due = started + commits * ROWS_A_COMMIT / rows_per_s
        written.seconds = max(due, time.monotonic()) - started
        written.rows = commits * ROWS_A_COMMIT
    return written


def measure_delays(
    server: Server,
    watch: PositionWatch,
    keys: Sequence[int],
    pace: tuple[int, float],
    epoch: int,
) -> Delays:
    """Return how long changes took from commit into the lake; `pace`: rows/s, s."""
    written = update_steadily(server, keys, *pace, epoch)
    watch.wait_for(written.numbers[-1])
    return Delays(Quantiles.of(watch.delays(written)), written.rate, pace[0])
