"""What `status` says of a destination below the table."""

from __future__ import annotations

import pytest

from canal_server.cli.status.status_text import standing_lines

SLOW = {"client": 7, "entries": 3, "seconds": 300.0}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ""),  # of a server of before
        ({"connected": True, "away_s": None}, ""),
        ({"connected": False, "away_s": 600.0}, "; not connected for 10 min"),
        ({"connected": False, "away_s": None}, "; not connected"),
    ],
)
def test_the_slowest_client(more, expected):
    """It is said of one that is not connected, and since when."""
    (line,) = standing_lines({"slowest_client": SLOW | more})
    assert line == f"slowest client 7, 3 entries, 5 min behind{expected}"


def test_uncertain_tables():
    """They are named."""
    (line,) = standing_lines({"uncertain_tables": {"reason": "columns of a.t"}})
    assert line == "uncertain tables: columns of a.t"


def test_warnings():
    """Each has a line, before the reason that blocks reading."""
    lines = list(standing_lines({"warnings": ["a", "b"], "slowest_client": SLOW}))
    assert lines[:2] == ["warning: a", "warning: b"]
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("", "until the destination runs here"),
        ("for an answer of the brokers", "for an answer of the brokers"),
    ],
)
def test_a_delivery_that_waits(reason, expected):
    """It says for what: the destination, or the brokers."""
    delivery = {
        "queue": "kafka at a:9092", "reason": reason, "since_ms": 0,
        "state": "waiting", "messages": 0, "in_flight": 0,
    }  # fmt: skip
    (line,) = standing_lines({"delivery": delivery})
    text = f"delivery to kafka at a:9092 waits {expected}"
    assert line == f"{text}; 0 messages since the start"


def test_a_delivery_that_has_stopped():
    """The line has what was left out, and the position up to which all is delivered."""
    delivery = {
        "queue": "kafka at a:9092", "reason": "too large", "since_ms": 0,
        "state": "stopped", "messages": 7, "in_flight": 2, "too_large": 1,
        "position": "b.000001:4",
    }  # fmt: skip
    (line,) = standing_lines({"delivery": delivery})
    assert "has stopped: too large (since " in line
    assert line.endswith(
        "; 7 messages since the start, 2 not confirmed, 1 too large and replaced by"
        " notes; delivered up to b.000001:4"
    )
