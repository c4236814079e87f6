"""Log-ins over HTTP: which of the requests are noted."""

from __future__ import annotations

import json

import pytest

from canal_server.users import login_notes
from canal_server.users.audit_log import AuditLog
from canal_server.users.login_notes import AGAIN_S, IDLE_S, LoginNotes


class Clock:
    """Seconds that a test sets."""

    now_s = 1000.0


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock."""
    clock = Clock()
    monkeypatch.setattr("time.monotonic", lambda: clock.now_s)
    return clock


@pytest.fixture
def path(tmp_path):
    """Give the path of the audit file."""
    return tmp_path / "audit.jsonl"


def noted(path) -> list[tuple[str, str, str]]:
    """Return who logged in from where, and how."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(each["event"], each["service"]) for each in found} == {("login", "http")}
    return [(each["user"], each["address"], each["how"]) for each in found]


def test_requests_of_one_visitor(path, clock):
    """They are one log-in, from whatever port; others are others."""
    logins = LoginNotes(AuditLog(path), "http")
    for port in range(3):
        logins.note("ann", "10.0.0.7", port, "password")
        logins.note("ann", "10.0.0.7", port, "certificate")
        logins.note("ann", "10.0.0.8", port, "password")
        logins.note("bob", "10.0.0.7", port, "password")
    assert noted(path) == [
        ("ann", "10.0.0.7:0", "password"),
        ("ann", "10.0.0.7:0", "certificate"),
        ("ann", "10.0.0.8:0", "password"),
        ("bob", "10.0.0.7:0", "password"),
    ]


def test_after_a_pause_and_each_day(path, clock):
    """Who was away is noted again, and who stays, once a day."""
    logins = LoginNotes(AuditLog(path), "http")
    for _ in range(int(AGAIN_S / (IDLE_S / 2)) + 1):
        logins.note("ann", "a", 1, "password")
        clock.now_s += IDLE_S / 2
    assert len(noted(path)) == 2
    logins.note("ann", "a", 1, "password")
    assert len(noted(path)) == 2
    clock.now_s += IDLE_S
    logins.note("ann", "a", 1, "password")
    assert len(noted(path)) == 3


def test_many_visitors(path, clock, monkeypatch):
    """Those who were seen longest ago are forgotten first."""
    monkeypatch.setattr(login_notes, "KEPT_MAX", 2)
    logins = LoginNotes(AuditLog(path), "http")
    for user in "abacab":
        logins.note(user, "h", 1, "password")
    assert [user for user, *_ in noted(path)] == list("abcb")
