"""Files that a subscription still needs are not purged."""

from __future__ import annotations

import pytest
from soak.purging import read_by


def reply(epoch: int, *positions: tuple[int, str]) -> dict[str, object]:
    """Return what a server says of subscriptions."""
    found = [{"epoch": each, "journal": name} for each, name in positions]
    return {"running": True, "epoch": epoch, "subscriptions": found}


@pytest.mark.parametrize(
    ("said", "expected", "number"),
    [
        (reply(0, (0, "binlog.000012")), 1, 12),
        (reply(0, (0, "binlog.000012"), (0, "binlog.000007")), 2, 7),
        (reply(1, (1, "second.1000001")), 1, 1_000_001),
        # One has not come yet, and one stands on the server before.
        (reply(0, (0, "binlog.000012")), 2, 0),
        (reply(1, (0, "binlog.000012")), 1, 0),
        (reply(1, (1, "binlog.000012"), (0, "binlog.000013")), 2, 0),
    ],
)
def test_the_oldest_file_of_all(said, expected, number):
    """The oldest position counts, and nothing where not all positions are known."""
    assert read_by(said, expected) == number
