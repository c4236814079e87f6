"""Waiting between retries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.runtime.backoff import Backoff

if TYPE_CHECKING:
    import random


def test_delays_double_up_to_the_limit():
    """Without jitter each delay is twice the one before, and never above the limit."""
    backoff = Backoff(1.0, 10.0, jitter=0)

    assert [backoff.delay_s(0.0) for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    assert backoff.failures == 6


def test_jitter_takes_away_its_share_at_most(rng: random.Random):
    """Delays are between what jitter leaves and the full delay, and differ."""
    backoff = Backoff(8.0, 8.0, jitter=0.25, rng=rng)

    delays = [backoff.delay_s(0.0) for _ in range(200)]

    assert all(6.0 <= delay <= 8.0 for delay in delays)
    assert len(set(delays)) > 100


def test_a_calm_time_restarts():
    """Without failures for the calm time, the next failure waits the first delay."""
    backoff = Backoff(1.0, 10.0, calm_s=60, jitter=0)
    backoff.delay_s(0.0)
    backoff.delay_s(1.0)  # due at 3.0

    assert backoff.delay_s(62.9) == 4
    assert backoff.delay_s(62.9 + 4 + 60) == 1
    assert backoff.failures == 1


def test_reset_restarts():
    """After `reset` the next failure waits the first delay."""
    backoff = Backoff(1.0, 10.0, jitter=0)
    backoff.delay_s(0.0)
    backoff.reset()

    assert backoff.failures == 0
    assert backoff.delay_s(1.0) == 1
