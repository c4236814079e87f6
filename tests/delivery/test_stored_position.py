"""Positions in the message queue: their form, and which of two counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transactions_in_memory import position_at

from canal_server.delivery.stored_position import decoded, encoded, is_newer
from canal_server.errors import CanalError
from canal_server.model.positions import LogIdentity, LogPosition

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def with_set(position: LogPosition, gtids: str) -> LogPosition:
    """Return the position with a GTID set."""
    return replace(position, position=replace(position.position, gtid=gtids))


def elsewhere(position: LogPosition, gtids: str = "") -> LogPosition:
    """Return the position on another server."""
    return with_set(replace(position, identity=LogIdentity("b", 1)), gtids)


@pytest.mark.parametrize(
    ("stored", "cursor", "expected"),
    [
        (position_at(5), None, True),
        (position_at(5), position_at(4), True),
        (position_at(5), position_at(5), False),
        (position_at(5), position_at(6), False),  # of a time without stored positions
        (position_at(5), position_at(4, moved=True), False),
        (position_at(5, file=2), position_at(4, file=1, time_ms=9), True),
        (elsewhere(position_at(5, time_ms=5)), position_at(9), True),
        (elsewhere(position_at(5)), position_at(9, time_ms=5), False),
        (
            elsewhere(position_at(5), f"{UUID}:1-9"),
            with_set(position_at(9, time_ms=5), f"{UUID}:1-8"),
            True,
        ),
        (
            elsewhere(position_at(5, time_ms=5), f"{UUID}:1-8"),
            with_set(position_at(9), f"{UUID}:1-9"),
            False,
        ),
        (
            elsewhere(position_at(5), "0-1-9"),
            with_set(position_at(9, time_ms=5), "0-2-8"),
            True,
        ),
        # The address leads to another server, whose files have lower numbers.
        (
            with_set(position_at(5), f"{UUID}:1-9"),
            with_set(position_at(4, file=9), f"{UUID}:1-8"),
            True,
        ),
    ],
)
def test_which_of_two_positions(
    stored: LogPosition, cursor: LogPosition | None, expected: bool
) -> None:
    """The one that is further, unless an operator has moved the cursor."""
    assert is_newer(decoded(encoded(stored)), cursor) is expected


@pytest.mark.parametrize("value", [b"", b"[]", b'{"position": {}}', b"\xff"])
def test_what_is_no_position(value: bytes) -> None:
    """It is an error with a remedy."""
    with pytest.raises(CanalError, match="to another name, to begin with"):
        decoded(value)


def test_what_is_no_position_is_not_shown() -> None:
    """Somebody else may have written it: it may be a secret."""
    with pytest.raises(CanalError, match=r"\(16 bytes\)") as caught:
        decoded(b'{"token": "abc"}')
    assert "abc" not in str(caught.value)
