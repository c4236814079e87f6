"""Memory of frames: writable, of the size that was asked for, and never of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_random import longer

from canal_server.client.connection.frame_buffer import FrameBuffer

if TYPE_CHECKING:
    import random

MB = 1024 * 1024


@pytest.mark.parametrize("size", [0, 1, 65_536, MB, 5 * MB])
def test_size(size: int) -> None:
    """All of it can be written and read."""
    buffer = FrameBuffer(size)
    view = memoryview(buffer)
    assert (len(buffer), view.nbytes, view.format, view.readonly) == (
        size,
        size,
        "B",
        False,
    )
    view[:] = b"x" * size
    assert bytes(view.toreadonly()) == b"x" * size


def test_sizes_that_cannot_be() -> None:
    """There is neither less than nothing nor more than there is."""
    with pytest.raises(ValueError, match="size = -1"):
        FrameBuffer(-1)
    with pytest.raises(MemoryError, match="no memory for a frame"):
        FrameBuffer(2**62)


def test_memory_in_use_is_not_used_again(rng: random.Random) -> None:
    """What a slice of a buffer holds stays, however many come and end after it."""
    held: list[tuple[memoryview, bytes]] = []
    for number in range(longer(500)):
        size = rng.choice([rng.randrange(1, 100), rng.randrange(60_000, 4 * MB)])
        view = memoryview(FrameBuffer(size))
        content = number.to_bytes(4, "big") * (size // 4 + 1)
        view[:] = content[:size]
        held.append((view[size // 3 :], content[size // 3 : size]))
        while len(held) > rng.randrange(1, 6):
            part, expected = held.pop(rng.randrange(len(held)))
            assert part == expected
