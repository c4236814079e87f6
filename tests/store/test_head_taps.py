"""Readers that follow the head of a store: what they get, and what they never do."""

from __future__ import annotations

import pytest
from fix_blocks import ENTRY_BYTES, ROWS, Entries, numbers_in
from fix_store import StoreUnderTest

from canal_server.core.blocks import BlockPool
from canal_server.store.head_taps import (
    BLOCK_BYTES,
    TOO_LARGE,
    TOO_SLOW,
    HeadTap,
    Skipped,
)

CLIENT = 1001


class Follower:
    """A tap and its reader, which counts its news."""

    def __init__(self, bytes_max: int = 1 << 30) -> None:
        self.news = 0
        self.tap = HeadTap(self._on_news, bytes_max)
        self.skipped: list[Skipped] = []

    def _on_news(self) -> None:
        self.news += 1

    def read(self) -> list[int]:
        """Return the numbers of all entries that can be fetched."""
        found = []
        while True:
            skipped, span = self.tap.fetch()
            self.skipped += skipped
            if span is not None:
                found += numbers_in([span])
            elif not skipped:
                return found


@pytest.fixture
def under_test():
    """Give a store."""
    return StoreUnderTest()


def test_it_gets_what_is_put_from_now_on(under_test):
    """Also what a client has acked meanwhile; what was put before is not among it."""
    store, entries, follower = under_test.store, under_test.entries, Follower()
    store.subscribe(CLIENT, None, None)
    entries.transaction(rows=1)
    under_test.put()
    store.taps.add(follower.tap)
    expected = entries.transaction(rows=2)
    under_test.put()
    under_test.ack_next(CLIENT, 100)
    assert under_test.held() == 0
    assert follower.read() == expected
    store.taps.remove(follower.tap)
    entries.transaction(rows=1)
    under_test.put()
    assert follower.read() == []


def test_it_retains_nothing(under_test):
    """Its entries are freed for a put as if it were not there; it still gets them."""
    store, entries, follower = under_test.store, under_test.entries, Follower()
    store.subscribe(CLIENT, None, None)
    store.taps.add(follower.tap)
    expected = []
    for _ in range(10):
        expected += entries.transaction(rows=30)
        assert under_test.try_put()
        under_test.ack_next(CLIENT, 100)
    assert [each.client_id for each in store.counts().cursors] == [CLIENT]
    assert follower.read() == expected


def test_news(under_test):
    """A reader that found nothing is notified once, whatever is put before it reads."""
    follower = Follower()
    under_test.store.taps.add(follower.tap)
    under_test.entries.transaction(rows=1)
    under_test.put()
    assert follower.news == 0, "it has not asked"
    assert len(follower.read()) == 3
    for _ in range(3):
        under_test.entries.transaction(rows=1)
        under_test.put()
    assert follower.news == 1
    assert len(follower.read()) == 9


def test_a_reader_that_is_too_slow():
    """It misses the oldest entries, and learns how many, and how many rows."""
    entries, follower = Entries(records_per_block=4), Follower(3 * BLOCK_BYTES)
    numbers = []
    for _ in range(10):
        numbers += entries.transaction(rows=2)
        follower.tap.note(entries.take())
        assert follower.tap.held_bytes <= 3 * BLOCK_BYTES
    assert follower.read() == numbers[-12:]
    assert follower.skipped == [Skipped(TOO_SLOW, 28, 14)]
    assert follower.tap.held_bytes == 0


def test_blocks_of_which_little_is_put():
    """A span counts with its whole block, which it keeps alive."""
    entries, follower = Entries(records_per_block=100), Follower(2 * BLOCK_BYTES)
    for _ in range(5):
        for _ in range(100):
            entries.add(ROWS)
        ((block, _, stop),) = entries.take()
        follower.tap.note([(block, stop - 1, stop)])
    assert follower.tap.held_bytes == 2 * BLOCK_BYTES
    assert follower.read() == [399, 499]


def test_neighbours_share_a_span():
    """Many small chunks of one block need no more memory than one."""
    entries, follower = Entries(), Follower()
    for _ in range(50):
        entries.add(ROWS)
        follower.tap.note(entries.take())
    _, span = follower.tap.fetch()
    assert span is not None
    assert numbers_in([span]) == list(range(50))
    assert follower.tap.fetch() == ([], None)


def test_an_entry_that_is_too_large():
    """It is skipped and counted; those before and after it come."""
    pool = BlockPool(4 * BLOCK_BYTES)
    entries, follower = Entries(pool), Follower(2 * BLOCK_BYTES)
    entries.add(ROWS)
    follower.tap.note(entries.take())
    entries.add(ROWS, size=2 * BLOCK_BYTES + 1, rows=7)
    follower.tap.note(entries.take())
    entries.add(ROWS)
    follower.tap.note(entries.take())
    assert follower.read() == [0, 2]
    assert follower.skipped == [Skipped(TOO_LARGE, 1, 7)]


def test_what_it_holds_does_not_stop_the_pump():
    """The limit for memory of blocks is for those of clients."""
    under_test = StoreUnderTest(buffer_size=1024, block_bytes_max=256 * 1024)
    store, entries, follower = under_test.store, under_test.entries, Follower()
    store.subscribe(CLIENT, None, None)
    store.taps.add(follower.tap)
    for number in range(20):
        for _ in range(1000):
            entries.add(ROWS, size=ENTRY_BYTES)
        assert under_test.try_put(), f"it waited at put {number}"
        under_test.ack_next(CLIENT, 1000)
    assert len(follower.read()) == 20_000


def test_the_end_of_the_store(under_test):
    """What was put can still be read; a tap that comes later is closed at once."""
    follower, late = Follower(), Follower()
    store = under_test.store
    store.taps.add(follower.tap)
    assert follower.read() == []
    under_test.entries.transaction(rows=1)
    under_test.put()
    store.close()
    assert follower.tap.closed
    assert follower.news == 1
    assert len(follower.read()) == 3
    store.taps.add(late.tap)
    assert late.tap.closed
    assert late.read() == []
