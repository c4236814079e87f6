"""The delays that the benchmark of the mirror reports are those of its observations."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, Self

import mirror_load
import pytest
from latency import Quantiles
from mirror_load import Delays, PositionWatch, Written, update_steadily


def test_delays() -> None:
    """A change is there with the first position that is not before its end."""
    watch = PositionWatch(lambda: 0)
    watch.times, watch.numbers = [10.0, 11.0, 12.5], [5, 20, 40]
    written = Written([9.5, 9.75, 10.5, 12.0], [5, 6, 20, 21])
    assert watch.delays(written) == [0.5, 1.25, 0.5, 0.5]
    assert watch.when(20) == 11.0
    # The lake may have a change before the writer hears that it is committed.
    assert watch.delays(Written([10.2], [5])) == [0.0]


class Writer:
    """A server that has one connection, and needs so long for a statement."""

    def __init__(self, clock: list[float], seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def connect(self, **_: object) -> Writer:
        """Return the connection."""
        return self

    def cursor(self) -> Writer:
        """Return its cursor."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, sql: str, *_: object) -> None:
        """Let time go by."""
        if sql.startswith("UPDATE"):
            self._clock[0] += self._seconds

    def fetchone(self) -> tuple[str, int]:
        """Return where the binlog ends."""
        return "b.000001", 4


@pytest.mark.parametrize(
    ("seconds", "rate", "is_at_pace"),
    [(0.001, 1000, True), (0.0104, 961.5, True), (0.0106, 943.4, False)],
)
def test_what_was_written(
    monkeypatch: pytest.MonkeyPatch, seconds: float, rate: float, is_at_pace: bool
) -> None:
    """A writer that is slower than was asked for reaches no target, and is reported."""
    clock = [50.0]

    def sleep(pause_s: float) -> None:
        clock[0] += pause_s

    time = SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep)
    monkeypatch.setattr(mirror_load, "time", time)
    server: Any = Writer(clock, seconds)
    written = update_steadily(server, range(100), 1000, 10.0, 0)
    assert written.rows == 10_000
    assert written.rate == pytest.approx(rate, rel=0.001)

    found = Delays(Quantiles(1, 2, 3), written.rate, 1000)
    assert found.reached(3) is is_at_pace
    assert not found.reached(2)
    slow = "" if is_at_pace else ", not the 1,000 asked for"
    assert str(found) == (
        f"median 1 ms, 99 % 2 ms, at most 3 ms; {written.rate:,.0f} rows/s were written"
        f"{slow}"
    )


def test_watch() -> None:
    """Positions are noted as they move, and waited for."""
    number = 1
    continued = threading.Event()

    def look() -> int:
        continued.set()
        return number

    with PositionWatch(look) as watch:
        assert continued.wait(30)
        number = 7
        at = watch.wait_for(7, 30)
    assert watch.numbers in ([1, 7], [7])
    assert watch.times[-1] == at


def test_watch_that_fails() -> None:
    """A position that cannot be read ends the waiting with its reason."""

    def look() -> int:
        raise OSError("no such lake")

    with PositionWatch(look) as watch, pytest.raises(OSError, match="no such lake"):
        watch.wait_for(7, 30)
