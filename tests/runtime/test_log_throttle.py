"""Repeated messages are logged from time to time."""

from __future__ import annotations

from canal_server.runtime.log_throttle import TEXTS_MAX, LogThrottle


def test_the_same_text() -> None:
    """It is logged again when the time is over, counted from when it was logged."""
    repeats = LogThrottle(600)
    reported = [at for at in range(0, 1801, 30) if repeats.is_news("gone", at)]
    assert reported == [0, 600, 1200, 1800]


def test_other_texts() -> None:
    """Each text has its own time, even when they alternate."""
    repeats = LogThrottle(600)
    assert [repeats.is_news(text, 1.0) for text in "abab"] == [True, True, False, False]


def test_forgotten() -> None:
    """After `forget`, every message is logged."""
    repeats = LogThrottle()
    repeats.is_news("gone", 0.0)
    repeats.forget()
    assert repeats.is_news("gone", 1.0)


def test_bounded() -> None:
    """Of many texts the one logged longest ago is forgotten first."""
    repeats = LogThrottle(600)
    for number in range(TEXTS_MAX):
        repeats.is_news(str(number), number)
    repeats.is_news("0", 600)  # logged again
    assert repeats.is_news("one more", 601)
    assert not repeats.is_news("0", 602)
    assert not repeats.is_news("2", 601)
    assert repeats.is_news("1", 600)
