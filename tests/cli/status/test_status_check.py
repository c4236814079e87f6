"""What a probe finds wrong with what a server answers."""

from __future__ import annotations

import time

import pytest

from canal_server.cli.status.status_check import (
    BROKEN,
    LAGS,
    LOST,
    NOT_RUNNING,
    Limits,
    findings,
)

HEALTHY = {
    "destination": "a", "running": True, "life": "running", "runs_on": None,
    "error": "", "lag": {"seconds": 0.0}, "blocked": None, "slowest_client": None,
}  # fmt: skip


STRICT = Limits(lag_s=60, client_lag_s=60, blocked_s=10)


def found(limits=STRICT, **of_server):
    """Return the statuses and texts of what is wrong."""
    answer = {"stopping": False, "instances": [HEALTHY], "refused": {}} | of_server
    return [(each.status, each.text) for each in findings(answer, limits)]


def ago_ms(seconds):
    """Return the time of so many seconds ago, in ms."""
    return (time.time() - seconds) * 1000


def blocked(seconds):
    """Return a wait for client 1001 that began so many seconds ago."""
    return {
        "reason": "ring full, waits for client 1001",
        "since_ms": ago_ms(seconds),
        "clients": [1001],
    }


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"error": "ConnectionLost: gone"}, BROKEN, "a: ConnectionLost: gone"),
        (
            {"running": False, "life": "competing"},
            BROKEN,
            "a: competing; no server runs it",
        ),
        ({"lag": {"seconds": 61.0}}, LAGS, "a: lag is 61 s, above the limit of 60 s"),
        (
            {"slowest_client": {"client": 7, "entries": 9, "seconds": 300.0}},
            LAGS,
            "a: lag of client 7 is 5 min, above the limit of 60 s",
        ),
        (
            {"lost_clients": {"7": "client 7 of a needs b.1:4"}},
            LOST,
            "a: client 7 of a needs b.1:4",
        ),
    ],
)
def test_one_that_is_wrong(change, status, text):
    """Each thing that is wrong has its status and its words."""
    assert found(instances=[HEALTHY | change]) == [(status, text)]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"lag": {"seconds": 59.0}},
        {"lag": {"seconds": None}},
        {"running": False, "life": "competing", "runs_on": "10.0.0.2:11111"},
        {"running": False, "life": "idle"},
        {"slowest_client": {"client": 7, "entries": None, "seconds": None}},
    ],
)
def test_none(change):
    """Within the limits, run elsewhere, or waiting for its first client is healthy."""
    assert found(instances=[HEALTHY | change]) == []


def test_a_wait_for_clients():
    """A wait that lasts for longer than its limit is wrong, a shorter one is not."""
    ((status, text),) = found(instances=[HEALTHY | {"blocked": blocked(3600)}])
    assert status == BROKEN
    expected = "a: blocked: ring full, waits for client 1001 (since 60 min)"
    assert text == expected
    patient = Limits(lag_s=None, client_lag_s=None, blocked_s=7200)
    assert found(patient, instances=[HEALTHY | {"blocked": blocked(3600)}]) == []


def delivery(state, seconds):
    """Return the delivery to a queue in a state since so many seconds."""
    return {
        "queue": "kafka at a:9092", "state": state, "reason": "refused",
        "since_ms": ago_ms(seconds), "messages": 5, "in_flight": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "seconds", "expected"),
    [
        ("delivering", 3600, ""),
        ("waiting", 3600, ""),
        ("blocked", 5, ""),
        (
            "blocked",
            3600,
            "delivery to kafka at a:9092 is blocked: refused (since 60 min)",
        ),
        ("stopped", 5, "delivery to kafka at a:9092 has stopped: refused (since 5 s)"),
    ],
)
def test_a_message_queue(state, seconds, expected):
    """A delivery that is blocked for long is wrong, and one that has stopped."""
    instance = HEALTHY | {"delivery": delivery(state, seconds)}
    sent = "5 messages since the start, 2 not confirmed"
    wrong = [(BROKEN, f"a: {expected}; {sent}")] if expected else []
    assert found(instances=[instance]) == wrong


def test_no_limit():
    """Lag counts only where a limit is given."""
    limits = Limits(lag_s=None, client_lag_s=None, blocked_s=10)
    slow = {"client": 7, "entries": 9, "seconds": 1e6}
    late = HEALTHY | {"lag": {"seconds": 1e6}, "slowest_client": slow}
    assert found(limits, instances=[late]) == []


def test_the_worst_comes_first():
    """A shutdown takes precedence over a destination, and that over lag."""
    statuses = [
        status
        for status, _ in found(
            stopping=True,
            instances=[HEALTHY | {"lag": {"seconds": 61.0}}],
            refused={"b": "two.properties: no address"},
        )
    ]
    assert statuses == [NOT_RUNNING, BROKEN, LAGS]
