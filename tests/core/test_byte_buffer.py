"""The buffer of received bytes for the decoder."""

from __future__ import annotations

import pytest

from canal_server.core.byte_buffer import Feed


def put(feed: Feed, data: bytes) -> None:
    """Append bytes."""
    with feed.space(len(data)) as space:
        space[: len(data)] = data
    feed.filled(len(data))


def test_space_is_as_wide_as_asked() -> None:
    """The free tail has at least the requested room, and can be written."""
    feed = Feed(64)
    for room in (1, 64, 65, 10_000, 1_000_000):
        with feed.space(room) as space:
            assert len(space) >= room
            assert not space.readonly


def test_waiting_counts_what_was_filled() -> None:
    """Only what was reported as filled waits; `clear` forgets it."""
    feed = Feed()
    put(feed, b"abc")
    put(feed, b"de")
    assert feed.waiting == 5
    feed.clear()
    assert feed.waiting == 0


def test_growth_keeps_what_waits() -> None:
    """Growing does not lose what was not decoded."""
    feed = Feed(16)
    put(feed, bytes(range(10)))
    put(feed, bytes(range(100)))
    assert feed.waiting == 110


def test_it_shrinks_when_it_is_empty() -> None:
    """The room that one large event needed is released when more is requested."""
    feed = Feed(1000)
    put(feed, bytes(1_000_000))
    feed.clear()
    put(feed, bytes(999_999))  # the rest of the large room is used up first
    feed.clear()
    feed.filled(1_000_000)
    feed.clear()
    with feed.space(1000) as space:
        assert len(space) >= 1000


def test_space_in_use_is_not_moved() -> None:
    """Requesting more than the free tail while a view is alive is refused."""
    feed = Feed(64)
    with feed.space(10), pytest.raises(BufferError, match="still in use"):
        feed.space(1000)
    with feed.space(1000) as space:
        assert len(space) >= 1000


def test_more_than_the_space() -> None:
    """Reporting more than fits is refused."""
    feed = Feed(64)
    with feed.space(10) as space:
        room = len(space)
    with pytest.raises(ValueError, match=f"{room + 1} bytes in a space of {room}"):
        feed.filled(room + 1)


def test_room_grows_with_what_arrives() -> None:
    """A source that sends little has a small buffer, one that fills it all of it."""
    feed, rooms = Feed(256 * 1024), []
    for size in (1000, None, None, None, None):
        with feed.space(4) as space:
            rooms.append(len(space))
        feed.filled(size or rooms[-1])
        feed.clear()
    assert rooms[0] < 16 * 1024
    assert rooms == sorted(rooms)
    assert rooms[1] <= rooms[0]  # what it has is not full
    assert rooms[-1] == 256 * 1024
