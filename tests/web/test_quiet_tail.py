"""Why nothing comes to a tail: the state, its reason, and since when."""

from __future__ import annotations

import pytest

from canal_server.observe.readings import STATES, Reading
from canal_server.server.request_counts import RequestCounts
from canal_server.web.quiet_tail import ENDING, REMOVED, not_read, state_of

RUNNING = {"running": True, "state": "running", "position": "b.1:4", "position_ms": 9}
BLOCKED = {"reason": "ring full, waits for client 1", "since_ms": 5, "clients": [1]}


def reading_of(**status) -> Reading:
    """Return a reading of a destination with this status."""
    return Reading("one", {"destination": "one", **status}, RequestCounts(), None)


@pytest.mark.parametrize(
    ("status", "state", "reason", "since_ms"),
    [
        (RUNNING, "quiet", "no further change that 's.t' matches", 7),
        ({**RUNNING, "blocked": BLOCKED}, "blocked_on_client",
         "reading waits: ring full, waits for client 1", 5),
        ({**RUNNING, "state": "waiting", "error": "refused", "error_since_ms": 3},
         "waiting", "the source cannot be read: refused", 3),
        ({**RUNNING, "state": "connecting"}, "locating",
         "the server is connecting to the source", None),
        ({"life": "idle"}, "idle",
         "the destination is lazy, and starts when its first client connects", None),
        ({"life": "competing"}, "standby", "no server runs the destination now", None),
        ({"life": "competing", "runs_on": "h:1"}, "standby",
         "the destination runs on h:1: connect there", None),
        ({"life": "paused", "error": "no disk", "error_since_ms": 4}, "failed",
         "the destination cannot start: no disk", 4),
        ({"life": "stopped"}, "stopped", "an operator stopped the destination", None),
    ],
)  # fmt: skip
def test_state(status, state, reason, since_ms):  # a table
    """Each state of a destination has a reason in words."""
    found = state_of(reading_of(**status), "s.t", 7)
    assert found == {
        "state": state,
        "reason": reason,
        "since_ms": since_ms,
        "position": status.get("position"),
        "position_ms": status.get("position_ms"),
    }
    assert found.keys() == ENDING.keys() == REMOVED.keys()


def test_every_state_has_a_reason():
    """None is shown by the name of its state alone."""
    for life in ("idle", "competing", "starting", "stopping", "paused", "stopped"):
        found = state_of(reading_of(life=life), "", None)
        assert found["state"] in STATES
        assert " " in found["reason"]


def test_a_limited_user():
    """What does not come may be what the user may not read."""
    found = state_of(reading_of(**RUNNING), "s.t", None, is_limited=True)
    reason = "no change so far that 's.t' matches and this user may read"
    assert found["reason"] == reason


def test_nothing_so_far():
    """Without a change, and without a filter, neither is mentioned."""
    found = state_of(reading_of(**RUNNING), "", None)
    assert (found["reason"], found["since_ms"]) == ("no change so far", None)


@pytest.mark.parametrize(
    ("expression", "asked"),
    [
        ("shop.orders", [("shop", "orders")]),
        (r"shop\.orders,a.b-c$d", [("shop", "orders"), ("a", "b-c$d")]),
        (r"shop\..*", []),
        (r"shop.orders,shop\..*", []),
        ("", []),
    ],
)
def test_tables_that_nobody_reads(expression, asked):
    """Only a list of names can be said not to be read; one that is read suffices."""
    seen = []

    def reads(names):
        seen.extend(names)
        return False

    found = not_read(expression, reads)
    assert seen == asked
    assert (found is None) == (not asked)
    assert not_read(expression, lambda _: True) is None
