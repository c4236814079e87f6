"""What is said of sessions that fail, and when the next attempt comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.errors import BinlogPurged, ConnectionLost, TableMetaStoreError
from canal_server.runtime.backoff import Backoff
from canal_server.source.pump.session_failures import (
    STUBBORN_DELAY_S,
    UNREACHABLE_DELAY_S,
    Failures,
)

if TYPE_CHECKING:
    import pytest

LOST, PURGED = ConnectionLost("gone"), BinlogPurged("old")


def fail(failures: Failures, error: Exception, **how: bool) -> float:
    """Note an error, by default one that puts nothing else off."""
    return failures.fail(
        error, str(error), **({"elsewhere": False, "counting": False} | how)
    )


def test_delays() -> None:
    """They grow; what a person has to mend is retried slowly, another at once."""
    failures = Failures("d", Backoff(1.0, 8.0, jitter=0.0))
    assert [fail(failures, LOST) for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert fail(failures, PURGED) == STUBBORN_DELAY_S
    assert fail(failures, PURGED, counting=True) == 8.0
    assert fail(failures, PURGED, elsewhere=True) == 0.0
    failures.forget()
    assert fail(failures, LOST) == 1.0


def test_a_history_that_is_out_of_reach() -> None:
    """Its server may be back at any time: it is tried as a source is."""
    failures = Failures("d", Backoff(1.0, 8.0, jitter=0.0))
    away = TableMetaStoreError("cannot connect")
    assert [fail(failures, away) for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, 8.0]


def test_an_address_where_nobody_answers() -> None:
    """It is tried every second, however long; other failures are put off as before."""
    failures = Failures("d", Backoff(1.0, 8.0, jitter=0.0))
    silent = ConnectionLost("cannot connect", unreachable=True)
    delays = [fail(failures, silent) for _ in range(50)]
    assert all(0 < delay <= UNREACHABLE_DELAY_S for delay in delays)
    assert [fail(failures, LOST) for _ in range(2)] == [1.0, 2.0]


def test_no_wait_is_no_figure(caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing is waited for, the line says so instead of a figure."""
    failures = Failures("d", Backoff(0.01, 0.01, jitter=0.0))
    failures.fail(LOST, "gone", elsewhere=False, counting=False)
    assert failures.fail(LOST, "elsewhere", elsewhere=True, counting=False) == 0
    assert caplog.messages == [
        "destination d: gone; retrying at once",
        "destination d: elsewhere; looking for another position at once",
    ]


def test_the_remedy_is_said_last(caplog: pytest.LogCaptureFixture) -> None:
    """Another position is looked for in between, which is not what is to be done."""
    failures = Failures("d", Backoff(1.0, 8.0, jitter=0.0))
    for _ in range(4):
        failures.fail(PURGED, "old: seek", elsewhere=False, counting=False)
        failures.fail(PURGED, "old", elsewhere=True, counting=False)
    assert [each.partition(";")[0] for each in caplog.messages] == [
        "destination d: old: seek",
        "destination d: old",
        "destination d: old: seek",
    ]


def test_each_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """What comes with each attempt is news again when something was well meanwhile."""
    failures = Failures("d")
    for _ in range(2):
        for _ in range(2):
            fail(failures, LOST)
            failures.warn("look out")
            assert failures.fault(RuntimeError("ours")) == STUBBORN_DELAY_S
        failures.forget()
    lost, warned, fault, *again = caplog.messages
    assert lost.startswith("destination d: gone; next attempt in ")
    assert warned == "destination d: look out"
    assert "reading the source failed because of an internal error" in fault
    assert len(again) == 3
