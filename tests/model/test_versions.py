"""Numbers that order the positions of a source's binlogs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from canal_server.model.versions import (
    EPOCH_MAX,
    EXACT_OFFSETS,
    FILE_NUMBER_MAX,
    OFFSET_MAX,
    STEP_BYTES,
    VersionPosition,
    position_of_version,
    version,
)

if TYPE_CHECKING:
    import random


def test_layout() -> None:
    """Epoch, file and offset have fixed bits."""
    assert version(0, "mysql-bin.000001", 4) == (1 << 32) + 4
    assert version(2, "mysql-bin.000012", 4567) == 2 << 56 | 12 << 32 | 4567
    assert version(2, 12, 4567) == version(2, "mysql-bin.000012", 4567)
    assert version(0, "no number", 4) == 4


def test_order_follows_the_positions(rng: random.Random) -> None:
    """A later position has a larger number, even beyond 2 and 4 GiB and over files."""
    offsets = [4, 1 << 20, EXACT_OFFSETS - 1, EXACT_OFFSETS, 1 << 32, OFFSET_MAX]
    offsets += [rng.randrange(EXACT_OFFSETS) for _ in range(100)]
    offsets += [
        EXACT_OFFSETS + rng.randrange(EXACT_OFFSETS) * STEP_BYTES for _ in range(100)
    ]
    positions = sorted(
        (epoch, number, offset)
        for epoch in (0, 1, EPOCH_MAX)
        for number in (0, 9, 999_999, 1_000_000, FILE_NUMBER_MAX)
        for offset in set(offsets)
    )
    for one, other in itertools.pairwise(positions):
        smaller, larger = version(*one), version(*other)
        if one[:2] == other[:2] and 0 < other[2] - one[2] < STEP_BYTES:
            assert smaller <= larger  # closer than any two transactions end
        else:
            assert smaller < larger, (one, other)
    assert version(*positions[0]) >= 0
    assert version(*positions[-1]) < 1 << 63


def test_steps_apart_from_two_gigabytes_on() -> None:
    """Ends that are 64 bytes apart have distinct numbers, even across 2 GiB."""
    ends = range(EXACT_OFFSETS - 1000, EXACT_OFFSETS + 10_000, STEP_BYTES)
    numbers = [version(1, 7, end) for end in ends]
    assert numbers == sorted(set(numbers))


def test_positions_come_back(rng: random.Random) -> None:
    """Below 2 GiB a number has the exact position, above it the step."""
    for _ in range(200):
        position = VersionPosition(
            rng.randint(0, EPOCH_MAX),
            rng.randint(0, FILE_NUMBER_MAX),
            rng.randrange(EXACT_OFFSETS),
        )
        assert position_of_version(version(*position)) == position
        far = position._replace(offset=rng.randint(EXACT_OFFSETS, OFFSET_MAX))
        back = position_of_version(version(*far))
        assert back[:2] == far[:2]
        assert 0 <= far.offset - back.offset < STEP_BYTES


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ((EPOCH_MAX + 1, 1, 4), "epoch 128"),
        ((-1, 1, 4), "epoch -1"),
        ((0, FILE_NUMBER_MAX + 1, 4), "binlog file number 16777216"),
        ((0, 1, OFFSET_MAX + 1), f"offset {OFFSET_MAX + 1}"),
        ((0, 1, -1), "offset -1"),
    ],
)
def test_positions_without_a_number(
    position: tuple[int, int, int], expected: str
) -> None:
    """A position out of range is refused with the limit."""
    with pytest.raises(ValueError, match=expected):
        version(*position)


@pytest.mark.parametrize("number", [-1, 1 << 63])
def test_no_versions(number: int) -> None:
    """Numbers that no position has are refused."""
    with pytest.raises(ValueError, match="is not a version"):
        position_of_version(number)
