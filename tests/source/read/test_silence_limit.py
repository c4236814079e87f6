"""How long a source may be silent."""

from __future__ import annotations

from canal_server.config.schema import SourceConfig
from canal_server.errors import ConnectionLost
from canal_server.source.read.silence_limit import (
    ANSWER_MIN_S,
    SILENCE_MAX_S,
    Patience,
    options_of,
)

TIMED_OUT = ConnectionLost("timed out", errno=2013, heard_s=0.0)


def patience_of(silence_s: float, so_timeout_s: float) -> Patience:
    """Return the limits for these settings."""
    return Patience(SourceConfig(silence_s=silence_s, so_timeout_s=so_timeout_s))


def first_s(patience: Patience) -> float:
    """Return the first silence limit of a dump; the later one is as configured."""
    options = patience.options()
    assert options.silence_max_s <= options.silence_first_s
    return options.silence_first_s


def silent(heard_s: float) -> ConnectionLost:
    """Return the error of a dump that received data for that long."""
    return ConnectionLost("silent", heard_s=heard_s)


def test_a_dump_that_is_silent_from_its_beginning() -> None:
    """The limit doubles each time, up to a maximum, until a dump receives data."""
    patience = patience_of(9.0, 30.0)
    found = []
    for _ in range(6):
        found.append(first_s(patience))
        patience.failed(silent(0.0))
    assert found == [9.0, 18.0, 36.0, 72.0, SILENCE_MAX_S, SILENCE_MAX_S]
    assert patience.answer_s == ANSWER_MIN_S
    patience.failed(silent(SILENCE_MAX_S + 1))
    assert first_s(patience) == 9.0


def test_answers_that_do_not_come() -> None:
    """Statements and logins get more time each time, up to the configured time."""
    patience = patience_of(9.0, 30.0)
    found = []
    for _ in range(4):
        found.append(patience.answer_s)
        patience.failed(TIMED_OUT)
    assert found == [10.0, 20.0, 30.0, 30.0]
    assert first_s(patience) == 9.0
    patience.reset()
    assert patience.answer_s == 10.0
    assert patience_of(9.0, 2.0).answer_s == 2.0


def test_other_errors_say_nothing() -> None:
    """An error that is not silence changes no limit."""
    patience = patience_of(9.0, 30.0)
    for error in (ConnectionLost("reset", errno=2013), ValueError("x")):
        patience.failed(error)
    assert (first_s(patience), patience.answer_s) == (9.0, 10.0)


def test_a_limit_that_is_long_already() -> None:
    """Configured limits are never shortened."""
    patience = patience_of(300.0, 30.0)
    patience.failed(silent(0.0))
    assert first_s(patience) == 300.0


def test_a_dump_of_a_part() -> None:
    """A dump may be silent for the configured time, and longer at the start."""
    source = SourceConfig(heartbeat_s=1.0, silence_s=3.0)
    options = options_of(source, follow=False)
    assert (options.heartbeat_s, options.silence_max_s) == (1.0, 3.0)
    assert (options.silence_first_s, options.follow) == (30.0, False)
    long = options_of(SourceConfig(heartbeat_s=30.0, silence_s=90.0))
    assert long.silence_first_s == long.silence_max_s == 90.0
