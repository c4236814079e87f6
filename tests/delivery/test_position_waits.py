"""What is shown of destinations that wait for their positions in the message queue."""

from __future__ import annotations

from typing import Any

from alarm_scene import Scene

from canal_server.cli.status.status_check import Limits, findings
from canal_server.delivery.position_waits import PositionWaits
from canal_server.web.note_texts import error_notes

STATUS: dict[str, object] = {
    "destination": "example",
    "running": False,
    "delivery": {"queue": "kafka at k:9092", "state": "blocked", "reason": "no answer"},
}


def test_a_destination_that_waits() -> None:
    """It has the last reason as its error, since the first one; then nothing.

    Its delivery, which may still show why it failed when the destination ran, waits.
    """
    waits = PositionWaits()
    assert waits.shown_in(STATUS) == STATUS
    waits.note("example", "no answer")
    since_ms = waits.shown_in(STATUS)["error_since_ms"]
    waits.note("example", "not allowed")
    shown = waits.shown_in(STATUS)
    assert shown["error"] == "waits for its position in the message queue: not allowed"
    assert shown["error_since_ms"] == since_ms
    assert shown["delivery"] == {
        "queue": "kafka at k:9092", "state": "waiting", "reason": "",
        "since_ms": since_ms,
    }  # fmt: skip
    assert waits.shown_in(STATUS | {"running": True}) == STATUS | {"running": True}
    waits.note("example", "")
    assert waits.shown_in(STATUS) == STATUS


def test_what_is_said_of_one_that_waits() -> None:
    """It is one alarm, and one finding of a check; the page has the remedy, once."""
    waits = PositionWaits()
    waits.note("example", "no answer")
    status: dict[str, Any] = waits.shown_in(STATUS)
    error = "waits for its position in the message queue: no answer"
    assert Scene(after_s=0.0).look(**status) == [("raised", "failed", error)]
    limits = Limits(lag_s=None, client_lag_s=None, blocked_s=0.0)
    answer = {"stopping": False, "instances": [status | {"life": "running"}]}
    (finding,) = findings(answer, limits)
    assert finding.text.startswith(f"example: {error} (since")
    (note,) = error_notes(str(status["error"]))
    assert note["anchor"] == "position-not-read"
    assert note["remedy"].startswith("Start the brokers")
