"""What is shown of destinations that wait for their positions in the message queue."""

from __future__ import annotations

from canal_server.delivery.position_waits import PositionWaits

STATUS: dict[str, object] = {
    "destination": "example",
    "running": False,
    "delivery": {"queue": "kafka at k:9092", "state": "waiting", "reason": ""},
}


def test_a_destination_that_waits() -> None:
    """It has the last reason as its error, since the first one; then nothing."""
    waits = PositionWaits()
    assert waits.shown_in(STATUS) == STATUS
    waits.note("example", "no answer")
    since_ms = waits.shown_in(STATUS)["error_since_ms"]
    waits.note("example", "not allowed")
    shown = waits.shown_in(STATUS)
    assert shown["error"] == "waits for its position in the message queue: not allowed"
    assert shown["error_since_ms"] == since_ms
    assert shown["delivery"] == {
        "queue": "kafka at k:9092", "state": "blocked", "reason": "not allowed",
        "since_ms": since_ms,
    }  # fmt: skip
    assert waits.shown_in(STATUS | {"running": True}) == STATUS | {"running": True}
    waits.note("example", "")
    assert waits.shown_in(STATUS) == STATUS
